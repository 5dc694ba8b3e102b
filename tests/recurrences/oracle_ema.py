"""Reference implementations of the moving averages, as in the papers."""

import numpy as np


def exponential_smoothing(recurrence, params, x, state=None):
    """``y_t = lam x_t + (1 - lam) y_{t-1}``; the state is ``y / lam``."""

    def run(suffix, x, state):
        lam = _sigmoid(params[f"logit_smoothing{suffix}"])[..., None, :]
        outputs, y = np.zeros(x.shape), 0 if state is None else lam * state[..., 0]
        for t in range(x.shape[-2]):
            y = outputs[..., t, :] = lam * x[..., t, :] + (1 - lam) * y
        return outputs, (y / lam)[..., None]

    y, last = run("", x, state)
    if not recurrence.bidirectional:
        return y, last
    after, _ = run("_backward", x[..., ::-1, :], None)
    y[..., :-1, :] += after[..., -2::-1, :]
    return y, None


def damped_ema(recurrence, params, x, state=None):
    """``h_t = alpha beta x_t + (1 - alpha delta) h_{t-1}``, over ``alpha beta``."""

    def run(suffix, x, state):
        alpha, delta = (
            _sigmoid(params[f"logit_{name}{suffix}"])[..., None, :, :]
            for name in ("smoothing", "damping")
        )
        beta, eta = (
            np.float64(params[f"{name}{suffix}"])[..., None, :, :]
            for name in ("expansion", "projection")
        )
        eta = eta / np.sqrt(recurrence.d_state)
        y, from_before = np.zeros(x.shape), np.zeros(x.shape)
        h = 0 if state is None else state * alpha * beta
        for t in range(x.shape[-2]):
            damped = (1 - alpha * delta) * h
            h = alpha * beta * x[..., t, :, None] + damped
            y[..., t, :] = np.sum(eta * h, -1)
            from_before[..., t, :] = np.sum(eta * damped, -1)
        return y, from_before, h / (alpha * beta)

    y, _, last = run("", x, state)
    y += np.float64(params["feedthrough"])[..., None, None, :] * x
    if not recurrence.bidirectional:
        return y, last
    # The current step is included in the forward direction only.
    _, after, _ = run("_backward", x[..., ::-1, :], None)
    return y + after[..., ::-1, :], None


def _sigmoid(values):
    return 1 / (1 + np.exp(-np.float64(values)))
