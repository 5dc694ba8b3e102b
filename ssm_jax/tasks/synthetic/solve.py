"""Solve and SolveFixed: systems of linear equations."""

import dataclasses
import math

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Seed, check_value
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Solve(sequence.EndlessTask):
    r"""Regression: the solution of an orthonormal system of linear equations.

    .. math::
      A z = b, \qquad A^T A = I, \qquad |z| = 1, \qquad
      t = (a_1, b_1, a_2, b_2, \dots, a_N, b_N, 0, \dots, 0)

    where ``a_i`` is row i of ``A``. The number of unknowns ``N`` is the largest with
    ``N (N + 1) + N <= length``, 63 for 4,096 steps; the solution ``z`` is the target at
    the last ``N`` steps, where the sequence ``t`` is zero. Matrix and solution are
    uniform: Haar-distributed, and on the unit sphere.

    What the task asks of a model: products of inputs that are far apart, since
    ``z = A^T b``.

    Attributes:
      length: Number of steps of a sequence.

    Batch:
      inputs: float32, ``(b, length, 3)``: ``t``, then ``cos`` and ``sin`` of
        ``2 pi i / length``.
      targets: float32, ``(b, N, 1)``: ``z``.
      loss_mask: bool, ``(b, N)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is below 3, too short for one equation.

    Example:
      >>> batch = Solve(length=8).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, 0].round(2))
      [-0.38  0.92 -0.55  0.92  0.38  0.83  0.    0.  ]
      >>> print(batch.targets[0, :, 0].round(2))
      [ 0.98 -0.19]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1; the
      authors' code takes the matrix from a singular value decomposition of a normal
      one, which has the distribution of the QR decomposition here
    """

    stream = "solve"
    min_length = 3

    @property
    def spec(self) -> base.TaskSpec:
        """Three features per step, and one target value in the last ``N`` steps."""
        return sequence.regression_spec(
            length=self.length, d_output=1, l_output=_n_unknowns(self.length)
        )

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        matrix = _draw_matrices(rng, size, _n_unknowns(self.length))
        return _solve(rng, matrix, self.length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveFixed(Solve):
    """Regression: `Solve` with the same matrix in all sequences.

    The matrix is drawn once, from ``matrix_seed``, and does not depend on the split or
    on the seed of the batches.

    What the task asks of a model: one linear map of the right-hand sides, which are at
    the same steps of every sequence.

    Attributes:
      length: Number of steps of a sequence, as of `Solve`.
      matrix_seed: Seed of the matrix.

    Batch: as of `Solve`.

    Splits: endless, with the same matrix and with solutions of an own random stream for
    each split, seed and index. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is below 3, or ``matrix_seed`` not in [0, 2**32).

    Example:
      >>> task = SolveFixed(length=8)
      >>> for split in ("train", "test"):
      ...     print(task.batch(split, 0, batch_size=1, seed=0).inputs[0, :, 0].round(2))
      [-0.15 -0.99 -0.03 -0.99  0.15 -1.    0.    0.  ]
      [-0.15 -0.99  0.93 -0.99  0.15 -0.36  0.    0.  ]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1; the
      authors' code draws the matrix with torch from the seed 0, so that it is another
      one
    """

    stream = "solve_fixed"

    matrix_seed: int = 0

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_value("matrix_seed", self.matrix_seed, Seed)

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        # One stream for all splits, which share the matrix.
        fixed = base.generator("solve_fixed/matrix", "train", self.matrix_seed, 0)
        matrix = _draw_matrices(fixed, 1, _n_unknowns(self.length))
        return _solve(rng, np.repeat(matrix, size, axis=0), self.length)


def _n_unknowns(length: int) -> int:
    # N (N + 1) + N <= length is (N + 1)^2 <= length + 1, exact in integers.
    return math.isqrt(length + 1) - 1


def _draw_matrices(rng: np.random.Generator, batch_size: int, n: int) -> np.ndarray:
    """Returns orthonormal matrices of the Haar distribution, ``(b, n, n)``."""
    q, r = np.linalg.qr(rng.standard_normal((batch_size, n, n)))
    # The signs of R's diagonal are those of LAPACK; with positive ones Q is uniform.
    return q * np.copysign(1.0, np.diagonal(r, axis1=1, axis2=2))[:, None, :]


def _solve(rng: np.random.Generator, matrix: np.ndarray, length: int) -> base.Batch:
    """Returns the batch of systems with these matrices and with random solutions."""
    batch_size, n, _ = matrix.shape
    solution = rng.standard_normal((batch_size, n, 1))
    solution /= np.linalg.norm(solution, axis=1, keepdims=True)
    # In float64, so that the rounded system has the rounded solution to float32.
    system = np.concatenate([matrix, matrix @ solution], axis=-1).astype(np.float32)
    rows = system.reshape(batch_size, n * (n + 1))
    tokens = sequence.pad_right(rows, length - rows.shape[1])
    return sequence.regression_batch(tokens, solution.astype(np.float32))
