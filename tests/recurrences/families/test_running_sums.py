"""The final state of running sums, compared to the sequential sums."""

import itertools

import jax
import numpy as np
import pytest

from ssm_jax.recurrences.families.running_sums import weighted_sums_final_state

DECAYS = (0.0, 0.5, 0.99, 1.0)
ROWS, K, D = 3, len(DECAYS), 2


def one_after_another(weights, s, h0, reset, lengths):
    weights = np.broadcast_to(weights, (ROWS, *weights.shape[1:]))
    h = np.array(h0, np.float64)
    for row, t in itertools.product(range(ROWS), range(s.shape[1])):
        if lengths is not None and t >= lengths[row]:
            continue
        if reset is not None and reset[row, t]:
            h[row] = 0
        gained = np.float64(weights[row, t])[:, None] * s[row, t]
        h[row] = np.array(DECAYS)[:, None] * h[row] + gained
    return h


@pytest.mark.parametrize("of", [1, ROWS], ids=["shared", "of_rows"])
@pytest.mark.parametrize("lengths", [None, (7, 0, 3)], ids=["whole", "padded"])
@pytest.mark.parametrize("starts", [None, (0, 2, 5)], ids=["one", "segments"])
def test_last_state_is_that_of_the_loop(of, lengths, starts, key):
    keys = jax.random.split(key, 3)
    weights = jax.random.normal(keys[0], (of, 7, K))
    s = jax.random.normal(keys[1], (ROWS, 7, D))
    h0 = jax.random.normal(keys[2], (ROWS, K, D))
    reset = None if starts is None else np.arange(7) == np.array(starts)[:, None]
    lengths = None if lengths is None else np.array(lengths)
    expected = one_after_another(*map(np.asarray, (weights, s, h0)), reset, lengths)
    found = weighted_sums_final_state(
        DECAYS, weights, s, h0, reset=reset, lengths=lengths
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_nothing_of_what_is_no_data_reaches_the_derivative(key):
    s = jax.random.normal(key, (ROWS, 7, D))
    h0 = jax.random.normal(key, (ROWS, K, D))
    weights = jax.random.normal(key, (1, 7, K))
    lengths = np.array([7, 0, 3])

    def total(weights, s, h0):
        return weighted_sums_final_state(DECAYS, weights, s, h0, lengths=lengths).sum()

    of_weights, of_s, of_h0 = jax.grad(total, (0, 1, 2))(weights, s, h0)
    assert np.isfinite(of_weights).all()
    np.testing.assert_array_equal(of_s[1], 0)
    np.testing.assert_array_equal(of_s[2, 3:], 0)
    np.testing.assert_array_equal(of_h0[1], 1)
