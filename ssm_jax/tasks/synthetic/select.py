"""Select and SelectFixed: the marked values of noise, copied in their order."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.fields import PositiveInt, Seed, check_value
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Select(sequence.EndlessTask):
    r"""Regression: the marked values of noise, copied after all of it has been read.

    .. math::
      y_k = x_{p_k}, \qquad 0 \le p_0 < p_1 < \dots < p_{M-1} < L + M

    The positions ``p_k`` are drawn for each sequence, uniformly among all sets of ``M``
    positions. ``L`` is ``length`` and ``M`` is ``n_selected``; ``y_k`` is the target at
    step ``L + M + k``.

    What the task asks of a model: a memory of the marked values only, in slots whose
    number depends on the marks before.

    Attributes:
      length: Number of values that are not selected. A sequence has
        ``length + 2 n_selected`` steps: all values, then a zero for each target.
      n_selected: Number of values to copy.

    Batch:
      inputs: float32, ``(b, length + 2 n_selected, 4)``: standard normal noise divided
        by its maximum absolute value in the row, followed by zeros; 1 at a selected
        position and 0 elsewhere; ``cos`` and ``sin`` of ``2 pi i`` over the number of
        steps.
      targets: float32, ``(b, n_selected, 1)``, for the last steps.
      loss_mask: bool, ``(b, n_selected)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` or ``n_selected`` is not positive.

    Example:
      >>> batch = Select(length=3, n_selected=2).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, :2].T.round(2))
      [[ 0.03 -0.03  0.34 -0.56 -1.    0.    0.  ]
       [ 0.    0.    0.    1.    1.    0.    0.  ]]
      >>> print(batch.targets[0, :, 0].round(2))
      [-0.56 -1.  ]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1
    """

    stream = "select"

    n_selected: int = 32

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_value("n_selected", self.n_selected, PositiveInt, "the paper's is 32")

    @property
    def spec(self) -> base.TaskSpec:
        """Four features per step, and one target value in the last steps."""
        return sequence.regression_spec(
            length=self.length + 2 * self.n_selected,
            d_input=4,
            d_output=1,
            l_output=self.n_selected,
        )

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = sequence.draw_noise(rng, size, self.length + self.n_selected)
        return _select(x, sequence.draw_positions(rng, x.shape, self.n_selected))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectFixed(Select):
    """Regression: `Select` with the same positions in all sequences.

    The positions are drawn once, from ``positions_seed``, and do not depend on the
    split or on the seed of the batches.

    What the task asks of a model: one exact lag for each target, which kernels that do
    not depend on the input can have.

    Attributes:
      length: Number of values that are not selected, as of `Select`.
      n_selected: Number of values to copy.
      positions_seed: Seed of the positions.

    Batch: as of `Select`.

    Splits: endless, with the same positions and with noise of an own random stream for
    each split, seed and index. Nothing is downloaded.

    Raises:
      ValueError: ``length`` or ``n_selected`` is not positive, or ``positions_seed``
        not in [0, 2**32).

    Example:
      >>> task = SelectFixed(length=3, n_selected=2)
      >>> for split in ("train", "test"):
      ...     print(task.batch(split, 0, batch_size=1, seed=0).inputs[0, :, 1])
      [1. 0. 0. 1. 0. 0. 0.]
      [1. 0. 0. 1. 0. 0. 0.]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1; the
      authors' code draws the positions with torch from the seed 0, so that they are
      other ones
    """

    stream = "select_fixed"

    positions_seed: int = 0

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_value("positions_seed", self.positions_seed, Seed)

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = sequence.draw_noise(rng, size, self.length + self.n_selected)
        # One stream for all splits, which share the positions.
        fixed = base.generator(
            "select_fixed/positions", "train", self.positions_seed, 0
        )
        positions = sequence.draw_positions(fixed, (1, x.shape[1]), self.n_selected)
        return _select(x, np.repeat(positions, size, axis=0))


def _select(x: np.ndarray, positions: np.ndarray) -> base.Batch:
    marks = np.zeros_like(x)
    np.put_along_axis(marks, positions, 1.0, axis=1)
    n = positions.shape[1]
    inputs = [sequence.pad_right(channel, n) for channel in (x, marks)]
    targets = np.take_along_axis(x, positions, axis=1)[..., None]
    return sequence.regression_batch(np.stack(inputs, axis=-1), targets)
