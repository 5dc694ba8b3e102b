"""CumSum: the running sum of noise."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class CumSum(sequence.EndlessTask):
    r"""Regression: the running sum of noise over the square root of its length.

    .. math::
      y_i = \frac{1}{\sqrt{i + 1}} \sum_{j \le i} x_j, \qquad 0 \le i < L

    The root is the standard deviation of the sum, so that the targets have one scale
    over the whole length ``L``.

    What the task asks of a model: a state that does not decay from the first step to
    the last, and a readout that depends on the position.

    Attributes:
      length: Number of steps of a sequence.

    Batch:
      inputs: float32, ``(b, length, 3)``: standard normal noise divided by its maximum
        absolute value in the row, then ``cos`` and ``sin`` of ``2 pi i / length``.
      targets: float32, ``(b, length, 1)``, summed in float64.
      loss_mask: bool, ``(b, length)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is not positive.

    Example:
      >>> batch = CumSum(length=4).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, 0].round(2))
      [ 0.49 -1.    0.53  0.85]
      >>> print(batch.targets[0, :, 0].round(2))
      [ 0.49 -0.36  0.01  0.44]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1
    """

    stream = "cumsum"

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = sequence.draw_noise(rng, size, self.length)
        n_terms = np.arange(1, self.length + 1)
        # In float64: errors of a float32 sum grow with the number of terms.
        sums = np.cumsum(x, axis=1, dtype=np.float64) / np.sqrt(n_terms)
        return base.Batch(
            sequence.with_positions(x),
            targets=sums.astype(x.dtype)[..., None],
            loss_mask=np.ones(x.shape, bool),
        )
