"""What a model remembers, on models whose memory is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.evaluation import effective_remembrance, state_sizes
from tests.bad_inputs import refuses

TEXTS = np.random.default_rng(0).integers(1, 4, (3, 12))


class Sum(nn.Module):
    """The decayed sum of tokens; it decides between two next tokens by a logit."""

    decay: float = 1.0

    def initial_state(self, batch_shape):
        return jnp.zeros(batch_shape)

    def __call__(self, texts, state=None, *, reset=None):
        def step(state, x):
            token, is_first = x
            state = self.decay * jnp.where(is_first, 0, state) + token
            return state, state

        state = self.initial_state(texts.shape[:1]) if state is None else state
        reset = jnp.zeros(texts.shape, bool) if reset is None else reset
        state, sums = jax.lax.scan(step, state, (texts.T, reset.T))
        return jnp.stack([0.1 * sums.T, 0 * sums.T], -1), state


def expected(decay, start):
    """The mean distance, by the definition."""
    weights = decay ** np.arange(TEXTS.shape[1])[::-1]
    both = (
        1 / (1 + np.exp(-0.1 * (TEXTS * weights)[:, first:].sum(1)))
        for first in (0, start)
    )
    whole, part = both
    return np.mean(np.abs(whole - part))


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_distance_is_that_of_the_definition(decay):
    starts = [0, 1, 5, 11]
    found = effective_remembrance(Sum(decay), {}, TEXTS, starts)
    assert found[0] == 0
    np.testing.assert_allclose(found, [expected(decay, t) for t in starts], atol=1e-6)


def test_model_without_a_state_remembers_its_last_token():
    found = effective_remembrance(Sum(0.0), {}, TEXTS, range(12))
    np.testing.assert_array_equal(found, 0)


def test_states_are_measured_where_they_are_asked_for():
    (size,) = state_sizes(Sum(), {}, TEXTS, [1, 4, 12])
    sums = np.cumsum(TEXTS, 1)[:, [0, 3, 11]]
    np.testing.assert_allclose(size.norm, sums.mean(0))
    np.testing.assert_allclose(size.deviation, sums.std(0))


@pytest.mark.parametrize("starts", [[], [12], [-1]])
def test_bad_starts_are_refused(starts):
    with refuses("starts", starts and starts[0]):
        effective_remembrance(Sum(), {}, TEXTS, starts)


@pytest.mark.parametrize("positions", [[], [4, 2], [4, 4], [13], [0]])
def test_bad_positions_are_refused(positions):
    with refuses("positions", positions and positions[-1]):
        state_sizes(Sum(), {}, TEXTS, positions)
