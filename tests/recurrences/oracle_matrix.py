"""Reference implementations of recurrences whose states are matrices, in float64."""

import numpy as np


def split(x, *sizes):
    """Splits the last axis into heads: ``(n, d)`` of each part, or ``(n,)``."""
    parts, begin = [], 0
    for n, *d in sizes:
        end = begin + int(np.prod([n, *d]))
        parts.append(x[..., begin:end].reshape(*x.shape[:-1], n, *d))
        begin = end
    assert begin == x.shape[-1]
    return parts


def of_rows(params):
    """Parameters of heads in float64, with an axis for the rows of a batch."""
    return {name: np.float64(value)[..., None, :] for name, value in params.items()}


def ssd(recurrence, params, x, state=None):
    """Runs SSD step by step, ``(y, last)``."""
    p = of_rows(params)
    heads, g, n = p["log_rate"].shape[-1], recurrence.n_groups, recurrence.d_state
    values, B, C, raw = split(x, (heads, recurrence.d_head), (g, n), (g, n), (heads,))
    # One for each head, those of a group side by side.
    B, C = (np.repeat(part, heads // g, -2) for part in (B, C))
    low, high = recurrence.step_limits
    h, outputs = state, []
    for t in range(x.shape[-2]):
        dt = np.log1p(np.exp(raw[..., t, :] + p["step_bias"]))
        dt = np.clip(dt, low, high)[..., None, None]
        x_t = values[..., t, :, :]
        entering = B[..., t, :, :, None] * dt * x_t[..., None, :]
        decay = np.exp(-dt * np.exp(p["log_rate"])[..., None, None])
        h = entering if h is None else decay * h + entering
        y = np.einsum("...np,...n->...p", h, C[..., t, :, :])
        y = y + p["feedthrough"][..., None] * x_t
        outputs.append(y.reshape(*y.shape[:-2], -1))
    return np.stack(outputs, -2), h
