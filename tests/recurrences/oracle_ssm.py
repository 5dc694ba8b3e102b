"""What the state-space recurrences are held to: full matrices, and no JAX.

Continuous matrices are built and discretized whole, by the matrix exponential or by a
linear solve, and stepped through time in double precision. As in `oracle`, parameters
and inputs may have further axes in front.
"""

import numpy as np
from scipy.linalg import expm

from tests.recurrences.oracle import Run as Run


def dss(recurrence, params, x, state=None):
    """Runs a DSS; its softmax kernel is normalized tap by tap, as proposition 1 says."""
    p = _float64(params)
    lam = -np.exp(p["log_rate"]) + 1j * p["frequency"]
    lam, dt = lam[..., None, :], np.exp(p["log_dt"])[..., None]
    lam = np.broadcast_to(lam, np.broadcast_shapes(lam.shape, dt.shape))
    A, B = discretized("zoh", _diagonal(lam), np.ones_like(lam), dt[..., 0])
    if recurrence.length is not None:
        powers = np.exp(lam * dt * np.arange(recurrence.length)[:, None, None, None])
        powers = powers.reshape(-1, *lam.shape)
        B = 1 / (lam * np.sum(powers, 0))
    return _two_ways(A, B, _weights(p, "w"), p, x, state)


def s4d(recurrence, params, x, state=None):
    """Runs an S4D, both halves of every conjugate pair."""
    p = _float64(params)
    lam = -np.exp(p["log_rate"]) + 1j * p["frequency"]
    A = _diagonal(_pairs(lam))
    B = _pairs(p["B_re"] + 1j * p["B_im"])
    A, B = discretized(recurrence.discretization, A, B, np.exp(p["log_dt"]))
    C = {name: _pairs(value) for name, value in _weights(p, "C").items()}
    return _two_ways(A, B, C, p, x, state)


def discretized(rule, A, B, dt):
    """Steps of length ``dt`` ``(*s,)`` of ``h' = A h + B x``, ``(*s, n, n)``."""
    n = A.shape[-1]
    A, B = A * dt[..., None, None], B * dt[..., None]
    if rule == "bilinear":
        ahead, behind = np.eye(n) + A / 2, np.eye(n) - A / 2
        inverse = np.linalg.inv(behind)
        return inverse @ ahead, (inverse @ B[..., None])[..., 0]
    both = np.zeros((*A.shape[:-2], n + 1, n + 1), complex)
    both[..., :n, :n], both[..., :n, n] = A, B
    both = expm(both)
    return both[..., :n, :n], both[..., :n, n]


def _two_ways(A, B, C, p, x, state):
    """Runs a diagonal system of each channel; the state is the one over ``B``."""
    half = B[..., None, :, : B.shape[-1] // (2 if _paired(B) else 1)]
    raise NotImplementedError(half)
