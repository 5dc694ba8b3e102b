"""Reference implementations of state space models: full matrices, without JAX.

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
    A, B = discretized("zoh", diagonal(lam * dt), dt)
    if recurrence.length is not None:
        taps = np.exp((lam * dt)[..., None] * np.arange(recurrence.length))
        # The squared divisor has an epsilon, as in the authors' code.
        divisor = lam * np.sum(taps, -1) * np.expm1(lam * dt)
        B = np.expm1(lam * dt) * divisor.conj() / (np.abs(divisor) ** 2 + 1e-7)
    C = [_complex(p, name) for name in _weights(p, "w")]
    return _outputs(A, B, C, p, x, state)


def s4d(recurrence, params, x, state=None):
    """Runs an S4D with both halves of every conjugate pair."""
    p = _float64(params)
    dt = np.exp(p["log_dt"])[..., None]
    lam = _pair(-np.exp(p["log_rate"]) + 1j * p["frequency"])
    A, B = diagonal(lam * dt), _pair(_complex(p, "B")) * dt
    A, B = discretized(recurrence.discretization, A, B)
    C = [_pair(_complex(p, name)) for name in _weights(p, "C")]
    y, last = _outputs(A, B, C, p, x, None if state is None else _pair(state))
    return y, None if last is None else last[..., : last.shape[-1] // 2]


def s4(recurrence, params, x, state=None):
    """Runs an S4 with both halves of every conjugate pair."""
    p = _float64(params)
    dt = np.exp(p["log_dt"])[..., None]
    lam = _pair(-np.exp(p["log_rate"]) + 1j * p["frequency"])
    low_rank, B = _pair(_complex(p, "p")), _pair(_complex(p, "B"))
    A = diagonal(lam) - low_rank[..., None] * np.conj(low_rank[..., None, :])
    A, B = discretized("bilinear", A * dt[..., None], B * dt)
    C = [_pair(_complex(p, name)) for name in _weights(p, "C")]
    n = recurrence.d_state // 2
    if state is not None:
        state = _pair(state[..., :n] + 1j * state[..., n:])
    y, last = _outputs(A, B, C, p, x, state, over_b=False)
    if last is None:
        return y, None
    return y, np.concatenate([last[..., :n].real, last[..., :n].imag], -1)


def s5(recurrence, params, x, state=None):
    """Runs an S5 with all of its states and full matrices."""
    p = _float64(params)
    if recurrence.real_part == "exp":
        lam = -np.exp(p["log_rate"]) + 1j * p["frequency"]
    else:
        lam = np.minimum(p["lam_re"], -1e-4) + 1j * p["frequency"]
    dt, B = np.exp(p["log_dt"]), np.swapaxes(_complex(p, "B"), -1, -2)
    C = [_complex(p, name) for name in _weights(p, "C")]
    if recurrence.conjugate_pairs:
        state = None if state is None else _pair(state)
        lam, dt, B, *C = (_pair(value) for value in (lam, dt, B, *C))
    A, B = discretized(
        recurrence.discretization,
        diagonal(lam * dt),
        np.swapaxes(B, -1, -2) * dt[..., None],
    )

    y, last = _run_shared(A, B, C[0], x, state)
    y += p["feedthrough"][..., None, None, :] * x
    if recurrence.bidirectional:
        behind, _ = _run_shared(A, B, C[1], x[..., ::-1, :], None)
        return y + behind[..., ::-1, :], None
    return y, last[..., : p["log_dt"].shape[-1]]


def lru(recurrence, params, x, state=None):
    """Runs an LRU with full matrices."""
    p = _float64(params)
    A = diagonal(np.exp(-np.exp(p["log_rate"]) + 1j * np.exp(p["log_phase"])))
    B = np.exp(p["log_gain"])[..., None] * _complex(p, "B")
    y, last = _run_shared(A, B, _complex(p, "C"), x, state)
    return y + p["feedthrough"][..., None, None, :] * x, last


def diagonal(values):
    """Diagonal matrices ``(*s, n, n)`` of ``(*s, n)``."""
    return values[..., None] * np.eye(values.shape[-1])


def discretized(rule, A, B):
    """Steps of ``h' = A h + B x``, ``A`` ``(*s, n, n)``, of length one."""
    vector = B.ndim < A.ndim
    B = B[..., None] if vector else B
    n, width = B.shape[-2:]
    if rule == "bilinear":
        inverse = np.linalg.inv(np.eye(n) - A / 2)
        A, B = inverse @ (np.eye(n) + A / 2), inverse @ B
    else:
        both = np.zeros((*A.shape[:-2], n + width, n + width), complex)
        both[..., :n, :n], both[..., :n, n:] = A, B
        both = expm(both)
        A, B = both[..., :n, :n], both[..., :n, n:]
    return A, B[..., 0] if vector else B


def _outputs(A, B, C, p, x, state, *, over_b=True):
    """Both directions and the feed-through; the state is the one over ``B``, or not."""
    scale = B[..., None, :, :] if over_b else 1
    y, h = _run(A, B, C[0], x, None if state is None else state * scale)
    y += p["feedthrough"][..., None, None, :] * x
    if len(C) == 1:
        return y, h / scale
    after, _ = _run(A, B, C[1], x[..., ::-1, :], None)
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


def _run_shared(A, B, C, x, h):
    """``h_t = A h_{t-1} + B x_t, y_t = Re C h_t`` of all channels together."""

    def times(matrix, vectors):
        return (matrix[..., None, :, :] @ vectors[..., None])[..., 0]

    y, h = np.zeros(x.shape), np.zeros(A.shape[-1]) if h is None else h
    for t in range(x.shape[-2]):
        h = times(A, h) + times(B, x[..., t, :])
        y[..., t, :] = times(C, h).real
    return y, h


def _weights(p, name):
    return [name, f"{name}_backward"] if f"{name}_backward_re" in p else [name]


def _pair(values):
    """Both halves of conjugate pairs."""
    return np.concatenate([values, np.conj(values)], -1)


def _complex(p, name):
    return p[f"{name}_re"] + 1j * p[f"{name}_im"]


def _float64(params):
    return {name: np.asarray(value, np.float64) for name, value in params.items()}
