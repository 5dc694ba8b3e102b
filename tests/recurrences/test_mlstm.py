"""mLSTM: maxima that do not change its outputs, large gates, and its widths."""

import functools

import chex
import jax
import numpy as np
import pytest

from ssm_jax.recurrences import MLSTM
from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.recurrences.cases import evaluate, expected, problem
from tests.recurrences.oracle_matrix import mlstm
from tests.recurrences.table import ROWS
from tests.tiers import tiered

ROW = ROWS["mlstm"]
# The first of the columns of the inputs that are gates; those of forgetting follow.
GATES, FORGET = 8, 10


def of_outputs(p):
    """The problem with a loss of the outputs alone."""
    c, c_last = p.weights
    return p._replace(weights=(c, np.zeros_like(c_last)))


def test_outputs_are_those_without_a_maximum():
    """The equations of the paper, whose divisor is at least 1."""
    unit, p = ROW.recurrence, problem(ROW, 17)
    q, k, v, i, f = np.split(np.float64(p.x), [2, 4, GATES, FORGET], -1)
    v = v.reshape(*v.shape[:-1], 2, 2)
    memory = norm = 0
    expected = []
    for t in range(17):
        decay = 1 / (1 + np.exp(-f[:, t] - p.params["forget_bias"]))
        enter = np.exp(i[:, t] + p.params["input_bias"]) * k[:, t]  # d_key is 1
        memory = decay[..., None] * memory + enter[..., None] * v[:, t]
        norm = decay * norm + enter
        divisor = np.maximum(np.abs(norm * q[:, t]), 1)
        expected.append((memory * (q[:, t] / divisor)[..., None]).reshape(2, -1))
    y, _ = jax.jit(unit.apply)(p.params, p.x)
    assert_close(y, np.stack(expected, 1), 1e-6)


@pytest.mark.parametrize("method", tiered(["chunked", "sequential"], 0))
@pytest.mark.parametrize("scale", tiered([20, 80], 1))
def test_large_gates_are_the_definition(scale, method):
    p = of_outputs(problem(ROW, 17))
    x = p.x.copy()
    x[..., GATES:] *= scale
    # A divisor is at least exp(-30); below it, a query must not be almost orthogonal.
    x[..., :4] = np.abs(x[..., :4])
    p = p._replace(x=x)
    (y, last), grads = evaluate(ROW.recurrence, p, method=method)
    chex.assert_tree_all_finite((y, last, grads))
    assert_close((y, last), ROW.run(p.params, np.float64(x)), 2e-5)


def test_gradients_of_outputs_pass_through_no_maximum():
    """Also where an open forget gate and equal input gates tie at every step."""
    p = of_outputs(problem(ROW, 17))
    x = p.x.copy()
    x[..., GATES:FORGET], x[..., FORGET:] = 1, 40
    p = p._replace(x=x)
    params = p.params | {"input_bias": np.zeros_like(p.params["input_bias"])}
    p = p._replace(params=params)
    _, (of_params, of_x, _) = evaluate(ROW.recurrence, p, method="chunked")
    _, (params_wanted, x_wanted, _) = expected(ROW, p)
    assert_close((of_params, of_x), (params_wanted, x_wanted), 1e-4)


@pytest.mark.full
def test_maxima_that_decay_over_many_steps_keep_their_digits():
    """One large input, then small ones: every step lowers the maximum by 0.001."""
    unit = MLSTM(d_head=1)
    params = {"input_bias": np.zeros(1, "f"), "forget_bias": np.zeros(1, "f")}
    x = np.random.default_rng(0).uniform(0.5, 1, (1, 12_000, 5)).astype(np.float32)
    x[..., 3], x[..., 4] = -5, 6.9
    x[:, 0, 3] = 10
    given = jax.jit(functools.partial(unit.apply, method="chunked"))(params, x)
    assert_close(given, mlstm(unit, params, np.float64(x)), 1e-5)


@pytest.mark.parametrize(("width", "total"), [(3, 12), (30, 24)])
def test_width_that_does_not_fit_is_refused(width, total, key):
    unit = MLSTM(d_head=4, d_key=3)
    assert unit.d_in(unit.init(key, 2 * 12)) == 24
    for call in (
        lambda: unit.init(key, width),
        lambda: unit.initial_state((), width),
        lambda: unit.d_out(width),
    ):
        with refuses("d_in", width, rule=str(total)):
            call()


@pytest.mark.full
def test_biases_are_initialized_as_published(key):
    params = MLSTM(d_head=1).init(key, 5 * 4000)
    np.testing.assert_allclose(np.std(params["input_bias"]), 0.1, rtol=0.05)
    np.testing.assert_allclose(
        params["forget_bias"], np.linspace(3, 6, 4000), rtol=1e-6
    )


@pytest.mark.full
def test_row_without_a_valid_step_passes_its_state_and_gradient_on():
    row = ROWS["mlstm"]
    p, mask = problem(row, 3, start=True), np.array([[False] * 3, [True] * 3])
    # As states are: the last row is zero but for the maximum.
    state = p.state.copy()
    state[..., -1, :-1], state[..., -1, -1] = 0, 2.5

    def last(state):
        return row.recurrence.apply(p.params, p.x, state, mask=mask)[1]

    given, gradient = jax.vjp(last, state)
    (of_state,) = gradient(p.weights[1])
    expected = p.weights[1][0].copy()
    expected[..., -1, :-1] = 0
    np.testing.assert_array_equal(given[0], state[0])
    chex.assert_trees_all_close(of_state[0], expected, atol=1e-6)
