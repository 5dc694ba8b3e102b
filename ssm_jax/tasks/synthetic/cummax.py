"""CumMax: the running maximum of noise."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class CumMax(sequence.EndlessTask):
    r"""Regression: the running maximum of noise.

    .. math::
      y_i = \max_{j \le i} x_j, \qquad 0 \le i < L

    with ``L`` the ``length``.

    What the task asks of a model: a state that depends on the input nonlinearly. The
    maximum is no convolution of the input with a kernel, unlike `CumSum`.

    Attributes:
      length: Number of steps of a sequence.

    Batch:
      inputs: float32, ``(b, length, 3)``: standard normal noise divided by its maximum
        absolute value in the row, then ``cos`` and ``sin`` of ``2 pi i / length``.
      targets: float32, ``(b, length, 1)``.
      loss_mask: bool, ``(b, length)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is not positive.

    Example:
      >>> batch = CumMax(length=5).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, 0].round(2))
      [-0.63  0.14 -0.03  1.    0.74]
      >>> print(batch.targets[0, :, 0].round(2))
      [-0.63  0.14  0.14  1.    1.  ]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1
    """

    stream = "cummax"

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        x = sequence.draw_noise(rng, size, self.length)
        return sequence.regression_batch(x, np.maximum.accumulate(x, 1)[..., None])
