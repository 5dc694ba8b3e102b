"""Layers written plainly from their equations, for `benchmarks.peers`.

Each is a function ``(params, x) -> y`` of the parameters of our recurrence, evaluated
as the code bases of its authors do: decays broadcast over the length and
`jax.lax.associative_scan` (S5, LRU), decays and inputs of all steps in memory
(selective SSM), `jax.lax.scan` over steps (gated scan, GRU), a kernel from an array of
powers and an FFT of twice the length (DLR, S4D, CES). ``xp`` is `jax.numpy` or, where
it is installed, torch, whose functions have the same names.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.recurrences.families.base import Params
from ssm_jax.types import Activations, Array, Outputs


def s5(params: Params, x: Activations) -> Outputs:
    """S5 by an associative scan over pairs of decays and inputs, zero-order hold."""
    lam = jnp.minimum(params["lam_re"], -1e-4) + 1j * params["frequency"]
    a = jnp.exp(lam * jnp.exp(params["log_dt"]))
    B = ((a - 1) / lam)[:, None] * (params["B_re"] + 1j * params["B_im"])
    C = 2 * (params["C_re"] + 1j * params["C_im"])
    return _diagonal(a, B, C, params["feedthrough"], x)


def lru(params: Params, x: Activations) -> Outputs:
    """LRU by an associative scan over pairs of decays and inputs."""
    a = jnp.exp(-jnp.exp(params["log_rate"]) + 1j * jnp.exp(params["log_phase"]))
    gain = jnp.exp(params["log_gain"])[:, None]
    B = gain * (params["B_re"] + 1j * params["B_im"])
    C = params["C_re"] + 1j * params["C_im"]
    return _diagonal(a, B, C, params["feedthrough"], x)


def _diagonal(a, B, C, D, x):
    """``h' = a h + B x``, ``y = Re(C h) + D x``, one sequence at a time."""

    def evaluate(x):
        decays = a * jnp.ones((len(x), 1))
        inputs = jax.vmap(lambda u: B @ u)(x)
        _, h = jax.lax.associative_scan(_combine, (decays, inputs))
        return jax.vmap(lambda h: (C @ h).real)(h) + D * x

    return jax.vmap(evaluate)(x)


def _combine(left, right):
    return right[0] * left[0], right[0] * left[1] + right[1]


def selective_scan(params: Params, x: Activations) -> Outputs:
    """Selective SSM: decays and inputs ``(b, l, d, n)`` in memory, then a scan."""
    return _selective(scan, params, x)


def selective_steps(params: Params, x: Activations) -> Outputs:
    """Selective SSM: one scan that forms decays and inputs, and stores every state."""
    rates = jnp.exp(params["log_rate"])
    dt, B, C = _selective_inputs(params, x)
    zero = jnp.zeros((len(x), *rates.shape))
    return selective_recurrence(x, dt, B, C, rates, params["feedthrough"], zero)[0]


def selective_recurrence(
    x: Array,
    dt: Array,
    B: Array,
    C: Array,
    rates: Array,
    feedthrough: Array,
    state: Array,
) -> tuple[Array, Array]:
    """The recurrence of Mamba by one scan that forms decays and inputs.

    Args:
      x: Inputs, ``(b, l, d)``.
      dt: Sizes of the steps, ``(b, l, d)``.
      B: Input projections, ``(b, l, n)``.
      C: Readouts, ``(b, l, n)``.
      rates: Decay rates, ``(d, n)``.
      feedthrough: Factors of the inputs in the outputs, ``(d,)``.
      state: Initial states, ``(b, d, n)``.

    Returns:
      The outputs, ``(b, l, d)``, and the final states.
    """

    def step(h, inputs):
        x, dt, B, C = inputs
        h = jnp.exp(-dt[..., None] * rates) * h + (dt * x)[..., None] * B[:, None]
        return h, jnp.sum(h * C[:, None], -1) + feedthrough * x

    inputs = jax.tree.map(lambda v: jnp.moveaxis(v, 1, 0), (x, dt, B, C))
    last, y = jax.lax.scan(step, state, inputs)
    return jnp.moveaxis(y, 0, 1), last


def selective_associative(params: Params, x: Activations) -> Outputs:
    """Selective SSM: decays and inputs in memory, then an associative scan."""

    def states(decays, inputs):
        return jax.lax.associative_scan(_combine, (decays, inputs), axis=1)[1]

    return _selective(states, params, x)


def scan(decays: Array, inputs: Array) -> Array:
    """The states of ``h' = a h + b`` over the second axis, step by step."""

    def step(h, step_inputs):
        h = step_inputs[0] * h + step_inputs[1]
        return h, h

    steps = jnp.moveaxis(decays, 1, 0), jnp.moveaxis(inputs, 1, 0)
    return jnp.moveaxis(jax.lax.scan(step, jnp.zeros_like(steps[1][0]), steps)[1], 0, 1)


