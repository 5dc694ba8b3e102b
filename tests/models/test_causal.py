"""Causal models: decoding step by step, resets between documents, and padding."""

import functools
import inspect
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax import recurrences
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import (
    Block,
    LastHead,
    PooledHead,
    SequenceModel,
    StepHead,
    VectorEncoder,
)
from ssm_jax.recurrences import S5
from tests.models.cases import (
    HYBRIDS,
    LAYERS,
    STATELESS,
    VOCABULARY,
    each_layer,
    model,
)
from tests.tiers import tiered

WIDTH = 8
RNG = np.random.default_rng(0)
TEXT = np.eye(VOCABULARY, dtype=np.float32)[RNG.integers(0, VOCABULARY, (1, 10_000))]

# Documents of different lengths, one of a single step, packed into two rows.
RESET = np.array(
    [
        [1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0],
    ],
    bool,
)
# Padding inside, before and after a document.
MASK = np.array(
    [
        [1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1],
        [1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1],
    ],
    bool,
)


# One of each evaluation, and the layers that carry more than a recurrence.
_FEW = ("dlr", "gru", "linear_attention", "short_convolution", "hybrid")


@functools.cache
def initialized(layer):
    """A model around a layer, and its variables."""
    causal = model(layer, VectorEncoder(WIDTH))
    key = jax.random.key(0, impl="rbg")  # compiled in half the time
    return causal, jax.jit(causal.init)(key, TEXT[:, :2])


@each_layer(LAYERS | HYBRIDS, fast=(), full=_FEW)
def test_one_token_at_a_time_equals_one_call(layer):
    causal, variables = initialized(layer)
    at_once = jax.jit(causal.apply)(variables, TEXT)

    @jax.jit
    def stepped(variables, text):
        def step(state, x):
            logits, state = causal.apply(variables, x[:, None], state)
            return state, logits[:, 0]

        state = causal.initial_state((1,))
        last, logits = jax.lax.scan(step, state, jnp.swapaxes(text, 0, 1))
        return jnp.swapaxes(logits, 0, 1), last

    both = map(jax.tree.leaves, (stepped(variables, TEXT), at_once))
    for given, expected in zip(*both, strict=True):
        atol = 1e-4 * np.abs(expected).max()
        np.testing.assert_allclose(given, expected, rtol=0, atol=atol)


@pytest.mark.full
@pytest.mark.parametrize("mask", tiered({"padded": MASK, "packed": None}, full=1))
@each_layer(LAYERS | STATELESS | HYBRIDS, fast=("dlr",), full=(*_FEW, "attention"))
def test_loss_of_a_document_does_not_depend_on_others(layer, mask):
    causal, variables = initialized(layer)
    documents = np.cumsum(RESET, 1)
    x = TEXT[0, : RESET.size].reshape(*RESET.shape, VOCABULARY)

    @jax.jit
    @functools.partial(jax.grad, argnums=1)
    def gradient(variables, x, own):
        logits, _ = causal.apply(variables, x, reset=RESET, mask=mask)
        return -jnp.sum(jax.nn.log_softmax(logits)[..., 0] * own)

    data = np.ones_like(RESET) if mask is None else mask
    for document in np.unique(documents):
        own = (documents == document) & data
        reached = np.abs(gradient(variables, x, own)).max(-1)
        np.testing.assert_array_equal(reached[~own], 0)
        assert np.all(reached[own] > 0)


@pytest.mark.full
@each_layer(LAYERS | STATELESS | HYBRIDS, fast=("dlr",), full=(*_FEW, "attention"))
def test_values_that_are_not_finite_stay_in_their_document(layer):
    """Of one row, before a reset; also in gradients, where 0 times infinity is NaN."""
    causal, variables = initialized(layer)
    length, steps = 10, np.arange(10)[:, None]
    text = TEXT[0, : 2 * length].reshape(2, length, VOCABULARY)
    zero = causal.initial_state((2,))
    weights = np.random.default_rng(0).normal(size=text.shape)

    @jax.jit
    def gradients(state, x, reset, weights):
        def total(variables, state):
            y, last = causal.apply(variables, x, state, reset=reset)
            parts = [jnp.sum(jnp.real(leaf)) for leaf in jax.tree.leaves(last)]
            return sum(parts, jnp.sum(weights * y)), (y, last)

        return jax.grad(total, (0, 1), has_aux=True)(variables, state)

    for at, bad in itertools.product((0, 5), (np.nan, np.inf)):
        reset = np.tile(steps[:, 0] == at, (2, 1))
        of_segment = {"reset": reset, "weights": np.where(steps >= at, weights, 0)}
        alone = np.where(steps >= at, text, 0)
        expected, (wanted_y, wanted_last) = gradients(zero, alone, **of_segment)
        x, state = alone.copy(), jax.tree.map(np.array, zero)
        x[0, 2:at, 1] = bad
        for leaf in jax.tree.leaves(state):
            leaf[0] = bad
        for before in (zero, state):
            given, (y, last) = gradients(before, x, **of_segment)
            assert not np.any(np.isfinite(y[0, 2:at]))
            np.testing.assert_array_equal(y[1], wanted_y[1])
            after = (given, y[:, at:], last), (expected, wanted_y[:, at:], wanted_last)
            for leaf, other in zip(*map(jax.tree.leaves, after), strict=True):
                np.testing.assert_allclose(leaf, other, rtol=0, atol=1e-5)


HEADS = {
    "last": (LastHead(2), False),
    "last_steps": (StepHead(2, l_output=4), False),
    "pooled": (PooledHead(2), True),
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("head", "depends"), tiered(HEADS, full=("last", "pooled"), unpack=True)
)
def test_predictions_are_nan_if_they_depend_on_what_is(head, depends):
    x, reset = np.ones((2, 10, 3), np.float32), np.tile(np.arange(10) == 5, (2, 1))
    layer = RecurrentLayer(S5(d_state=4, blocks=1), ChannelMixing())
    causal = SequenceModel(VectorEncoder(4), Block(layer, prenorm=True), 2, head)
    variables = causal.init(jax.random.key(0), x)
    run = jax.jit(functools.partial(causal.apply, reset=reset))
    expected, _ = run(variables, x)
    x[0, 3] = np.nan
    y, state = run(variables, x)
    chex.assert_tree_all_finite(state)
    assert np.all(np.isnan(y[0])) if depends else np.array_equal(y, expected)
    np.testing.assert_array_equal(y[1], expected[1])


def test_every_recurrence_is_in_the_table():
    tested = {
        type(layer.recurrence)
        for layer in LAYERS.values()
        if hasattr(layer, "recurrence")
    }
    known = {
        value
        for value in vars(recurrences).values()
        if inspect.isclass(value) and issubclass(value, recurrences.Recurrence)
    }
    concrete = {each for each in known if not inspect.isabstract(each)}
    assert concrete - {recurrences.Recurrence} == tested
