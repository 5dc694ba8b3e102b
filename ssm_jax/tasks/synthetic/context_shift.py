"""ContextShift: a sequence, delayed by a number of steps that it states."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextShift(sequence.EndlessTask):
    r"""Regression: a sequence, delayed by the number of steps that its head encodes.

    .. math::
      t = (\cos(2 \pi s / L), \sin(2 \pi s / L), x_0, \dots, x_{L-3}), \qquad
      y_i = t_{i - s}, \quad 0 \le i < L

    with zeros where ``i < s``. The delay ``s`` is drawn for each sequence, uniformly
    from 0 to ``L - 3``; ``L`` is ``length``.

    What the task asks of a model: the delays of `Shift`, but with a kernel that depends
    on the sequence.

    Attributes:
      length: Number of steps of a sequence.

    Batch:
      inputs: float32, ``(b, length, 3)``: ``t``, of which ``x`` is standard normal
        noise divided by its maximum absolute value in the row, then ``cos`` and ``sin``
        of ``2 pi i / length``.
      targets: float32, ``(b, length, 1)``.
      loss_mask: bool, ``(b, length)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is below 3.

    Example:
      >>> batch = ContextShift(length=6).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0, :, 0].round(2))
      [-1.    0.    0.13  0.63  1.    0.4 ]
      >>> print(batch.targets[0, :, 0].round(2))
      [ 0.    0.    0.   -1.    0.    0.13]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1; that
      the two encoding values are delayed too is from the authors' code
    """

    stream = "context_shift"
    min_length = 3

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        delay = rng.integers(self.length - 2, size=(size, 1))
        x = sequence.draw_noise(rng, size, self.length - 2)
        angle = 2.0 * np.pi * delay / self.length
        tokens = np.concatenate(
            [np.cos(angle), np.sin(angle), x], axis=1, dtype=x.dtype
        )
        # Each row has its own delay: one gather, where `Shift` copies slices.
        source = np.arange(self.length) - delay
        delayed = np.take_along_axis(tokens, np.maximum(source, 0), axis=1)
        delayed[source < 0] = 0.0
        return sequence.regression_batch(tokens, delayed[..., None])
