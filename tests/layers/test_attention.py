"""Attention against a step-by-step definition in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from ssm_jax.layers import MLP, Attention
from tests.bad_inputs import refuses
from tests.tiers import tiered

D, HEADS = 4, 2
KINDS = ("softmax", "linear", "rotary")
each_attention = pytest.mark.parametrize(
    ("kind", "bidirectional"),
    tiered(
        [(kind, way) for kind in KINDS for way in (True, False)],
        [(kind, way) for kind in KINDS if kind != "linear" for way in (True, False)],
        unpack=True,
    ),
)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@functools.cache
def initialized(layer, d=D):
    return jax.jit(layer.init)(jax.random.key(0), jnp.zeros((1, 2, d)))


def dense(variables, name, x):
    params = variables["params"][name]["dense"]
    return x @ np.float64(params["kernel"]) + np.float64(params["bias"])


def phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def rotated(x, positions):
    """Each pair of channels as a complex number, times a number of modulus 1."""
    frequencies = 10_000.0 ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    turns = np.exp(1j * np.multiply.outer(positions, frequencies))[:, None]
    z = (x[..., ::2] + 1j * x[..., 1::2]) * turns
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def definition(layer, variables, x, state=None, reset=None, mask=None):
    """Evaluates one row ``(l, d)`` step by step; returns ``(y, last)``."""
    length, d = x.shape
    qkv = dense(variables, "in", np.float64(x)).reshape(length, 3, layer.n_heads, -1)
    segment = np.zeros(length, int) if reset is None else np.cumsum(reset)
    mask = np.ones(length, bool) if mask is None else mask
    if layer.kind == "rotary":
        positions = np.cumsum(mask) - 1
        for part in (0, 1):
            qkv[:, part] = rotated(qkv[:, part], positions)
    y = np.zeros((length, d))
    for i in np.flatnonzero(mask):
        seen = mask & (segment == segment[i])
        if not layer.bidirectional:
            seen[i + 1 :] = False
        of_heads = []
        for head in range(layer.n_heads):
            q, k, v = qkv[i, 0, head], qkv[seen, 1, head], qkv[seen, 2, head]
            if layer.kind != "linear":
                of_heads.append(special.softmax(k @ q / np.sqrt(len(q))) @ v)
                continue
            weights = phi(k) @ phi(q)
            above, below = weights @ v, weights.sum()
            if state is not None and segment[i] == 0:
                above = above + phi(q) @ state[head, :, :-1]
                below = below + phi(q) @ state[head, :, -1]
            of_heads.append(above / below)
        y[i] = dense(variables, "out", np.concatenate(of_heads))
    if layer.kind != "linear" or layer.bidirectional:
        return y, None
    ends = mask & (segment == segment[-1])
    k, v = phi(qkv[ends, 1]), qkv[ends, 2]
    v = np.concatenate([v, np.ones_like(v[..., :1])], -1)
    last = np.einsum("lhk,lhv->hkv", k, v)
    carried = state is not None and segment[-1] == 0
    return y, last + state if carried else last


@functools.cache
def compiled(layer):
    """``((y, last), of_x)`` of all arguments, with weights of a sum of ``y``."""

    @jax.jit
    def run(variables, x, weights, state, flags):
        def apply(x):
            return layer.apply(variables, x, state, **flags)

        y, pull, last = jax.vjp(apply, x, has_aux=True)
        return (y, last), pull(weights)[0]

    return run


FLAGS = {"plain": (), "padded": ("mask",), "packed": ("mask", "reset")}


@each_attention
@pytest.mark.parametrize("flags", tiered(FLAGS, ["packed"], full=["packed"]))
def test_attention_matches_its_definition(kind, bidirectional, flags):
    # Linear attention has chunks with and without resets.
    length = 150 if kind == "linear" and (flags or not bidirectional) else 13
    layer = Attention(HEADS, kind, bidirectional)
    variables = initialized(layer)
    rng = np.random.default_rng(1)
    x, weights = drawn(2, length, D), drawn(2, length, D, seed=2)
    state = layer.initial_state((2,), D)
    state = None if state is None else np.abs(drawn(*state.shape, seed=3))
    drawn_flags = {
        "mask": rng.random((2, length)) < 0.7,
        "reset": rng.random((2, length)) < 0.04,
    }
    flags = {name: drawn_flags[name] for name in flags}
    (y, last), of_x = compiled(layer)(variables, x, weights, state, flags)

    def of_row(row, x):
        start = None if state is None else state[row]
        of_flags = {name: values[row] for name, values in flags.items()}
        return definition(layer, variables, x, start, **of_flags)

    direction = np.float64(drawn(2, length, D, seed=4))
    for row in range(2):
        expected, wanted_last = of_row(row, x[row])
        np.testing.assert_allclose(y[row], expected, rtol=0, atol=1e-5)
        if wanted_last is not None:
            np.testing.assert_allclose(last[row], wanted_last, rtol=2e-6, atol=1e-5)
        ahead, behind = (
            np.sum(weights[row] * of_row(row, x[row] + step * direction[row])[0])
            for step in (1e-5, -1e-5)
        )
        slope = np.sum(of_x[row] * direction[row])
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-5, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_a_width_of_their_own(kind):
    layer = Attention(HEADS, kind, d_head=6)
    variables, x = initialized(layer), drawn(1, 13, D)
    (y, last), _ = compiled(layer)(variables, x, x, layer.initial_state((1,), D), {})
    expected, wanted_last = definition(layer, variables, x[0])
    np.testing.assert_allclose(y[0], expected, rtol=0, atol=1e-5)
    if wanted_last is not None:
        np.testing.assert_allclose(last[0], wanted_last, rtol=0, atol=1e-4)


@pytest.mark.full
def test_state_of_many_short_calls_equals_that_of_one_call():
    layer = Attention(HEADS, "linear")
    variables, x = initialized(layer), drawn(2, 6, D)
    apply = jax.jit(layer.apply)
    whole, last = apply(variables, x)
    state, pieces = layer.initial_state((2,), D), []
    for t in range(6):
        y, state = apply(variables, x[:, t : t + 1], state)
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces, 1), whole, rtol=0, atol=1e-5)
    np.testing.assert_allclose(state, last, rtol=1e-5)


@pytest.mark.full
@each_attention
def test_rows_without_valid_steps_are_zero(kind, bidirectional):
    layer = Attention(HEADS, kind, bidirectional)
    x = np.full((1, 13, D), np.nan, np.float32)
    flags = {"mask": np.zeros((1, 13), bool)}
    state = layer.initial_state((1,), D)
    (y, last), of_x = compiled(layer)(
        initialized(layer), x, drawn(1, 13, D), state, flags
    )
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_array_equal(of_x, 0)
    if last is not None:
        np.testing.assert_array_equal(last, 0)


@pytest.mark.full
@each_attention
@pytest.mark.parametrize("size", [1e2, 1e6])
def test_large_inputs_give_finite_outputs(kind, bidirectional, size):
    layer = Attention(HEADS, kind, bidirectional)
    x, weights = np.float32(size) * drawn(1, 13, D), drawn(1, 13, D, seed=1)
    given = compiled(layer)(initialized(layer), x, weights, None, {})
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(given))


@pytest.mark.full
def test_any_number_of_batch_axes():
    for kind in KINDS:
        layer = Attention(HEADS, kind)
        variables, x = initialized(layer), drawn(2, 3, 5, D)
        mask, reset = np.random.default_rng(0).random((2, 2, 3, 5)) < 0.5
        apply = jax.jit(layer.apply)
        many, _ = apply(variables, x, mask=mask, reset=reset)
        one, _ = apply(variables, x[1, 2], mask=mask[1, 2], reset=reset[1, 2])
        np.testing.assert_allclose(many[1, 2], one, rtol=0, atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_mlp_matches_its_formula(activation):
    layer = MLP(7, activation)
    x = drawn(2, 5, D)
    variables = initialized(layer)
    hidden = dense(variables, "in", np.float64(x))
    gate = hidden > 0 if activation == "relu" else special.ndtr(hidden)
    expected = dense(variables, "out", hidden * gate)
    given = jax.jit(layer.apply)(variables, x)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)


X = drawn(2, 5, D)
REFUSALS = {
    "heads": ({"n_heads": 3}, {}, "x", "multiple of n_heads = 3", "(2, 5, 4)"),
    "odd_heads": ({"kind": "rotary", "d_head": 3}, {}, "d_head", "even", "3"),
    "mask": ({}, {"mask": np.ones((2, 4), bool)}, "mask", "(2, 5)", "(2, 4)"),
    "state_of_softmax": (
        {},
        {"state": np.zeros((2, 2, 2, 3), np.float32)},
        "state",
        "None",
        "bidirectional = False",
    ),
    "state_of_one_row": (
        {"kind": "linear"},
        {"state": np.zeros((2, 2, 3), np.float32)},
        "state",
        "(2, 2, 2, 3)",
        "(2, 2, 3)",
    ),
}


@pytest.mark.parametrize(
    ("fields", "arguments", "name", "rule", "value"),
    REFUSALS.values(),
    ids=REFUSALS.keys(),
)
def test_error_names_rule_and_value(fields, arguments, name, rule, value, unchecked):
    layer = Attention(**({"n_heads": HEADS} | fields))
    with refuses(name, value, rule=rule):
        layer.init(jax.random.key(0), X, **arguments)
