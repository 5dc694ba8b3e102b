"""Attention with rotary positions against a step-by-step definition in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from ssm_jax.layers import RotaryAttention, softmax
from tests.bad_inputs import refuses
from tests.tiers import tiered

D, HEADS, LENGTH = 8, 2, 13


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@functools.cache
def initialized(layer, d=D):
    return jax.jit(layer.init)(jax.random.key(0), jnp.zeros((1, 2, d)))


def linear(params, name, x):
    params = params[name]["dense"]
    return x @ np.float64(params["kernel"]) + np.float64(params["bias"])


def rotated(x, position):
    """Each pair of channels as a complex number, times a number of modulus 1."""
    frequencies = 10_000.0 ** (-2 * np.arange(len(x) // 2) / len(x))
    z = (x[::2] + 1j * x[1::2]) * np.exp(1j * position * frequencies)
    return np.stack([z.real, z.imag], -1).ravel()


def gelu(x):
    return x * special.ndtr(x)


def seen_by(layer, position, segment, mask, i):
    """The steps to which step ``i`` attends."""
    for j in range(len(position)):
        if (
            not mask[j]
            or segment[j] != segment[i]
            or (not layer.bidirectional and j > i)
        ):
            continue
        apart = 0
        if layer.window is not None:
            apart = abs(position[j] // layer.window - position[i] // layer.window)
        if apart <= 1:
            yield j


def definition(layer, variables, x, reset=None, mask=None):
    """Evaluates one row ``(l, d)`` step by step."""
    params, (length, d) = variables["params"], x.shape
    x = np.float64(x)
    qkv = linear(params, "in", x).reshape(length, 3, layer.n_heads, -1)
    mask = np.ones(length, bool) if mask is None else mask
    segment = np.zeros(length, int) if reset is None else np.cumsum(reset)
    position = [
        sum(mask[j] and segment[j] == segment[i] for j in range(i))
        for i in range(length)
    ]
    y = np.zeros((length, d))
    for i in np.flatnonzero(mask):
        seen, of_heads = list(seen_by(layer, position, segment, mask, i)), []
        for head in range(layer.n_heads):
            q = rotated(qkv[i, 0, head], position[i])
            keys = np.array([rotated(qkv[j, 1, head], position[j]) for j in seen])
            weights = special.softmax(np.float64(params["scale"]) * keys @ q)
            of_heads.append(weights @ qkv[seen, 2, head])
        mixed = linear(params, "mixed", np.concatenate(of_heads))
        out = linear(params, "out", x[i] + gelu(mixed))
        if layer.mixing == "glu":
            out = out[:d] * special.expit(out[d:])
        for name in ("0", "1") if layer.d_feedforward else ():
            norm, mlp = (params[f"feedforward_{part}{name}"] for part in ("norm_", ""))
            centred = (out - out.mean()) / np.sqrt(out.var() + 1e-5)
            centred = centred * np.float64(norm["scale"]) + np.float64(norm["bias"])
            out = out + linear(mlp, "out", gelu(linear(mlp, "in", centred)))
        y[i] = out
    return y


@functools.cache
def compiled(layer):
    """``(y, of_x)`` of all arguments, with weights of a sum of ``y``."""

    @jax.jit
    def run(variables, x, weights, flags):
        y, pull = jax.vjp(lambda x: layer.apply(variables, x, **flags)[0], x)
        return y, pull(weights)[0]

    return run


LAYERS = {
    "window_bidirectional": RotaryAttention(HEADS, window=3, bidirectional=True),
    "feedforward": RotaryAttention(HEADS, d_feedforward=6),
    "window": RotaryAttention(HEADS, window=3),
    "window_longer_than_the_sequence": RotaryAttention(HEADS, window=20),
    "window_of_one_step": RotaryAttention(HEADS, window=1, mixing="glu"),
    "causal": RotaryAttention(HEADS),
    "bidirectional": RotaryAttention(HEADS, bidirectional=True),
    "long_window_bidirectional": RotaryAttention(
        HEADS, window=LENGTH, bidirectional=True
    ),
}
FEW = ("window_bidirectional", "feedforward")
FLAGS = {"packed": ("mask", "reset"), "plain": (), "padded": ("mask",)}


@pytest.mark.parametrize("layer", tiered(LAYERS, ("causal",), full=("causal", *FEW)))
@pytest.mark.parametrize("flags", tiered(FLAGS, full=1))
def test_attention_matches_its_definition(layer, flags):
    variables = initialized(layer)
    rng = np.random.default_rng(1)
    x, weights = drawn(2, LENGTH, D), drawn(2, LENGTH, D, seed=2)
    drawn_flags = {
        "mask": rng.random((2, LENGTH)) < 0.8,
        "reset": rng.random((2, LENGTH)) < 0.1,
    }
    flags = {name: drawn_flags[name] for name in flags}
    y, of_x = compiled(layer)(variables, x, weights, flags)
    direction = np.float64(drawn(2, LENGTH, D, seed=4))
    for row in range(2):
        of_flags = {name: values[row] for name, values in flags.items()}
        of_row = functools.partial(definition, layer, variables, **of_flags)
        np.testing.assert_allclose(y[row], of_row(x[row]), rtol=0, atol=1e-5)
        ahead, behind = (
            np.sum(weights[row] * of_row(x[row] + step * direction[row]))
            for step in (1e-5, -1e-5)
        )
        slope = np.sum(of_x[row] * direction[row])
        np.testing.assert_allclose(slope, (ahead - behind) / 2e-5, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer", tiered(LAYERS, ("causal",), full=("causal", *FEW)))
@pytest.mark.parametrize("block", tiered({"one": 512, "several": 4}))
def test_only_steps_that_attend_to_nan_are_nan(layer, block, monkeypatch):
    """A weight of 0 would not hide it; with segments and padding."""
    monkeypatch.setattr(softmax, "_BLOCK", block)
    variables, x = initialized(layer), drawn(2, LENGTH, D)
    mask, reset = np.arange(LENGTH) != 6, np.arange(LENGTH) == 10
    flags = {"mask": np.tile(mask, (2, 1)), "reset": np.tile(reset, (2, 1))}
    x[0, 3, 1], x[1, 5] = np.nan, np.inf
    y, _ = compiled.__wrapped__(layer)(variables, x, np.zeros_like(x), flags)
    x[1, 5] = np.nan
    for row in range(2):
        expected = definition(layer, variables, x[row], reset, mask)
        np.testing.assert_allclose(y[row], expected, rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("flags", tiered(FLAGS, full=1))
@pytest.mark.parametrize("bidirectional", [False, True])
def test_blocks_of_queries_give_the_same_outputs_and_gradients(
    bidirectional, flags, monkeypatch
):
    layer = RotaryAttention(HEADS, bidirectional=bidirectional)
    variables, x, weights = initialized(layer), drawn(2, 29, D), drawn(2, 29, D, seed=1)
    rng = np.random.default_rng(2)
    flags = {name: rng.random((2, 29)) < 0.5 for name in flags}
    expected = compiled(layer)(variables, x, weights, flags)
    monkeypatch.setattr(softmax, "_BLOCK", 8)
    given = compiled.__wrapped__(layer)(variables, x, weights, flags)
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("window", tiered([1, 3, 20], 0, full=(20,)))
def test_calls_of_any_length_equal_one_call(window):
    layer = RotaryAttention(HEADS, window=window)
    variables, x = initialized(layer), drawn(2, 17, D)
    rng = np.random.default_rng(3)
    mask, reset = rng.random((2, 17)) < 0.8, rng.random((2, 17)) < 0.1
    # The second row also has a step that is not finite.
    x[1, np.argmax(mask[1])] = np.nan
    apply = jax.jit(layer.apply)
    expected, last = apply(variables, x, mask=mask, reset=reset)
    state, pieces = layer.initial_state((2,), D), []
    for begin, end in ((0, 1), (1, 2), (2, 9), (9, 10), (10, 17)):
        part = slice(begin, end)
        y, state = apply(
            variables, x[:, part], state, mask=mask[:, part], reset=reset[:, part]
        )
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces, 1), expected, rtol=0, atol=1e-5)
    for one, other in zip(state, last, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.full
def test_state_without_a_position_gives_nan_until_a_segment_starts():
    layer = RotaryAttention(HEADS, window=2)
    variables, x = initialized(layer), drawn(2, 9, D)
    reset = np.stack([np.arange(9) == 4, np.arange(9) < 0])
    k, v, position = layer.initial_state((2,), D)
    lost = k, v, np.array([np.nan, np.nan], np.float32)
    apply = jax.jit(layer.apply)
    y, last = apply(variables, x, lost, reset=reset)
    expected, wanted_last = apply(variables, x, reset=reset)
    np.testing.assert_array_equal(np.isnan(y[..., 0]), np.cumsum(reset, 1) == 0)
    np.testing.assert_array_equal(y[0, 4:], expected[0, 4:])
    for one, other in zip(last, wanted_last, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    assert np.isnan(last[2][1])


@pytest.mark.full
@pytest.mark.parametrize("layer", tiered(LAYERS, full=FEW))
def test_rows_without_valid_steps_are_zero(layer):
    x, mask = np.full((1, LENGTH, D), np.nan, np.float32), np.zeros((1, LENGTH), bool)
    weights = drawn(1, LENGTH, D)
    y, of_x = compiled(layer)(initialized(layer), x, weights, {"mask": mask})
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_array_equal(of_x, 0)


X = drawn(2, 5, D)
STATE = RotaryAttention(HEADS, window=3).initial_state((2,), D)
REFUSALS = {
    "heads": ({"n_heads": 8}, None, "x", "multiple of 2 n_heads = 16", "(2, 5, 8)"),
    "without_window": ({"window": None}, STATE, "state", "None", "window = None"),
    "bidirectional": ({"bidirectional": True}, STATE, "state", "None", "= True"),
    "no_triple": ({}, STATE[0], "state", "triple", "Array"),
    "other_window": ({"window": 4}, STATE, "state", "(2, 8, 2, 4)", "(2, 6, 2, 4)"),
}


@pytest.mark.parametrize(
    ("fields", "state", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_error_names_rule_and_value(fields, state, name, rule, value, unchecked):
    layer = RotaryAttention(**({"n_heads": HEADS, "window": 3} | fields))
    with refuses(name, value, rule=rule):
        layer.init(jax.random.key(0), X, state)
