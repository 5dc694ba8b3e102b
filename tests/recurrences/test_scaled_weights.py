"""Nonlinear recurrences of large weights: parallel solutions are right, or not used."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import FRU, GRU, LSTM, RNN, SRU

WIDTH, LENGTH = 4, 200
SUMS = {"d_statistic": 8, "d_feedback": 8, "d_output": 4}
UNITS = {
    "rnn": RNN(d_state=16),
    "gru": GRU(d_state=16),
    "lstm": LSTM(d_state=16),
    "fru": FRU(frequencies=(0.0, 0.5, 3.0, 20.0), horizon=LENGTH, **SUMS),
    "sru": SRU(**SUMS),
}
FEEDBACK = ("recurrent_kernel", "feedback_kernel", "seen_kernel")
SCALES = (1.0, 2.0, 3.0, 4.0, 8.0, 12.0, 20.0)
X = np.random.default_rng(0).normal(size=(2, LENGTH, WIDTH)).astype(np.float32)
ONE = np.zeros((2, LENGTH), bool)
# Within so few steps the gradients of all units but SRU are float32 numbers.
SEGMENTS = np.tile(np.arange(LENGTH) % 8 == 0, (2, 1))


@functools.partial(jax.jit, static_argnums=(0, 1))
def solve(unit, method, params, reset):
    """Outputs, the gradient of their mean square, and what the iterations took."""

    def loss(params):
        y, _, taken = unit.solve(params, X, reset=reset, method=method)
        return jnp.mean(jnp.square(y)), (y, taken)

    grads, (y, taken) = jax.grad(loss, has_aux=True)(params)
    return y, grads, taken


@pytest.mark.parametrize("name", UNITS)
def test_scaled_feedback_gives_the_sequential_solution(name):
    unit, n_converged = UNITS[name], 0
    init = unit.init(jax.random.key(1), WIDTH)
    for scale in SCALES:
        params = {k: v * scale if k in FEEDBACK else v for k, v in init.items()}
        for reset in (ONE, SEGMENTS):
            wanted, wanted_grads, _ = solve(unit, "sequential", params, reset)
            y, grads, taken = solve(unit, "associative", params, reset)
            n_converged += bool(taken.converged)
            if name == "sru" and not np.all(np.isfinite(wanted)):
                assert not taken.converged  # states that overflow float32 themselves
                continue
            chex.assert_tree_all_finite(y)
            size = np.max(np.abs(wanted))
            # Units of large weights are chaotic: what rounding leaves grows by step.
            tolerance = 1e-5 if scale == 1 else 1e-3
            np.testing.assert_allclose(y, wanted, rtol=0, atol=tolerance * size)
            largest = max(np.max(np.abs(g)) for g in wanted_grads.values())
            if reset is SEGMENTS and name != "sru":
                assert np.isfinite(largest)
            if np.isfinite(largest):  # else chaos: the exact gradient overflows
                atol = 10 * tolerance * largest
                chex.assert_trees_all_close(grads, wanted_grads, atol=atol)
    assert 0 < n_converged


def test_iterations_end_where_they_cannot_converge():
    """Newton's that do not come closer, Picard's that grow as a power."""
    for name, scale in (("gru", 8.0), ("sru", 12.0)):
        unit = UNITS[name]
        params = {
            k: v * scale if k in FEEDBACK else v
            for k, v in unit.init(jax.random.key(1), WIDTH).items()
        }
        _, _, taken = solve(unit, "associative", params, ONE)
        assert not taken.converged
        assert taken.n_sweeps <= 20
