"""The bound on eigenvalues, which bounds the states."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import DLR, LRU, S5, BoundedEigenvalues, MIMOModes
from tests.bad_inputs import refuses
from tests.tiers import tiered

M, D = 4.0, 3
SLOW = {"log_rate": -60.0, "lam_re": 9.0, "log_dt": -12.0, "sqrt_decay": 0.0}
FAST = {"log_rate": 3.0, "lam_re": -1e4, "log_dt": 3.0, "sqrt_decay": 9.0}
ROWS = {
    "s5": S5(d_state=8, blocks=2),
    "s5 exp": S5(d_state=8, blocks=2, real_part="exp", discretization="bilinear"),
    "lru": LRU(d_state=4),
    "dlr": DLR(d_state=4, bidirectional=True),
}


def extreme(recurrence, key, values, size):
    """Extreme parameters, with inputs projected to ``size``."""
    params = recurrence.init(key, D)
    return {
        name: jnp.full_like(value, values[name])
        if name in values
        else value * (size if name.startswith("B_") else 1)
        for name, value in params.items()
    }


@pytest.mark.parametrize("recurrence", tiered(ROWS, ("dlr",)))
def test_bound_holds_for_all_parameters_in_value_and_gradient(recurrence, key):
    bounded = BoundedEigenvalues(recurrence=recurrence, largest_state=M)

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def moduli(params):
        modes = bounded.modes(params)
        modulus = jnp.exp(modes.log_decay.log_abs)
        is_mimo = isinstance(modes, MIMOModes)
        enter = jnp.sum(jnp.abs(modes.B), -1) if is_mimo else 1.0
        return jnp.sum(modulus), (modulus, enter)

    for values in (SLOW, FAST):
        for size in (0.0, 1.0, 1e6):
            params = extreme(recurrence, key, values, size)
            (_, (modulus, enter)), gradient = moduli(params)
            assert np.all(modulus <= np.maximum(1 - enter / M, 1e-3) * (1 + 1e-6))
            for leaf in jax.tree.leaves(gradient):
                assert np.all(np.isfinite(leaf))
    assert set(bounded.init(key, D)) == set(recurrence.init(key, D))
    assert bounded.groups() == recurrence.groups()


@pytest.mark.full
def test_states_within_the_bound_stay_there(key):
    """Inputs of one sign make the states reach the bound and not exceed it."""
    lru = LRU(d_state=4)
    params = extreme(lru, key, {**SLOW, "log_phase": -40.0, "B_re": 0.05}, 0.0)
    bounded = BoundedEigenvalues(recurrence=lru, largest_state=M)
    apply = jax.jit(lambda r, state: r.apply(params, jnp.ones((2000, D)), state)[1],
                    static_argnums=0)  # fmt: skip
    gain = np.exp(params["log_gain"])
    first = jnp.full(4, M, jnp.complex64)
    for state in (0 * first, first):
        after = np.abs(apply(bounded, state))
        assert np.all(after <= M * (1 + 1e-5))
        # Decays that reach the bound within the 2000 steps.
        full = gain * 0.05 * D > 0.02
        np.testing.assert_allclose(after[full], M, rtol=1e-3)
        assert full.any()
    assert np.all(np.abs(apply(lru, first)) > M)


@pytest.mark.full
def test_small_eigenvalues_are_left_alone(key):
    s5 = S5(d_state=8, blocks=2)
    params = s5.init(key, D)
    free, bounded = (
        r.modes(params)
        for r in (s5, BoundedEigenvalues(recurrence=s5, largest_state=1e9))
    )
    for expected, found in zip(jax.tree.leaves(free), jax.tree.leaves(bounded),
                             strict=True):  # fmt: skip
        np.testing.assert_array_equal(found, expected)


def test_bound_that_is_none_is_refused():
    with refuses("largest_state", 0.0, rule="positive"):
        BoundedEigenvalues(recurrence=LRU(), largest_state=0.0)


def test_finite_kernel_is_refused():
    with refuses("recurrence", "DLR", rule="`max_kernel_length` None"):
        BoundedEigenvalues(recurrence=DLR(max_kernel_length=8), largest_state=2.0)
