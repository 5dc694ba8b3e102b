"""The atomic tasks against solvers in plain loops that see the inputs alone."""

import chex
import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.training.losses import loss_sums, metrics
from tests.bad_inputs import refuses
from tests.tiers import tiered


def shift(x, n, n_shifts=8):
    """With the delays as the authors compute them."""
    delays = np.linspace(0, n - n / n_shifts, n_shifts).astype(int)
    y = np.zeros((n, n_shifts))
    for k, delay in enumerate(delays):
        for i in range(delay, n):
            y[i, k] = x[i - delay, 0]
    return y


def cumsum(x, n):
    y, total = np.zeros((n, 1)), 0.0
    for i in range(n):
        total += float(x[i, 0])
        y[i] = total / (i + 1) ** 0.5
    return y


def cummax(x, n):
    y, largest = np.zeros((n, 1)), -np.inf
    for i in range(n):
        largest = max(largest, x[i, 0])
        y[i] = largest
    return y


def reverse(x, n):
    y = np.zeros((n, 1))
    for i in range(n):
        y[i] = x[n - 1 - i, 0]
    return y


def sort(x, n):
    """Takes the nearest to the first of those left, the earliest of equally near."""
    y, remaining = np.zeros((n, 1)), [float(value) for value in x[:n, 0]]
    first = remaining[0]
    for i in range(n):
        nearest = min(range(len(remaining)), key=lambda j: abs(remaining[j] - first))
        y[i] = remaining.pop(nearest)
    return y


def select(x, n):
    marked = [value for value, mark in x[:, :2] if mark == 1.0]
    assert len(marked) == n
    return np.array(marked)[:, None]


def mips(x, n):
    """The first of the best keys, where some are equal."""
    vectors = np.float64(x[:, :-2]).reshape(n, 3, -1)
    query, key, value = vectors.swapaxes(0, 1)
    y = np.zeros(value.shape)
    for i in range(n):
        scores = [sum(query[i] * key[j]) for j in range(i + 1)]
        y[i] = value[scores.index(max(scores))]
    return y


def context_shift(x, n):
    angle = np.arctan2(x[1, 0], x[0, 0]) % (2 * np.pi)
    y, delay = np.zeros((n, 1)), round(angle * n / (2 * np.pi))
    for i in range(delay, n):
        y[i] = x[i - delay, 0]
    return y


def solve(x, n):
    matrix, right = np.zeros((n, n)), np.zeros(n)
    for i in range(n):
        for j in range(n):
            matrix[i, j] = x[i * (n + 1) + j, 0]
        right[i] = x[i * (n + 1) + n, 0]
    return np.linalg.solve(matrix, right)[:, None]


ATOMIC = {
    "shift": (tasks.Shift(length=40), shift),
    "cumsum": (tasks.CumSum(length=40), cumsum),
    "cummax": (tasks.CumMax(length=40), cummax),
    "reverse": (tasks.Reverse(length=20), reverse),
    "sort": (tasks.Sort(length=20), sort),
    "select": (tasks.Select(length=30, n_selected=5), select),
    "select_fixed": (tasks.SelectFixed(length=30, n_selected=5), select),
    # Longer than one of its blocks, and no multiple of them.
    "mips": (tasks.MIPS(length=100), mips),
    "context_shift": (tasks.ContextShift(length=40), context_shift),
    "solve": (tasks.Solve(length=40), solve),
    "solve_fixed": (tasks.SolveFixed(length=40), solve),
}
# Where the solver computes in float64; the others copy entries of the input.
ROUNDED = {"cumsum", "solve", "solve_fixed"}
FIXED = {"select_fixed": "positions_seed", "solve_fixed": "matrix_seed"}
# Targets of the paper's length, with 63 unknowns in the systems.
OUTPUTS = {"select": 32, "select_fixed": 32, "solve": 63, "solve_fixed": 63}

each_task = pytest.mark.parametrize("name", ATOMIC)


@each_task
@pytest.mark.parametrize("split", tiered(["train", "validation", "test"]))
def test_reference_solution_scores_one(name, split):
    task, solver = ATOMIC[name]
    batch = task.batch(split, 3, 4, seed=1)
    solved = [solver(x, task.spec.l_output) for x in batch.inputs]
    y = np.stack(solved).astype(np.float32)
    tolerance = 3e-7 if name in ROUNDED else 0
    np.testing.assert_allclose(y, batch.targets, rtol=0, atol=tolerance)
    result = metrics(loss_sums("regression", y, batch.targets, batch.loss_mask))
    assert result["r2"] == pytest.approx(1.0, abs=1e-6)


@each_task
def test_default_sizes_are_those_of_the_paper(name):
    spec = type(ATOMIC[name][0])().spec
    steps = {"reverse": 8192, "sort": 8192, "select": 4160, "select_fixed": 4160}
    assert spec.length == steps.get(name, 4096)
    assert spec.l_output == OUTPUTS.get(name, 4096)
    assert spec.d_input == {"mips": 14, "select": 4, "select_fixed": 4}.get(name, 3)
    assert spec.d_output == {"shift": 8, "mips": 4}.get(name, 1)


