"""The delta rule: without decay, its bound on states, and the widths that it takes."""

import functools

import jax
import numpy as np
import pytest

from ssm_jax.recurrences import GatedDeltaRule
from tests.bad_inputs import refuses
from tests.recurrences.cases import check, evaluate, expected, problem
from tests.recurrences.oracle_matrix import gated_delta_rule
from tests.recurrences.table import VARYING, Row
from tests.tiers import tiered

DELTA = GatedDeltaRule(n_heads=2, d_key=2, d_value=3, decay=False)
ROW = Row(DELTA, functools.partial(gated_delta_rule, DELTA), width=16)


@pytest.mark.parametrize("method", tiered(VARYING))
def test_without_decay_it_is_that_of_delta_net(method):
    p = problem(ROW, 17, start=True)
    assert p.params == {}
    check(evaluate(DELTA, p, method=method), expected(ROW, p))


def test_without_parameters_double_in_is_double_out():
    p = problem(ROW, 17)
    with jax.enable_x64(True):
        y, last = jax.jit(DELTA.apply)({}, np.float64(p.x))
    wanted, wanted_last = ROW.run({}, np.float64(p.x))
    np.testing.assert_allclose(y, wanted, atol=1e-12)
    np.testing.assert_allclose(last, wanted_last, atol=1e-12)


@pytest.mark.full
def test_states_are_bounded_for_all_keys(key):
    """Equal large keys that are corrected beyond their values, at each step."""
    rule = GatedDeltaRule(
        n_heads=1, d_key=4, d_value=1, decay=False, negative_eigenvalues=True
    )
    x = np.full((1000, 10), 1e3, np.float32)
    x[:, 8] = 1
    _, state = jax.jit(rule.apply)({}, x)
    # The component along the key is 0 or 2 times the value, by turns.
    assert np.linalg.norm(state) < 1e-2
    _, state = jax.jit(rule.apply)({}, x[1:])
    np.testing.assert_allclose(np.linalg.norm(state), 2, rtol=1e-2)


def test_width_that_does_not_fit_is_refused(key):
    with refuses("d_in", 17, rule="4 + 4 + 6 + 2 = 16"):
        DELTA.init(key, 17)


def test_heads_of_keys_divide_those_of_values():
    with refuses("n_key_heads", 4, rule="6"):
        GatedDeltaRule(n_key_heads=4)


@pytest.mark.full
def test_rates_are_initialized_in_their_range(key):
    rule = GatedDeltaRule(n_heads=4000, d_key=1, d_value=1)
    rate = np.exp(rule.init(key, 5 * 4000)["log_rate"])
    assert 0 < rate.min() < 0.1 and 15.9 < rate.max() <= 16.001
    np.testing.assert_allclose(rate.mean(), 8, rtol=0.05)
