"""Nonlinear recurrences with large weights: parallel solutions are exact or unused."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import FRU, GRU, LSTM, RNN, SRU
from tests.tiers import tiered

LENGTH, D_IN = 200, 4
SUMS: dict[str, Any] = {"d_statistic": 8, "d_feedback": 8, "d_output": 4}
UNITS = {
    "rnn": RNN(d_state=16),
    "gru": GRU(d_state=16),
    "lstm": LSTM(d_state=16),
    "fru": FRU(frequencies=(0.0, 0.5, 3.0, 20.0), horizon=LENGTH, **SUMS),
    "sru": SRU(**SUMS),
}
SCALES = (1.0, 2.0, 3.0, 4.0, 8.0, 12.0, 20.0)
# Parameters that the state passes through on its way to the next state.
FEEDBACK = ("recurrent_kernel", "W_r", "W_phi", "W_1", "W_2")
X = np.random.default_rng(0).normal(size=(2, LENGTH, D_IN)).astype(np.float32)
MOVED = X * (1 + 2.0**-23)  # by the last digit
ONE = np.zeros((2, LENGTH), bool)
# For more steps, gradients overflow float32, except those of the SRU.
SEGMENTS = np.tile(np.arange(LENGTH) % 8 == 0, (2, 1))


def solve(name, scale, method, reset, x=X):
    """Outputs, the gradient of their mean square, and the solver statistics."""
    params = UNITS[name].init(jax.random.key(1), D_IN)
    params = {k: v * scale if k in FEEDBACK else v for k, v in params.items()}
    return solve_with_gradient(UNITS[name], method, params, x, reset)


@functools.partial(jax.jit, static_argnums=(0, 1))
def solve_with_gradient(unit, method, params, x, reset):
    def loss(params):
        y, _, stats = unit.solve(params, x, reset=reset, method=method)
        return jnp.mean(jnp.square(y)), (y, stats)

    gradient, (y, stats) = jax.grad(loss, has_aux=True)(params)
    return y, gradient, stats


def largest(tree):
    return max(float(np.max(np.abs(leaf))) for leaf in jax.tree.leaves(tree))


def distance(one, other):
    return largest(jax.tree.map(np.subtract, one, other))


@pytest.mark.parametrize("name", tiered(list(UNITS), 0, full=1))
def test_scaled_feedback_gives_the_sequential_solution(name):
    n_converged = 0
    for scale in SCALES:
        for reset in (ONE, SEGMENTS):
            expected, wanted_grads, _ = solve(name, scale, "sequential", reset)
            y, grads, taken = solve(name, scale, "associative", reset)
            n_converged += bool(taken.converged)
            if name == "sru" and not np.all(np.isfinite(expected)):
                assert not taken.converged  # states that overflow float32 themselves
                continue
            chex.assert_tree_all_finite(y)
            if reset is SEGMENTS and name != "sru":
                chex.assert_tree_all_finite((grads, wanted_grads))
            # Units with large weights are chaotic: rounding errors grow at each step.
            moved, moved_grads, _ = solve(name, scale, "sequential", reset, MOVED)
            chaos = 100 * distance(moved, expected)
            assert distance(y, expected) <= 1e-5 * largest(expected) + chaos
            # Else they overflow float32, or belong to another sequence of states.
            if np.isfinite(largest(wanted_grads)) and chaos < largest(expected):
                chaos = 100 * distance(moved_grads, wanted_grads)
                assert distance(grads, wanted_grads) <= 1e-5 * largest(grads) + chaos
    assert 0 < n_converged


@pytest.mark.nightly
def test_iterations_end_where_they_cannot_converge():
    """Newton iterations that stagnate, and Picard iterations that grow as a power."""
    for name, scale in (("gru", 8.0), ("sru", 12.0)):
        _, _, taken = solve(name, scale, "associative", ONE)
        assert not taken.converged
        assert taken.iterations <= 20
