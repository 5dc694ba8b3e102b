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


def gated_delta_rule(recurrence, params, x, state=None):
    """Runs the gated delta rule, or the one without decay, ``(y, last)``."""
    heads, d_k, d_v = recurrence.n_heads, recurrence.d_key, recurrence.d_value
    g = recurrence.n_key_heads or heads
    sizes = (g, d_k), (g, d_k), (heads, d_v), *[(heads,)] * (1 + recurrence.decay)
    q, k, v, *a, b = split(x, *sizes)
    q, k = (y / np.sqrt(np.sum(y**2, -1, keepdims=True) + 1e-6) for y in (q, k))
    q, k = (np.repeat(y, heads // g, -2) for y in (q, k))
    beta = (1 + recurrence.negative_eigenvalues) / (1 + np.exp(-b))
    h, outputs = np.zeros((1, heads, d_k, d_v)) if state is None else state, []
    for t in range(x.shape[-2]):
        if recurrence.decay:
            p = of_rows(params)
            dt = np.log1p(np.exp(a[0][..., t, :] + p["step_bias"]))
            h = np.exp(-dt * np.exp(p["log_rate"]))[..., None, None] * h
        k_t = k[..., t, :, :]
        error = v[..., t, :, :] - np.einsum("...kv,...k->...v", h, k_t)
        h = h + (beta[..., t, :, None] * k_t)[..., None] * error[..., None, :]
        y = np.einsum("...kv,...k->...v", h, q[..., t, :, :]) / np.sqrt(d_k)
        outputs.append(y.reshape(*y.shape[:-2], -1))
    return np.stack(outputs, -2), h


def retention(recurrence, params, x, state=None):
    """Runs retention step by step, ``(y, last)``; pairs of a key are complex."""
    # With an axis for the rows of a batch.
    p = {name: np.float64(v)[..., None, :, :] for name, v in params.items()}
    heads = recurrence.n_heads
    q, k, v = (
        (x @ p[f"{name}_kernel"]).reshape(*x.shape[:-1], heads, -1)
        for name in ("query", "key", "value")
    )
    d_key = k.shape[-1]
    q, k = (y[..., ::2] + 1j * y[..., 1::2] for y in (q, k))
    angles = 10_000.0 ** (-np.arange(0, d_key, 2) / d_key)
    decay = (1 - 2.0 ** (-5 - np.arange(heads)))[:, None] * np.exp(-1j * angles)
    h, outputs = 0 if state is None else state, []
    for t in range(x.shape[-2]):
        entering = k[..., t, :, :, None] * v[..., t, :, None, :]
        h = decay[..., None] * h + entering
        y = np.einsum("...kv,...k->...v", h, np.conj(q[..., t, :, :])).real
        outputs.append(y.reshape(*y.shape[:-2], -1) / np.sqrt(d_key))
    return np.stack(outputs, -2), h


def mlstm(recurrence, params, x, state=None):
    """Runs an mLSTM step by step, ``(y, last)``."""
    p = of_rows(params)
    heads, d_value = p["input_bias"].shape[-1], recurrence.d_head
    d_key = recurrence.d_key or d_value
    parts = (heads, d_key), (heads, d_key), (heads, d_value), (heads,), (heads,)
    qkv_if = split(x, *parts)
    last = np.zeros((*x.shape[:-2], heads, d_key + 1, d_value + 1))
    start = last if state is None else state
    C, n, m = start[..., :-1, :-1], start[..., :-1, -1], start[..., -1, -1]
    outputs = []
    for t in range(x.shape[-2]):
        q, k, v = (part[..., t, :, :] for part in qkv_if[:3])
        i, f = (part[..., t, :] for part in qkv_if[3:])
        i = i + p["input_bias"]
        g = -np.log1p(np.exp(-f - p["forget_bias"]))
        before, m = m, np.maximum(np.maximum(g + m, i), 0)
        forget, k = np.exp(g + before - m), np.exp(i - m)[..., None] * k
        C = forget[..., None, None] * C + k[..., None] * v[..., None, :] / d_key**0.5
        n = forget[..., None] * n + k / d_key**0.5
        divisor = np.maximum(np.abs(np.sum(n * q, -1)), np.exp(-m))
        h = np.einsum("...kv,...k->...v", C, q) / divisor[..., None]
        outputs.append(h.reshape(*h.shape[:-2], -1))
    last[..., :-1, :-1], last[..., :-1, -1], last[..., -1, -1] = C, n, m
    return np.stack(outputs, -2), last


def trapezoidal_ssd(recurrence, params, x, state=None):
    """Runs the SISO recurrence of Mamba-3 by complex states, ``(y, last)``."""
    p = {name: np.float64(value) for name, value in params.items()}
    heads, n = p["key_bias"].shape[-2:]
    g, d, m = recurrence.n_groups, recurrence.d_head, recurrence.n_angles or n // 4
    parts = split(x, (heads, d), (g, n), (g, n), *[(heads,)] * 3, (m,))

    def turned(entries, bias, theta):
        entries = np.repeat(entries, heads // g, -2) + p[bias][..., None, :, :]
        pairs = entries[..., : 2 * m].reshape(*entries.shape[:-1], m, 2)
        complex_pairs = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * theta)
        pairs = np.stack([complex_pairs.real, complex_pairs.imag], -1)
        pairs = pairs.reshape(*entries.shape[:-1], 2 * m)
        return np.concatenate([pairs, entries[..., 2 * m :]], -1)

    if state is None:
        state = np.zeros((*x.shape[:-2], heads, n * d + n + d + m))
    S, k, v, theta = np.split(state, [n * d, n * d + n, n * d + n + d], -1)
    S, outputs = S.reshape(*S.shape[:-1], n, d), []
    for t in range(x.shape[-2]):
        v_t, B, C = (part[..., t, :, :] for part in parts[:3])
        raw, rate, mixing, angle = (part[..., t, :] for part in parts[3:])
        dt = np.log1p(np.exp(raw + p["step_bias"][..., None, :]))[..., None]
        rate = np.maximum(np.log1p(np.exp(rate)), recurrence.rate_min)[..., None]
        decay, lam = np.exp(-dt * rate), 1 / (1 + np.exp(-mixing))[..., None]
        theta = theta + np.pi * np.tanh(angle)[..., None, :] * dt
        k_t, q_t = turned(B, "key_bias", theta), turned(C, "query_bias", theta)
        before = ((1 - lam) * dt * decay * k)[..., None] * v[..., None, :]
        now = (lam * dt * k_t)[..., None] * v_t[..., None, :]
        S, k, v = decay[..., None] * S + before + now, k_t, v_t
        y = np.einsum("...kv,...k->...v", S, q_t)
        y = y + p["feedthrough"][..., None, :, None] * v_t
        outputs.append(y.reshape(*y.shape[:-2], -1))
    theta = (theta + np.pi) % (2 * np.pi) - np.pi
    last = [S.reshape(*S.shape[:-2], -1), k, v, theta]
    shape = S.shape[:-2]
    last = [np.broadcast_to(part, (*shape, part.shape[-1])) for part in last]
    return np.stack(outputs, -2), np.concatenate(last, -1)
