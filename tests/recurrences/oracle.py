"""Reference implementations: plain loops in float64, without JAX.

Parameters and inputs may have further axes in front, the same in all of them: many
problems at once, which makes the numerical gradient one call.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Run = Callable[..., tuple[np.ndarray, Any]]
"""``(params, x, state=None) -> (y, last)`` of inputs ``(*b, l, d)``."""


def dlr(recurrence, params, x, state=None):
    """Runs a DLR step by step; ``last`` is None if it is bidirectional."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    lam = np.exp(-(p.get("sqrt_decay", 0) ** 2) + 1j * p.get("phase", 0))
    turn = {"imag": -1j, "sum": 1 - 1j}.get(recurrence.readout, 1)
    w = turn * (p["w_re"] + 1j * p.get("w_im", 0))
    first, second = np.triu_indices(w.shape[-1])
    if recurrence.readout == "prod":
        lam, w = lam[..., first] * lam[..., second], _square(w)
    y, last = run(lam, w, x, state)
    y += p["feedthrough"][..., None, None, :] * x
    if not recurrence.bidirectional:
        return y, last.real if recurrence.eigenvalues == "real" else last
    w = turn * (p["w_backward_re"] + 1j * p.get("w_backward_im", 0))
    w = _square(w) if recurrence.readout == "prod" else w
    after, _ = run(lam, w, x[..., ::-1, :], None)
    y[..., :-1, :] += after[..., -2::-1, :]
    return y, None


def dlr_cut(recurrence, params, x, state=None):
    """Runs a DLR whose kernel ends, from powers of its eigenvalues."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    lam = np.exp(-(p.get("sqrt_decay", 0) ** 2) + 1j * p.get("phase", 0))
    steps = np.arange(recurrence.max_kernel_length)
    powers = lam[..., None, :] ** steps[:, None]

    def kernel(name):
        w = p[f"{name}_re"] + 1j * p.get(f"{name}_im", 0)
        k = np.einsum("...dn,...kn->...dk", w, powers)
        parts = {"real": k.real, "imag": k.imag, "sum": k.real + k.imag}
        return (parts | {"prod": k.real * k.imag})[recurrence.readout]

    after = kernel("w_backward") if recurrence.bidirectional else None
    return convolution(kernel("w"), after, p["feedthrough"], x, state)


def sgconv(recurrence, params, x, state=None):
    """Runs an SGConv tap by tap, with the interpolation written out."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}

    def kernel(suffix):
        taps = []
        for scale, w in enumerate(np.moveaxis(p[f"kernel{suffix}"], -3, 0)):
            factor = 2 ** max(0, scale - 1)
            n = w.shape[-1]
            for j in range(n * factor):
                place = min(max((j + 0.5) / factor - 0.5, 0), n - 1)
                low = int(place)
                high, part = min(low + 1, n - 1), place - low
                tap = (1 - part) * w[..., low] + part * w[..., high]
                taps.append(recurrence.decay**scale * tap)
        k = np.stack(taps[: recurrence.length], -1)
        return k / p[f"initial_norm{suffix}"][..., None]

    after = kernel("_backward") if recurrence.bidirectional else None
    return convolution(kernel(""), after, p["feedthrough"], x, state)


def convolution(forward, backward, feedthrough, x, state):
    """Sums taps over a window of the last inputs; ``last`` is that window."""
    taps = forward.shape[-1]
    if state is None:
        state = np.zeros((*x.shape[:-2], taps - 1, x.shape[-1]))
    past = np.concatenate([state, x], -2)
    y = x * feedthrough[..., None, None, :]
    for t in range(x.shape[-2]):
        for j in range(taps):
            y[..., t, :] += forward[..., None, :, j] * past[..., t + taps - 1 - j, :]
            if backward is not None and t + 1 + j < x.shape[-2]:
                y[..., t, :] += backward[..., None, :, j] * x[..., t + 1 + j, :]
    return y, past[..., x.shape[-2] :, :] if backward is None else None


