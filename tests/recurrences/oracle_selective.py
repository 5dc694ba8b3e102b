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
        parts = chosen[..., : -2 * n], chosen[..., -2 * n : -n], chosen[..., -n:]
        if (epsilon := recurrence.rms_epsilon) is not None:
            means = [np.mean(part**2, -1, keepdims=True) for part in parts]
            parts = [
                part / np.sqrt(mean + epsilon)
                for part, mean in zip(parts, means, strict=True)
            ]
        step, B, C = parts[0], parts[1][..., None, :], parts[2][..., None, :]
        step = step @ p["step_kernel"] + p["step_bias"][..., None, :]
        dt = np.log1p(np.exp(step))[..., None]
        h = np.exp(dt * A) * h + dt * B * x_t[..., None]
        y[..., t, :] = np.sum(C * h, -1) + p["feedthrough"][..., None, :] * x_t
    return y, h


def minimal(recurrence, params, x, state=None):
    """Runs a minimal GRU or LSTM step by step, ``(y, last)``."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    h, outputs = state, []
    for t in range(x.shape[-2]):
        gates = x[..., t, :] @ p["kernel"] + p["bias"][..., None, :]
        *gates, u = np.split(gates, recurrence.n_gates + 1, -1)
        forget, update = (1 / (1 + np.exp(-gate)) for gate in (gates[0], gates[-1]))
        if len(gates) == 1:
            forget = 1 - update
        entering = u
        if recurrence.activation == "positive":
            entering = np.where(u >= 0, u + 0.5, 1 / (1 + np.exp(-u)))
        h = np.zeros_like(u) if h is None else h
        h = (forget * h + update * entering) / (forget + update)
        outputs.append(h)
    return np.stack(outputs, -2), h


def diagonal_rnn(recurrence, params, x, state=None):
    """Runs a diagonal RNN step by step, ``(y, last)``."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    n = recurrence.d_state
    h, outputs = state, []
    for t in range(x.shape[-2]):
        z = x[..., t, :] @ p["kernel"] + p["bias"][..., None, :]
        z, entering = z[..., :n], z[..., n:]
        if recurrence.eigenvalues == "phase":
            decay, entering = np.exp(1j * z), entering[..., :n] + 1j * entering[..., n:]
        elif recurrence.eigenvalues == "sigmoid":
            decay = 1 / (1 + np.exp(-z))
        else:
            decay = {"tanh": np.tanh, "cosine": np.cos}[recurrence.eigenvalues](z)
        h = entering if h is None else decay * h + entering
        outputs.append(h)
    y = np.stack(outputs, -2)
    if recurrence.eigenvalues == "phase":
        y = np.concatenate([y.real, y.imag], -1)
    return y, h


def rg_lru(recurrence, params, x, state=None):
    """Runs an RG-LRU step by step, ``(y, last)``."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    heads = recurrence.n_heads
    started = np.zeros((*x.shape[:-2], 1)) if state is None else state[..., -1:]
    h = np.zeros((*x.shape[:-2], x.shape[-1])) if state is None else state[..., :-1]
    outputs = []
    for t in range(x.shape[-2]):
        x_t, gates = x[..., t, :], {}
        blocks = x_t.reshape(*x_t.shape[:-1], heads, -1)
        for name in ("input", "decay"):
            kernel = p[f"{name}_gate_kernel"][..., None, :, :, :]
            gate = np.einsum("...hi,...hij->...hj", blocks, kernel)
            gate = gate.reshape(*gate.shape[:-2], -1)
            gate = gate + p[f"{name}_gate_bias"][..., None, :]
            gates[name] = 1 / (1 + np.exp(-gate))
        rate = np.log1p(np.exp(p["inverse_softplus_rate"]))[..., None, :]
        a = np.exp(-recurrence.exponent * gates["decay"] * rate)
        scale = np.where(started == 0, 1, np.sqrt(1 - a**2))
        h = a * h + scale * gates["input"] * x_t
        started = np.ones_like(started)
        outputs.append(h)
    started = np.broadcast_to(started, (*h.shape[:-1], 1))
    return np.stack(outputs, -2), np.concatenate([h, started], -1)


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
