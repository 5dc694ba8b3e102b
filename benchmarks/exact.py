"""What results are compared with, and by how much they differ from it."""

import numpy as np

from ssm_jax.types import Array


def states(a: Array, b: Array, reset: Array | None = None) -> np.ndarray:
    """Returns the states of a linear recurrence, step by step in float64.

    Args:
      a: Decay, ``(n,)``, or of each step, ``(*b, l, n)``.
      b: Inputs, ``(*b, l, n)``; complex if ``a`` is.
      reset: True where the state before is zero, ``(*b, l)``. None means nowhere.
    """
    double = np.complex128 if np.iscomplexobj(b) else np.float64
    b = np.asarray(b, double)
    a = np.broadcast_to(np.asarray(a, double), b.shape)
    h, state = np.empty_like(b), np.zeros_like(b[..., 0, :])
    for t in range(b.shape[-2]):
        if reset is not None:
            state = np.where(reset[..., t, None], 0, state)
        h[..., t, :] = state = a[..., t, :] * state + b[..., t, :]
    return h


def relative_error(found: Array, exact: Array) -> float:
    """Returns the largest difference, relative to the largest exact value."""
    found, exact = np.asarray(found), np.asarray(exact)
    return float(np.max(np.abs(found - exact)) / np.max(np.abs(exact)))