@each_task
def test_position_turns_once_over_the_padded_length(name):
    task, _ = ATOMIC[name]
    positions = task.batch("test", 0, 2, seed=0).inputs[..., -2:]
    for i in range(task.spec.length):
        angle = 2 * np.pi * i / task.spec.length
        expected = np.broadcast_to([np.cos(angle), np.sin(angle)], (2, 2))
        np.testing.assert_allclose(positions[:, i], expected, atol=1e-7)


@each_task
def test_all_targets_count(name):
    assert ATOMIC[name][0].batch("train", 0, 2, seed=0).loss_mask.all()


def fixed_part(name, batch):
    """Positions, or the matrix: what all sequences of a task share."""
    if name == "select_fixed":
        return batch.inputs[..., 1]
    rows = batch.inputs[:, :30, 0].reshape(-1, 5, 6)
    return rows[..., :5]


@pytest.mark.parametrize("name", FIXED)
def test_fixed_part_is_that_of_all_splits_seeds_and_batches(name):
    task, _ = ATOMIC[name]
    if name == "solve_fixed":
        assert task.spec.l_output == 5
    requests = [("train", 0, 0), ("train", 7, 0), ("validation", 0, 0), ("test", 0, 4)]
    batches = [task.batch(split, i, 3, seed=s) for split, i, s in requests]
    expected = fixed_part(name, batches[0])[0]
    for batch in batches:
        for row in fixed_part(name, batch):
            np.testing.assert_array_equal(row, expected)
    assert len({batch.targets.tobytes() for batch in batches}) == len(batches)
    other = type(task)(**{**vars(task), FIXED[name]: 5}).batch("train", 0, 3, seed=0)
    assert not np.array_equal(fixed_part(name, other)[0], expected)


@pytest.mark.parametrize("name", ["select", "solve"])
def test_no_two_sequences_share_what_the_fixed_task_shares(name):
    task, _ = ATOMIC[name]
    parts = fixed_part(f"{name}_fixed", task.batch("train", 0, 4, seed=0))
    assert len({part.tobytes() for part in parts}) == 4


def test_number_of_unknowns_is_the_largest_that_fits():
    for length in range(3, 400):
        n = tasks.Solve(length=length).spec.l_output
        assert n * n + 2 * n <= length < (n + 1) ** 2 + 2 * (n + 1)


def test_equally_near_values_stay_in_their_order(monkeypatch):
    draws = np.float32([[0.0, 0.5, -0.5, 0.5, -0.25, 1.0]])
    monkeypatch.setattr(
        "ssm_jax.tasks.synthetic.sequence.draw_noise", lambda *_, **__: draws
    )
    batch = tasks.Sort(length=6).batch("train", 0, 1, seed=0)
    expected = [0.0, -0.25, 0.5, -0.5, 0.5, 1.0]
    np.testing.assert_array_equal(batch.targets[0, :, 0], np.float32(expected))


@pytest.mark.parametrize("length, n_shifts", [(1, 1), (2, 2), (13, 5), (16, 1)])
def test_number_of_shifts_need_not_divide_the_length(length, n_shifts):
    batch = tasks.Shift(length=length, n_shifts=n_shifts).batch("test", 0, 1, seed=0)
    expected = shift(batch.inputs[0], length, n_shifts)
    np.testing.assert_array_equal(batch.targets[0], np.float32(expected))


@pytest.mark.full
def test_cumsum_is_rounded_once_at_the_length_of_the_paper():
    batch = tasks.CumSum().batch("test", 0, 2, seed=0)
    expected = np.stack([cumsum(x, 4096) for x in batch.inputs])
    np.testing.assert_allclose(batch.targets, expected, rtol=1e-7)


def test_equal_products_of_mips_are_compared_as_exact_ones():
    """On a line all keys of one sign are equal, which float32 cannot tell from near."""
    batch = tasks.MIPS(length=30, d_vector=1).batch("test", 0, 1, seed=0)
    np.testing.assert_array_equal(batch.targets[0], mips(batch.inputs[0], 30))


BAD = {
    "shift_length": (tasks.Shift, "length", 0),
    "shift_none": (tasks.Shift, "n_shifts", 0),
    "shift_more_than_steps": (tasks.Shift, "n_shifts", 4097),
    "cumsum_length": (tasks.CumSum, "length", -3),
    "cummax_length": (tasks.CumMax, "length", 0),
    "reverse_length": (tasks.Reverse, "length", -1),
    "sort_length": (tasks.Sort, "length", 4.0),
    "select_length": (tasks.Select, "length", 0),
    "select_none": (tasks.Select, "n_selected", 0),
    "select_fixed_length": (tasks.SelectFixed, "length", 0),
    "select_fixed_none": (tasks.SelectFixed, "n_selected", -2),
    "select_fixed_seed": (tasks.SelectFixed, "positions_seed", -1),
    "mips_length": (tasks.MIPS, "length", 0),
    "mips_vectors": (tasks.MIPS, "d_vector", 0),
    "context_shift_length": (tasks.ContextShift, "length", 2),
    "solve_length": (tasks.Solve, "length", 2),
    "solve_fixed_length": (tasks.SolveFixed, "length", 2),
    "solve_fixed_seed": (tasks.SolveFixed, "matrix_seed", 2**32),
}


@pytest.mark.parametrize(("task", "field", "value"), BAD.values(), ids=BAD)
def test_bad_field_is_an_error_of_one_line(task, field, value, unchecked):
    with refuses(field, value):
        task(**{field: value})


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
