"""Reference implementations of nonlinear recurrences: plain loops in float64."""

import numpy as np

# From the sums to the feedback, from it and from the input to the statistic, and from
# the sums to the output.
SRU_NAMES = ("W_r", "b_r", "W_phi", "W_x", "b_phi", "W_o", "b_o")
FRU_NAMES = ("W_1", "b_1", "W_2", "U", "b_2", "Y", "b_y")


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _relu(x):
    return np.maximum(x, 0)


def _prepared(params, x, state, n):
    """Parameters in float64 with an axis for the rows, and a state."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    # Leading axes are those of perturbations, so that a bias may have several axes.
    p = {
        k: v if "kernel" in k or k[0] in "WUY" else v[..., None, :]
        for k, v in p.items()
    }
    if state is None:
        state = np.zeros((*x.shape[:-2], n))
    return p, np.asarray(state, np.float64)


def _loop(step, x, state):
    y = []
    for t in range(x.shape[-2]):
        state, out = step(state, x[..., t, :])
        y.append(out)
    return np.stack(y, -2), state


def statistics(unit, params, x, state=None):
    """Runs an SRU or an FRU step by step."""
    d, n = unit.d_statistic, unit.d_hidden
    fourier = hasattr(unit, "frequencies")
    p, state = _prepared(params, x, state, n + fourier)
    names = FRU_NAMES if fourier else SRU_NAMES
    feedback, feedback_bias, statistic, input, input_bias, output, output_bias = (
        p.get(name) for name in names
    )
    phi = {"relu": _relu, "tanh": np.tanh, "identity": lambda v: v}[unit.activation]

    def step(state, x):
        u = state[..., :n]
        s = x @ input + input_bias
        if unit.d_feedback:
            g = phi(u @ feedback + feedback_bias)
            s = s + g @ statistic
        s = phi(s)
        if fourier:
            f = np.asarray(unit.frequencies)
            t = np.maximum(np.round(state[..., n:]), 0)
            c = np.cos(2 * np.pi * (f * t / unit.horizon + p["theta"])) / unit.horizon
            held = unit.zero_frequency == "held" and len(f) > 1
            a = np.where((f == 0) & held, 0.0, 1.0)
        else:
            a = np.asarray(unit.scales)
            c = 1 - a
        sums = (c[..., :, None] * s[..., None, :]).reshape(*s.shape[:-1], n)
        u = np.repeat(a, d) * u + sums
        y = phi(u @ output + output_bias)
        return (np.concatenate([u, t + 1], -1) if fourier else u), y

    return _loop(step, x, state)


def gated(unit, params, x, state=None):
    """Runs an RNN, a GRU or an LSTM step by step."""
    p, state = _prepared(params, x, state, unit.d_hidden)
    kind = type(unit).__name__

    def step(state, x):
        gates = x @ p["input_kernel"] + p["bias"]
        if kind == "RNN":
            h = np.tanh(gates + state @ p["recurrent_kernel"])
            return h, h
        if kind == "GRU":
            r, z, c = np.split(gates, 3, -1)
            of_r, of_z, of_c = np.split(state @ p["recurrent_kernel"], 3, -1)
            r, z = _sigmoid(r + of_r), _sigmoid(z + of_z)
            c = np.tanh(c + r * (of_c + p["recurrent_bias"]))
            h = (1 - z) * c + z * state
            return h, h
        c, h = np.split(state, 2, -1)
        i, f, g, o = np.split(gates + h @ p["recurrent_kernel"], 4, -1)
        c = _sigmoid(f + unit.forget_bias) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        return np.concatenate([c, h], -1), h

    return _loop(step, x, state)