def smoothing(recurrence, params, x, state=None):
    """Runs a complex exponential smoothing step by step, equations 7 to 14."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}

    def mode(suffix):
        def of(name):
            return p[f"{name}_re{suffix}"] + 1j * p[f"{name}_im{suffix}"]

        if recurrence.eigenvalues == "real":
            part = 1 / (1 + np.exp(-p[f"logit_smoothing{suffix}"]))
            mu = 1 - part / (1 + np.exp(-p[f"logit_damping{suffix}"]))
            return mu[..., None], (part * p[f"gain{suffix}"])[..., None]
        alpha = 1
        if recurrence.alpha:
            re, im = (p[f"log_alpha_{part}{suffix}"] for part in ("re", "im"))
            alpha = np.exp(re) + 1j * np.exp(im)
        log_mu = alpha * np.exp(of("loglog"))
        excess = np.maximum(np.abs(np.exp(log_mu)) / recurrence.max_modulus, 1)
        log_mu = (log_mu - np.log(excess)) * (0.06 if recurrence.small_change else 1)
        w = 1 - np.exp(log_mu)
        if recurrence.beta:
            w = w * np.exp(of("log_gain"))
        if recurrence.small_change:
            w = w * np.sqrt(1 - np.abs(np.exp(log_mu)) ** 2)
        return np.exp(log_mu)[..., None], w[..., None]

    y, last = run(*mode(""), x, state)
    if recurrence.shortcut != "none":
        omega = p["shortcut"][..., None, None, :]
        y += x * (
            omega if recurrence.shortcut == "linear" else 1 / (1 + np.exp(-omega))
        )
    if not recurrence.bidirectional:
        return y, last if recurrence.eigenvalues == "complex" else last.real
    after, _ = run(*mode("_backward"), x[..., ::-1, :], None)
    y[..., :-1, :] += after[..., -2::-1, :]
    return y, None


def run(lam, w, x, state=None):
    """``h_t = lam h_{t-1} + x_t, y_t = Re sum_n w_n h_tn`` of each channel."""
    shared = lam.ndim < w.ndim
    lam, w = (
        lam[..., None, None, :] if shared else lam[..., None, :, :],
        w[..., None, :, :],
    )
    y, h = np.zeros(x.shape), 0 if state is None else state
    for t in range(x.shape[-2]):
        h = lam * h + x[..., t, :, None]
        y[..., t, :] = np.sum(w * h, -1).real
    return y, h


def _square(w):
    """Weights of the products of modes, ``Re k Im k = Re(-i k**2 / 2)``."""
    first, second = np.triu_indices(w.shape[-1])
    return np.where(first == second, -0.5j, -1j) * w[..., first] * w[..., second]


def packed(run, params, x, state=None, *, reset=None, mask=None):
    """Runs each segment of each row separately, without padding, ``(y, last)``."""
    *_, rows, length, _ = x.shape
    y, last = None, []
    for row in range(rows):
        data = np.arange(length) if mask is None else np.flatnonzero(mask[row])
        starts = np.zeros(length, int) if reset is None else np.cumsum(reset[row])
        h = None if state is None else np.take(state, [row], x.ndim - 3)
        segment = 0
        for start in sorted(set(starts[data])):
            steps = data[starts[data] == start]
            h, segment = (h if start == segment else None), start
            inputs = x[..., row : row + 1, steps, :]
            out, h = run(params, inputs, h)
            y = np.zeros((*x.shape[:-1], out.shape[-1])) if y is None else y
            y[..., row : row + 1, steps, :] = out
        last.append(h)
    return y, None if last[0] is None else np.concatenate(last, x.ndim - 3)


def loss(out, weights):
    """``sum(c y) + Re sum(c_last last)`` of each problem."""
    (y, last), (c, c_last) = out, weights
    total = np.sum(c * y, (-3, -2, -1))
    if last is None:
        return total
    many = total.ndim + np.ndim(c_last)
    return total + np.sum(c_last * last, tuple(range(total.ndim, many))).real


def gradients(run, params, x, state, weights, step=1e-6):
    """Gradients by ``params``, ``x`` and ``state``, by finite differences.

    A complex gradient is JAX's: the derivative itself, not its conjugate.
    """
    leaves = {**params, "x": x} | ({} if state is None else {"state": state})
    units = [
        (name, index, unit)
        for name, leaf in leaves.items()
        for index in np.ndindex(leaf.shape)
        for unit in ((1, -1j) if np.iscomplexobj(leaf) else (1,))
    ]
    dtypes = {name: np.result_type(leaf, np.float64) for name, leaf in leaves.items()}
    many = {
        name: np.broadcast_to(leaf, (len(units), 2, *leaf.shape)).astype(dtypes[name])
        for name, leaf in leaves.items()
    }
    for i, (name, index, unit) in enumerate(units):
        direction = np.conj(unit) * step
        many[name][i, 0][index] += direction
        many[name][i, 1][index] -= direction
    of = {name: many[name] for name in params}
    values = loss(run(of, many["x"], many.get("state")), weights)
    slopes = (values[:, 0] - values[:, 1]) / (2 * step)
    grads = {name: np.zeros(leaf.shape, dtypes[name]) for name, leaf in leaves.items()}
    for slope, (name, index, unit) in zip(slopes, units, strict=True):
        grads[name][index] += slope * unit
    return {name: grads[name] for name in params}, grads["x"], grads.get("state")