def _selective_inputs(params, x):
    """Steps, input projections and readouts of a selective SSM for its input."""
    n = params["log_rate"].shape[-1]
    projected = x @ params["input_kernel"]
    rank = projected.shape[-1] - 2 * n
    r, B, C = jnp.split(projected, [rank, rank + n], -1)
    return jax.nn.softplus(r @ params["step_kernel"] + params["step_bias"]), B, C


def _selective(states, params, x):
    dt, B, C = _selective_inputs(params, x)
    decays = jnp.exp(-dt[..., None] * jnp.exp(params["log_rate"]))
    inputs = (dt * x)[..., None] * B[..., None, :]
    y = jnp.einsum("bldn,bln->bld", states(decays, inputs), C)
    return y + params["feedthrough"] * x


def gates(params: Params, x: Activations) -> tuple[Array, Array]:
    """Returns decays and inputs of a real gated linear recurrence, ``(b, l, d)``.

    As in the RG-LRU: ``a = exp(-8 softplus(p) sigmoid(W_r x))`` and the input
    ``sqrt(1 - a**2) sigmoid(W_i x) x``.
    """
    rate = 8 * jax.nn.softplus(params["rate"])
    log_a = -rate * jax.nn.sigmoid(x @ params["W_r"])
    gain = jnp.sqrt(-jnp.expm1(2 * log_a))
    return jnp.exp(log_a), gain * jax.nn.sigmoid(x @ params["W_i"]) * x


def gated_scan(params: Params, x: Activations) -> Outputs:
    """The recurrence of `gates` by a `jax.lax.scan` over steps."""
    return scan(*gates(params, x))


def gru(params: Params, x: Activations) -> Outputs:
    """GRU by a `jax.lax.scan` of a cell with a product for each gate and operand."""
    W, U, b = (
        jnp.split(params[name], 3, -1)
        for name in ("input_kernel", "recurrent_kernel", "bias")
    )

    def cell(h, x):
        r = jax.nn.sigmoid(x @ W[0] + b[0] + h @ U[0])
        z = jax.nn.sigmoid(x @ W[1] + b[1] + h @ U[1])
        c = jnp.tanh(x @ W[2] + b[2] + r * (h @ U[2] + params["recurrent_bias"]))
        h = (1 - z) * c + z * h
        return h, h

    zero = jnp.zeros((len(x), len(U[0])), x.dtype)
    return jnp.moveaxis(jax.lax.scan(cell, zero, jnp.moveaxis(x, 1, 0))[1], 0, 1)


def dlr(params: Params, x: Any, xp: Any = jnp) -> Any:
    """DLR by the powers of all eigenvalues and an FFT; one direction, ``Re``."""
    log_lam = -(params["sqrt_decay"] ** 2) + 1j * params["phase"]
    powers = xp.exp(log_lam[:, None] * xp.arange(x.shape[1]))
    w = params["w_re"] + 1j * params["w_im"]
    kernel = xp.einsum("dn,nl->dl", w, powers).real
    return _convolve(kernel, params["feedthrough"], x, xp)


def s4d(params: Params, x: Any, xp: Any = jnp) -> Any:
    """S4D by the powers of the eigenvalues of each channel and an FFT."""
    lam = -xp.exp(params["log_rate"]) + 1j * params["frequency"]
    a = lam * xp.exp(params["log_dt"])[:, None]
    B, C = (params[f"{name}_re"] + 1j * params[f"{name}_im"] for name in "BC")
    w = B * C * (xp.exp(a) - 1) / lam
    powers = xp.exp(a[..., None] * xp.arange(x.shape[1]))
    kernel = 2 * xp.einsum("dn,dnl->dl", w, powers).real
    return _convolve(kernel, params["feedthrough"], x, xp)


def ces(params: Params, x: Any, xp: Any = jnp) -> Any:
    """CES by the powers of one factor per channel and an FFT."""
    lam, beta = (
        params[f"{name}_re"] + 1j * params[f"{name}_im"]
        for name in ("loglog", "log_gain")
    )
    alpha = xp.exp(params["log_alpha_re"]) + 1j * xp.exp(params["log_alpha_im"])
    log_mu = xp.exp(lam) * alpha
    # The modulus of mu is at most 0.9999.
    log_mu = xp.clip(log_mu.real, None, math.log(0.9999)) + 1j * log_mu.imag
    w = xp.exp(beta) * (1 - xp.exp(log_mu))
    powers = xp.exp(log_mu[:, None] * xp.arange(x.shape[1]))
    kernel = (w[:, None] * powers).real
    return _convolve(kernel, params["shortcut"], x, xp)


def _convolve(kernel, feedthrough, x, xp):
    """Causal convolution ``(b, l, d)`` with ``(d, l)``, padded to twice the length."""
    length, x = x.shape[1], x.swapaxes(-1, -2)
    product = xp.fft.rfft(x, n=2 * length) * xp.fft.rfft(kernel, n=2 * length)
    y = xp.fft.irfft(product, n=2 * length)[..., :length]
    return (y + feedthrough[:, None] * x).swapaxes(-1, -2)
