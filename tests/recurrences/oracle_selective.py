"""Reference implementations of input-dependent recurrences, in float64."""

import numpy as np


def selective(recurrence, params, x, state=None):
    """Runs a selective recurrence step by step, ``(y, last)``."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    n = recurrence.d_state
    A = -np.exp(p["log_rate"])[..., None, :, :]
    h = np.zeros((*x.shape[:-2], *A.shape[-2:])) if state is None else state
    y = np.zeros(x.shape)
    for t in range(x.shape[-2]):
        x_t = x[..., t, :]
        chosen = x_t @ p["input_kernel"]
        B, C = chosen[..., None, -2 * n : -n], chosen[..., None, -n:]
        step = chosen[..., : -2 * n] @ p["step_kernel"] + p["step_bias"][..., None, :]
        dt = np.log1p(np.exp(step))[..., None]
        h = np.exp(dt * A) * h + dt * B * x_t[..., None]
        y[..., t, :] = np.sum(C * h, -1) + p["feedthrough"][..., None, :] * x_t
    return y, h


def gated_attention(recurrence, params, x, state=None):
    """Runs gated linear attention step by step, ``(y, last)``."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    heads, batch = recurrence.n_heads, x.shape[:-2]

    def of_heads(values):
        return values.reshape(*batch, heads, -1)

    y, h = np.zeros(x.shape), state
    for t in range(x.shape[-2]):
        x_t = x[..., t, :]
        q, k, v = (
            of_heads(x_t @ p[f"{name}_kernel"]) for name in ("query", "key", "value")
        )
        gate = x_t @ p["decay_in"] @ p["decay_out"] + p["decay_bias"][..., None, :]
        decay = of_heads((1 + np.exp(-gate)) ** (-1 / recurrence.temperature))
        entering = k[..., None] * v[..., None, :]
        h = entering if h is None else decay[..., None] * h + entering
        y[..., t, :] = np.einsum("...hkv,...hk->...hv", h, q).reshape(x_t.shape)
    return y / np.sqrt(h.shape[-2]), h
