"""Definition of the recurrence of matrices and of its gradient: loops in float64."""

from typing import Any

import numpy as np


def matrix_recurrence(arrays, reset, mask, weight, weight_last):
    """Returns outputs, the last state, and the gradient of a weighted sum of both.

    Args:
      arrays: The arrays by name; ``log_decay`` and ``beta`` may be None.
      reset: Resets, ``(b, l)``.
      mask: Valid steps, ``(b, l)``.
      weight: Weights of the outputs, ``(b, l, h, v)``.
      weight_last: Weights of the last state, ``(b, h, k, v)``.
    """
    rows = [
        _row({name: _row_of(x, i) for name, x in arrays.items()}, *flags)
        for i, flags in enumerate(zip(reset, mask, weight, weight_last, strict=True))
    ]
    o, last = (np.stack([row[i] for row in rows]) for i in range(2))
    gradient = {
        name: np.stack([row[2][name] for row in rows])
        for name, x in arrays.items()
        if x is not None
    }
    return o, last, gradient


def _row_of(x, i):
    return None if x is None else np.float64(x[i])


def _row(arrays, reset, mask, weight, weight_last):
    v, S = arrays["v"], arrays["state"]
    (length, heads, _), groups = v.shape, arrays["q"].shape[1]
    of_head = np.arange(heads) // (heads // groups)
    q, k = (arrays[name][:, of_head] for name in "qk")
    a, beta = arrays["log_decay"], arrays["beta"]
    by_entry = a is not None and a.shape == arrays["k"].shape
    a = np.zeros((length, heads, 1)) if a is None else a
    a = np.exp(a[:, of_head] if by_entry else a.reshape(length, heads, 1))[..., None]
    steps: list[Any] = []
    o = np.empty_like(v)
    for t in range(length):
        S = np.zeros_like(S) if reset[t] else S
        decayed = a[t] * S if mask[t] else S
        error = v[t]
        if beta is not None:
            error = v[t] - np.einsum("hk,hkv->hv", k[t], decayed)
        u = error if beta is None else beta[t][:, None] * error
        S = decayed + mask[t] * np.einsum("hk,hv->hkv", k[t], u)
        o[t] = np.einsum("hk,hkv->hv", q[t], S)
        steps.append((decayed, error, u, S))
    # Backwards, with the gradient in the state after each step.
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    da, dbeta = np.zeros((length, *S.shape[:-1])), np.zeros((length, heads))
    dS = np.float64(weight_last)
    for t in reversed(range(length)):
        decayed, error, u, after = steps[t]
        dS = dS + np.einsum("hk,hv->hkv", q[t], weight[t])
        dq[t] = np.einsum("hkv,hv->hk", after, weight[t])
        if mask[t]:
            du = np.einsum("hk,hkv->hv", k[t], dS)
            dk[t] = np.einsum("hkv,hv->hk", dS, u)
            dv[t] = du
            if beta is not None:
                dbeta[t] = np.sum(du * error, -1)
                dv[t] = beta[t][:, None] * du
                dk[t] -= np.einsum("hkv,hv->hk", decayed, dv[t])
                dS = dS - np.einsum("hk,hv->hkv", k[t], dv[t])
            da[t] = np.sum(dS * decayed, -1)
            dS = a[t] * dS
        dS = np.zeros_like(dS) if reset[t] else dS

    def sum_over_shared(x):
        return x.reshape(length, groups, heads // groups, -1).sum(2)

    da = sum_over_shared(da) if by_entry else da.sum(-1)
    gradient = {
        "q": sum_over_shared(dq),
        "k": sum_over_shared(dk),
        "v": dv,
        "state": dS,
    }
    return o, S, gradient | {"log_decay": da, "beta": dbeta}
