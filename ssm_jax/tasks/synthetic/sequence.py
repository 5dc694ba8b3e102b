"""Inputs and spec shared by `CumSum` and `Shift`: noise and position features.

References:
  Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
  Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1; the
  position features are in the authors' code only
"""

import numpy as np

from ssm_jax.tasks import base


def check_length(length: int) -> None:
    """Raises ValueError unless a sequence has at least one step."""
    if length < 1:
        raise ValueError(
            f"`length` must be at least 1, got {length}; the paper's is 4096."
        )


def draw_noise(rng: np.random.Generator, batch_size: int, length: int) -> np.ndarray:
    """Draws standard normal rows, each divided by its maximum absolute value.

    Args:
      rng: Random number generator.
      batch_size: Number of rows, ``b``.
      length: Number of steps of a row, ``l``.

    Returns:
      float32, ``(b, l)``, within [-1, 1].

    Example:
      >>> x = draw_noise(np.random.default_rng(0), batch_size=2, length=5)
      >>> print(np.abs(x).max(axis=1))
      [1. 1.]
    """
    # Drawn and divided in float64, rounded once.
    x = rng.standard_normal((batch_size, length))
    return (x / np.abs(x).max(axis=1, keepdims=True)).astype(np.float32)


def with_positions(x: np.ndarray) -> np.ndarray:
    """Appends the position of each value, as a point on the unit circle.

    Args:
      x: Values, float32, ``(b, l)``.

    Returns:
      float32, ``(b, l, 3)``: at step i the value, ``cos(2 pi i / l)`` and
      ``sin(2 pi i / l)``.

    Example:
      >>> print(with_positions(np.ones((1, 4), np.float32))[0].round(3) + 0.0)
      [[ 1.  1.  0.]
       [ 1.  0.  1.]
       [ 1. -1.  0.]
       [ 1.  0. -1.]]
    """
    # Relative to the length of the row, as in the authors' code.
    angle = 2.0 * np.pi * np.arange(x.shape[1]) / x.shape[1]
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(x.dtype)
    return np.concatenate(
        [x[..., None], np.broadcast_to(circle, (len(x), *circle.shape))], axis=-1
    )


def regression_spec(*, length: int, d_output: int) -> base.TaskSpec:
    """Returns the spec of a regression on `with_positions` at every step."""
    return base.TaskSpec(
        length=length,
        inputs="vector",
        d_input=3,
        targets="regression",
        d_output=d_output,
        l_output=length,
    )
