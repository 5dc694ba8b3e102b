"""Shift: noise with several delays at once."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shift(sequence.EndlessTask):
    r"""Regression: noise, delayed by several evenly spaced numbers of steps.

    .. math::
      y_{i,k} = x_{i - s_k}, \qquad s_k = \lfloor k L / C \rfloor, \quad 0 \le k < C

    with zeros where ``i < s_k``; ``L`` is ``length`` and ``C`` is ``n_shifts``.

    What the task asks of a model: convolution kernels with a single nonzero entry at a
    lag of up to nearly the whole length, that is, a memory that is both long and exact.

    Attributes:
      length: Number of steps of a sequence.
      n_shifts: Number of delays, the first of which is 0.

    Batch:
      inputs: float32, ``(b, length, 3)``: standard normal noise divided by its maximum
        absolute value in the row, then ``cos`` and ``sin`` of ``2 pi i / length``.
      targets: float32, ``(b, length, n_shifts)``.
      loss_mask: bool, ``(b, length)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is not positive or ``n_shifts`` not in [1, ``length``].

    Example:
      >>> batch = Shift(length=6, n_shifts=2).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, 0].round(2))
      [ 0.21  0.91 -1.   -0.77  0.35 -0.31]
      >>> print(batch.targets[0, :, 1].round(2))
      [ 0.    0.    0.    0.21  0.91 -1.  ]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1
    """

    stream = "shift"

    n_shifts: int = 8

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_shifts <= self.length:
            raise ValueError(
                f"`n_shifts` must be from 1 to `length`, {self.length}, got "
                f"{self.n_shifts}; more delays would not be distinct."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """Three features and ``n_shifts`` target values per step."""
        return sequence.regression_spec(length=self.length, d_output=self.n_shifts)

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = sequence.draw_noise(rng, size, self.length)
        # Zeros remain before each delay.
        targets = np.zeros((*x.shape, self.n_shifts), x.dtype)
        for k in range(self.n_shifts):
            # Integer division, exact where the float quotient k * (L / C) is not.
            delay = k * self.length // self.n_shifts
            targets[:, delay:, k] = x[:, : self.length - delay]
        return base.Batch(
            sequence.with_positions(x), targets, loss_mask=np.ones(x.shape, bool)
        )
