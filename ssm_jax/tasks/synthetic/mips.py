"""MIPS: the value whose key has the maximum inner product with the query."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.fields import PositiveInt, check_value
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence

_BLOCK = 128  # Queries.
_MAX_TERMS = 2**18  # Of one product; BLAS divides larger ones among threads.
_ROUNDING = 1e-6  # More than the error of a float32 product of unit vectors.


@dataclasses.dataclass(frozen=True, kw_only=True)
class MIPS(sequence.EndlessTask):
    r"""Regression: maximum inner product search among the keys of the steps so far.

    .. math::
      y_i = v_{j(i)}, \qquad j(i) = \arg\max_{j \le i} \, q_i \cdot k_j,
      \quad 0 \le i < L

    The queries ``q``, keys ``k`` and values ``v`` are independent, uniform on the unit
    sphere in ``d_vector`` dimensions; ``L`` is ``length``.

    What the task asks of a model: to keep all keys and values, and to find one of them
    by its content; attention with a high temperature does exactly this.

    Attributes:
      length: Number of steps of a sequence.
      d_vector: Number of dimensions of a query, of a key and of a value.

    Batch:
      inputs: float32, ``(b, length, 3 d_vector + 2)``: query, key, value, then ``cos``
        and ``sin`` of ``2 pi i / length``.
      targets: float32, ``(b, length, d_vector)``. The products are compared in float64.
      loss_mask: bool, ``(b, length)``, true everywhere.

    The number of products grows with the square of ``length``.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` or ``d_vector`` is not positive.

    Example:
      >>> batch = MIPS(length=3, d_vector=2).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, :6].round(2))
      [[-0.36  0.93 -0.2   0.98  0.67  0.74]
       [ 0.61 -0.79 -0.88  0.48 -0.93 -0.37]
       [ 0.68 -0.73 -0.56  0.83 -1.   -0.02]]
      >>> print(batch.targets[0].round(2))
      [[0.67 0.74]
       [0.67 0.74]
       [0.67 0.74]]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1
    """

    stream = "mips"

    d_vector: int = 4

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_value("d_vector", self.d_vector, PositiveInt, "the paper's is 4")

    @property
    def spec(self) -> base.TaskSpec:
        """Query, key, value and position, and one target vector per step."""
        return sequence.regression_spec(
            length=self.length, d_input=3 * self.d_vector + 2, d_output=self.d_vector
        )

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = rng.standard_normal((size, self.length, 3, self.d_vector))
        # Normalized in float64, rounded once.
        x = (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)
        query, key, value = np.moveaxis(x, 2, 0)
        best = np.stack([_best_keys(*row) for row in zip(query, key, strict=True)])
        targets = np.take_along_axis(value, best[..., None], axis=1)
        vectors = x.reshape(size, self.length, 3 * self.d_vector)
        return sequence.regression_batch(vectors, targets)


def _best_keys(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Returns the index of the best key up to each query, ``(l,)``, from ``(l, d)``."""
    n, d = query.shape
    transposed = np.ascontiguousarray(key.T)
    best, gap = np.empty(n, np.int64), np.empty(n, np.float32)
    # Added to the scores of a block's own keys, of which those after the query are out.
    later = np.triu(np.full((_BLOCK, _BLOCK), -np.inf, np.float32), 1)
    # One buffer for all blocks, which stays in the cache.
    buffer = np.empty(min(_BLOCK, n) * n, np.float32)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        rows = np.arange(stop - start)
        scores = buffer[: len(rows) * stop].reshape(len(rows), stop)
        at_once = max(1, _MAX_TERMS // (stop * d))
        for i in range(0, len(rows), at_once):
            part = scores[i : i + at_once]
            queries = query[start + i : start + i + len(part)]
            np.matmul(queries, transposed[:, :stop], out=part)
        scores[:, start:] += later[: len(rows), : len(rows)]
        best[start:stop] = block_best = scores.argmax(axis=1)
        first = scores[rows, block_best]
        scores[rows, block_best] = -np.inf
        gap[start:stop] = first - scores.max(axis=1)
    # The rounding of float32 products differs between machines, so that those that it
    # could exchange are compared again in float64: a few in a batch.
    for i in np.flatnonzero(gap < _ROUNDING):
        best[i] = np.sum(key[: i + 1] * np.float64(query[i]), axis=1).argmax()
    return best
