"""Nonlinear recurrences of large weights: parallel solutions are right, or not used."""

import chex
import numpy as np
import pytest

from launch.suites import scaled

LENGTH = 200
UNITS = scaled.units(LENGTH)
X = scaled.inputs(LENGTH)
ONE = np.zeros((2, LENGTH), bool)
# Within so few steps the gradients of all units but SRU are float32 numbers.
SEGMENTS = np.tile(np.arange(LENGTH) % 8 == 0, (2, 1))


def solve(name, scale, method, reset):
    unit = UNITS[name]
    return scaled.solve(unit, method, scaled.scaled(unit, scale), X, reset)


@pytest.mark.parametrize("name", UNITS)
def test_scaled_feedback_gives_the_sequential_solution(name):
    n_converged = 0
    for scale in scaled.SCALES:
        for reset in (ONE, SEGMENTS):
            wanted, wanted_grads, _ = solve(name, scale, "sequential", reset)
            y, grads, taken = solve(name, scale, "associative", reset)
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
        _, _, taken = solve(name, scale, "associative", ONE)
        assert not taken.converged
        assert taken.n_sweeps <= 20
