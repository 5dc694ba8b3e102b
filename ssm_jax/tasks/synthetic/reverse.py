"""Reverse: noise in reverse order, after it has been read."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reverse(sequence.EndlessTask):
    r"""Regression: noise in reverse order, after all of it has been read.

    .. math::
      y_i = x_{L - 1 - i}, \qquad 0 \le i < L

    ``y_i`` is the target at step ``L + i``: a causal model predicts it after it has
    read all ``L`` values.

    What the task asks of a model: an exact memory whose lag, ``2 i + 1`` steps, differs
    at every position, so that one convolution kernel does not suffice.

    Attributes:
      length: Number of values, ``L``. A sequence has twice as many steps.

    Batch:
      inputs: float32, ``(b, 2 length, 3)``: standard normal noise divided by its
        maximum absolute value in the row, followed by as many zeros, then ``cos`` and
        ``sin`` of ``2 pi i / (2 length)``.
      targets: float32, ``(b, length, 1)``, for the second half of the steps.
      loss_mask: bool, ``(b, length)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is not positive.

    Example:
      >>> batch = Reverse(length=3).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, 0].round(2))
      [ 0.35 -0.33 -1.    0.    0.    0.  ]
      >>> print(batch.targets[0, :, 0].round(2))
      [-1.   -0.33  0.35]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1
    """

    stream = "reverse"

    @property
    def spec(self) -> base.TaskSpec:
        """Three features per step, and one target value in the second half."""
        return sequence.regression_spec(
            length=2 * self.length, d_output=1, l_output=self.length
        )

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = sequence.draw_noise(rng, size, self.length)
        # A copy: a reversed view would keep negative strides.
        targets = x[:, ::-1, None].copy()
        return sequence.regression_batch(sequence.pad_right(x, self.length), targets)
