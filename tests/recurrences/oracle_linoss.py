"""Reference implementation of LinOSS, in float64."""

import numpy as np


def linoss(recurrence, params, x, state=None, *, rectified=True):
    """Runs a LinOSS step by step by its complex 2x2 matrices, ``(y, last)``."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    A = p["squared_frequency"][..., None, :]
    A = np.maximum(A, 0) if rectified else A
    dt = 1 / (1 + np.exp(-p["logit_dt"]))[..., None, :]
    B, C = (p[f"{name}_re"] + 1j * p[f"{name}_im"] for name in "BC")
    n = A.shape[-1]
    if recurrence.discretization == "im":
        S = 1 / (1 + dt**2 * A)
        M = (1 - dt**2 * A * S, -dt * A * S), (dt * S, S)
        F = M[0][0] * dt, M[1][0] * dt
    else:
        M = (1, -dt * A), (dt, 1 - dt**2 * A)
        F = dt, dt**2
    z = y = np.zeros((*x.shape[:-2], n), complex)
    if state is not None:
        z, y = (state[..., i, :n] + 1j * state[..., i, n:] for i in (0, 1))
    outputs = []
    for t in range(x.shape[-2]):
        u = np.einsum("...nd,...bd->...bn", B, x[..., t, :])
        z, y = (m_z * z + m_y * y + f * u for (m_z, m_y), f in zip(M, F, strict=True))
        outputs.append(np.einsum("...dn,...bn->...bd", C, y).real)
    last = np.stack([np.concatenate([h.real, h.imag], -1) for h in (z, y)], -2)
    through = p["feedthrough"][..., None, None, :] * x
    return np.stack(outputs, -2) + through, last
