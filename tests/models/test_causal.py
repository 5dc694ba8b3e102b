"""What every causal model promises."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax import recurrences
from ssm_jax.models import VectorEncoder
from tests.models.cases import LAYERS, VOCABULARY, each_layer, model

WIDTH = 8
RNG = np.random.default_rng(0)
TEXT = np.eye(VOCABULARY, dtype=np.float32)[RNG.integers(0, VOCABULARY, (1, 10_000))]


@functools.cache
def started(layer):
    """A model around a layer, and its variables."""
    causal = model(layer, VectorEncoder(WIDTH))
    key = jax.random.key(0, impl="rbg")  # compiled in half the time
    return causal, jax.jit(causal.init)(key, TEXT[:, :2])


@each_layer(LAYERS)
def test_one_token_at_a_time_gives_what_all_at_once_give(layer):
    causal, variables = started(layer)
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
