"""Attention to the last steps against a step-by-step definition in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from ssm_jax.layers import RotaryAttention, SlidingAttention
from tests.bad_inputs import refuses
from tests.tiers import tiered

D, HEADS, LENGTH = 8, 4, 13


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rotated(x, position, n):
    """The first ``n`` channels in pairs, complex numbers times one of modulus 1."""
    z = x[:n:2] + 1j * x[1:n:2]
    z = z * np.exp(1j * position * 10_000.0 ** (-2 * np.arange(n // 2) / n))
    return np.concatenate([np.stack([z.real, z.imag], -1).ravel(), x[n:]])


def definition(layer, variables, x, reset, mask):
    """Evaluates one row ``(l, d)`` step by step."""
    n, n_kv = layer.n_heads, layer.n_kv_heads or layer.n_heads
    d_head = layer.d_head or x.shape[-1] // n
    kernels = {name: p["dense"] for name, p in variables["params"].items()}
    heads = np.float64(x) @ np.float64(kernels["in"]["kernel"])
    q, k, v = np.split(heads.reshape(len(x), -1, d_head), (n, n + n_kv), 1)
    segment, y = np.cumsum(reset), np.zeros(x.shape)
    position = np.cumsum(mask)
    for i in np.flatnonzero(mask):
        seen = [
            j
            for j in np.flatnonzero(mask[: i + 1])
            if segment[j] == segment[i] and position[i] - position[j] < layer.window
        ]
        of_heads = []
        for head in range(n):
            own, width = head // (n // n_kv), layer.d_rotary or d_head
            query = rotated(q[i, head], position[i], width)
            keys = np.array([rotated(k[j, own], position[j], width) for j in seen])
            weights = special.softmax(keys @ query / np.sqrt(d_head))
            of_heads.append(weights @ v[seen, own])
        y[i] = np.concatenate(of_heads) @ np.float64(kernels["out"]["kernel"])
        y[i] += kernels["out"]["bias"]
    return y


@functools.cache
def initialized(layer):
    return jax.jit(layer.init)(jax.random.key(0), jnp.zeros((1, 2, D)))


LAYERS = {
    "multi_query": SlidingAttention(HEADS, 4, n_kv_heads=1, d_head=4, d_rotary=2),
    "grouped": SlidingAttention(HEADS, 3, n_kv_heads=2),
    "window_of_one_step": SlidingAttention(HEADS, 1),
    "window_of_two_steps": SlidingAttention(HEADS, 2),
    "window_longer_than_the_sequence": SlidingAttention(HEADS, 20, n_kv_heads=1),
}


@pytest.mark.parametrize("flagged", tiered([True, False]))
@pytest.mark.parametrize("layer", tiered(LAYERS, ("window_of_two_steps",)))
def test_layer_computes_its_definition(layer, flagged):
    """Also in pieces, of which the state carries the steps within reach."""
    x, rng = drawn(2, LENGTH, D), np.random.default_rng(1)
    reset = rng.random((2, LENGTH)) < (0.2 if flagged else 0)
    mask = rng.random((2, LENGTH)) < (0.7 if flagged else 1)
    flags = {"reset": reset, "mask": mask} if flagged else {}
    variables, run = initialized(layer), jax.jit(layer.apply)
    y, last = run(variables, x, **flags)
    rows = zip(x, reset, mask, strict=True)
    expected = [definition(layer, variables, *row) for row in rows]
    np.testing.assert_allclose(y, expected, atol=1e-5)
    state, pieces = layer.initial_state((2,), D), []
    for piece in (slice(0, 5), slice(5, 6), slice(6, LENGTH)):
        own = {name: flag[:, piece] for name, flag in flags.items()}
        y, state = run(variables, x[:, piece], state, **own)
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces, 1), expected, atol=1e-5)
    for leaf, whole in zip(state, last, strict=True):
        np.testing.assert_allclose(leaf, whole, atol=1e-5)


def test_heads_and_channels_that_do_not_fit_are_rejected():
    x = drawn(1, 3, D)
    with refuses("n_kv_heads", 3, rule="divisor"):
        SlidingAttention(HEADS, 2, n_kv_heads=3).init(jax.random.key(0), x)
    with refuses("d_rotary", 1, rule="even"):
        SlidingAttention(HEADS, 2, d_rotary=1).init(jax.random.key(0), x)
    with refuses("d_rotary", 6, rule="at most"):
        SlidingAttention(HEADS, 2, d_rotary=6).init(jax.random.key(0), x)
    with refuses("x", (1, 3, D), rule="multiple"):
        SlidingAttention(3, 2).init(jax.random.key(0), x)
    layer = SlidingAttention(HEADS, 2)
    state = RotaryAttention(HEADS, window=2).initial_state((1,), D)
    with refuses("state", (1, 4, HEADS, 2), rule="initial_state"):
        layer.apply(initialized(layer), x, state)
