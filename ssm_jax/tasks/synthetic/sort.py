"""Sort: noise in the order of its distance from the first value."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sort(sequence.EndlessTask):
    r"""Regression: noise, sorted by the distance of each value from the first.

    .. math::
      y_i = x_{\pi(i)}, \qquad
      |x_{\pi(0)} - x_0| \le |x_{\pi(1)} - x_0| \le \dots \le |x_{\pi(L-1)} - x_0|

    where the permutation :math:`\pi` keeps the order of equal distances, so that
    ``y_0 = x_0``. ``y_i`` is the target at step ``L + i``: a causal model predicts it
    after it has read all ``L`` values.

    What the task asks of a model: comparisons of all pairs of values, with a criterion
    that is given by the sequence itself.

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
      >>> batch = Sort(length=4).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, 0].round(2))
      [ 0.58  1.    0.53 -0.56  0.    0.    0.    0.  ]
      >>> print(batch.targets[0, :, 0].round(2))
      [ 0.58  0.53  1.   -0.56]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1
    """

    stream = "sort"

    @property
    def spec(self) -> base.TaskSpec:
        """Three features per step, and one target value in the second half."""
        return sequence.regression_spec(
            length=2 * self.length, d_output=1, l_output=self.length
        )

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = sequence.draw_noise(rng, size, self.length)
        # In float64: float32 differences would round to equal distances.
        distance = np.abs(x - x[:, :1].astype(np.float64))
        order = np.argsort(distance, axis=1, kind="stable")
        targets = np.take_along_axis(x, order, axis=1)[..., None]
        return sequence.regression_batch(sequence.pad_right(x, self.length), targets)
