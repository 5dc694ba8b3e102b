"""What the state-space recurrences are held to: full matrices, and no JAX.

Continuous matrices are built and discretized whole, by the matrix exponential or by an
inverse, and stepped through time in double precision. As in `oracle`, parameters and
inputs may have further axes in front, the same in all of them.
"""

import numpy as np
from scipy.linalg import expm


def dss(recurrence, params, x, state=None):
    """Runs a DSS; its softmax kernel is divided by the sum of its taps."""
    p = _float64(params)
    lam = -np.exp(p["log_rate"]) + 1j * p["frequency"]
    lam, dt = lam[..., None, :], np.exp(p["log_dt"])[..., None]
    lam, dt = np.broadcast_arrays(lam, dt)
    A, B = discretized("zoh", diagonal(lam), np.ones_like(lam), dt[..., 0])
    if recurrence.length is not None:
        taps = np.exp((lam * dt)[..., None] * np.arange(recurrence.length))
        B = 1 / (lam * np.sum(taps, -1))
    return _outputs(A, B, p, "w", x, state)


def s4d(recurrence, params, x, state=None):
    """Runs an S4D with both halves of every conjugate pair."""
    p = _float64(params)
    p |= {
        name: np.concatenate([value, sign * value], -1)
        for name, value in p.items()
        for sign in (-1 if name.endswith("_im") or name == "frequency" else 1,)
        if name not in ("log_dt", "feedthrough")
    }
    A = diagonal(-np.exp(p["log_rate"]) + 1j * p["frequency"])
    B = _complex(p, "B")
    A, B = discretized(recurrence.discretization, A, B, np.exp(p["log_dt"]))
    if state is not None:
        state = np.concatenate([state, np.conj(state)], -1)
    y, last = _outputs(A, B, p, "C", x, state)
    return y, None if last is None else last[..., : last.shape[-1] // 2]


def diagonal(values):
    """Diagonal matrices ``(*s, n, n)`` of ``(*s, n)``."""
    return values[..., None] * np.eye(values.shape[-1])


def discretized(rule, A, B, dt):
    """Steps of length ``dt``, ``(*s,)``, of ``h' = A h + B x``, by full matrices."""
    n = A.shape[-1]
    A, B = A * dt[..., None, None], B * dt[..., None]
    if rule == "bilinear":
        inverse = np.linalg.inv(np.eye(n) - A / 2)
        return inverse @ (np.eye(n) + A / 2), (inverse @ B[..., None])[..., 0]
    both = np.zeros((*A.shape[:-2], n + 1, n + 1), complex)
    both[..., :n, :n], both[..., :n, n] = A, B
    both = expm(both)
    return both[..., :n, :n], both[..., :n, n]


def _outputs(A, B, p, name, x, state):
    """Both directions and the feed-through; the state is the one over ``B``."""
    h = None if state is None else state * B[..., None, :, :]
    y, h = _run(A, B, _complex(p, name), x, h)
    y += p["feedthrough"][..., None, None, :] * x
    if f"{name}_backward_re" not in p:
        return y, h / B[..., None, :, :]
    after, _ = _run(A, B, _complex(p, f"{name}_backward"), x[..., ::-1, :], None)
    y[..., :-1, :] += after[..., -2::-1, :]
    return y, None


def _run(A, B, C, x, h):
    """``h_t = A h_{t-1} + B x_t, y_t = Re C h_t`` of each channel."""
    A, B, C = A[..., None, :, :, :], B[..., None, :, :], C[..., None, :, :]
    y, h = np.zeros(x.shape), np.zeros_like(B) if h is None else h
    for t in range(x.shape[-2]):
        h = (A @ h[..., None])[..., 0] + B * x[..., t, :, None]
        y[..., t, :] = np.sum(C * h, -1).real
    return y, h


def _complex(p, name):
    return p[f"{name}_re"] + 1j * p[f"{name}_im"]


def _float64(params):
    return {name: np.asarray(value, np.float64) for name, value in params.items()}
