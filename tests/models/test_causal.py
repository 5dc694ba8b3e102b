"""Causal models: decoding step by step, resets between documents, and padding."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax import recurrences
from ssm_jax.models import VectorEncoder
from tests.models.cases import LAYERS, STATELESS, VOCABULARY, each_layer, model
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
_FEW = (
    *("dlr", "s4", "s5", "ets_mlp", "mamba", "fru", "gru", "gated_attention"),
    *("linear_attention", "short_convolution"),
)


@functools.cache
def initialized(layer):
    """A model around a layer, and its variables."""
    causal = model(layer, VectorEncoder(WIDTH))
    key = jax.random.key(0, impl="rbg")  # compiled in half the time
    return causal, jax.jit(causal.init)(key, TEXT[:, :2])


@each_layer(LAYERS, fast=("mamba",), full=_FEW)
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
    for given, wanted in zip(*both, strict=True):
        atol = 1e-4 * np.abs(wanted).max()
        np.testing.assert_allclose(given, wanted, rtol=0, atol=atol)


@pytest.mark.full
@pytest.mark.parametrize("mask", tiered({"padded": MASK, "packed": None}, full=1))
@each_layer(LAYERS | STATELESS, fast=("dlr",), full=(*_FEW, *STATELESS))
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
