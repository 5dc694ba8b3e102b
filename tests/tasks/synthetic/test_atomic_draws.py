"""What the atomic tasks draw: noise, positions, delays, vectors and matrices."""

import chex
import numpy as np
import pytest

from ssm_jax import tasks

NOISE = {
    "shift": (tasks.Shift(length=500), 0, 500),
    "cumsum": (tasks.CumSum(length=500), 0, 500),
    "cummax": (tasks.CumMax(length=500), 0, 500),
    "reverse": (tasks.Reverse(length=500), 0, 500),
    "sort": (tasks.Sort(length=500), 0, 500),
    "select": (tasks.Select(length=480, n_selected=20), 0, 500),
    "select_fixed": (tasks.SelectFixed(length=480, n_selected=20), 0, 500),
    "context_shift": (tasks.ContextShift(length=502), 2, 502),
}


@pytest.mark.full
@pytest.mark.parametrize("name", NOISE)
def test_noise_is_normal_and_reaches_one(name):
    task, start, stop = NOISE[name]
    tokens = task.batch("train", 0, 300, seed=0).inputs[..., 0]
    x = tokens[:, start:stop]
    np.testing.assert_array_equal(np.abs(x).max(axis=1), 1.0)
    if task.spec.length > stop:
        assert not tokens[:, stop:].any(), "padding is zero"
    z = x / x.std(axis=1, keepdims=True)
    # Of 150,000 normal draws the standard errors are 0.003 and 0.03.
    assert abs(z.mean()) < 0.015
    assert abs((z**4).mean() - 3.0) < 0.15


def assert_uniform(counts):
    """Chi-squared of equally likely classes, within four standard deviations."""
    expected, classes = np.mean(counts), len(counts)
    chi = np.sum((counts - expected) ** 2) / expected
    assert abs(chi - (classes - 1)) < 4 * np.sqrt(2 * (classes - 1))


@pytest.mark.full
def test_selected_positions_are_uniform_and_new_in_each_sequence():
    batch = tasks.Select(length=36, n_selected=4).batch("train", 0, 5000, seed=0)
    marks = batch.inputs[..., 1]
    np.testing.assert_array_equal(marks.sum(axis=1), 4)
    assert not marks[:, 40:].any(), "the last steps are for the targets"
    assert_uniform(marks[:, :40].sum(axis=0))
    assert len(np.unique(marks, axis=0)) > 4500
    # Of two of them, without replacement: marks of different steps hardly correlate.
    correlation = np.corrcoef(marks[:, :40].T) - np.eye(40)
    np.testing.assert_allclose(correlation[~np.eye(40, dtype=bool)], -1 / 39, atol=0.08)


@pytest.mark.full
def test_delay_of_context_shift_is_uniform():
    x = tasks.ContextShift(length=22).batch("train", 0, 5000, seed=0).inputs[..., 0]
    delay = np.rint(np.arctan2(x[:, 1], x[:, 0]) * 22 / (2 * np.pi)) % 22
    counts = np.bincount(delay.astype(int), minlength=22)
    assert not counts[20:].any(), "at most length - 3"
    assert_uniform(counts[:20])


@pytest.mark.full
def test_vectors_of_mips_are_uniform_on_the_sphere():
    x = tasks.MIPS(length=500).batch("train", 0, 40, seed=0).inputs[..., :12]
    vectors = x.reshape(-1, 3, 4)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1.0, atol=1e-6)
    flat = vectors.reshape(len(vectors), 12)
    # Each entry has the variance 1/4, and query, key and value are independent.
    np.testing.assert_allclose(flat.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(np.cov(flat.T), np.eye(12) / 4, atol=0.01)
    # E[u^4] = 3 / (d (d + 2)) on the sphere, where normal entries have 3 / d^2.
    np.testing.assert_allclose((flat**4).mean(axis=0), 1 / 8, atol=0.006)


@pytest.mark.full
@pytest.mark.parametrize("name", ["solve", "solve_fixed"])
def test_system_is_orthonormal_with_a_solution_of_unit_norm(name):
    task = tasks.Solve(length=512) if name == "solve" else tasks.SolveFixed(length=512)
    batch = task.batch("train", 0, 200, seed=0)
    n = task.spec.l_output
    assert n == 21
    rows = batch.inputs[:, : n * (n + 1), 0].reshape(-1, n, n + 1)
    matrix, solution = np.float64(rows[..., :n]), np.float64(batch.targets)
    product = matrix @ matrix.swapaxes(1, 2)
    chex.assert_trees_all_close(
        product, np.broadcast_to(np.eye(n), product.shape), atol=1e-6
    )
    np.testing.assert_allclose(np.linalg.norm(solution, axis=1), 1.0, atol=1e-6)
    assert not batch.inputs[:, n * (n + 1) :, 0].any()
    # Uniform: mean 0 and variance 1 / n of each entry, of either sign of determinant.
    np.testing.assert_allclose(solution.mean(axis=0), 0.0, atol=0.07)
    np.testing.assert_allclose((solution**2).mean(axis=0), 1 / n, atol=0.025)
    if name == "solve":
        np.testing.assert_allclose(matrix.mean(axis=0), 0.0, atol=0.07)
        np.testing.assert_allclose((matrix**2).mean(axis=0), 1 / n, atol=0.03)
        assert 60 < np.sum(np.linalg.det(matrix) > 0) < 140


def test_tasks_draw_from_streams_of_their_own():
    noise = [tasks.Reverse(length=9), tasks.Sort(length=9), tasks.CumMax(length=9)]
    first = [task.batch("train", 0, 1, seed=0).inputs[0, :9, 0] for task in noise]
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], first[2])
