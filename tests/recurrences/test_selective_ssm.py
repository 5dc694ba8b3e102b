"""The selective SSM: initialization, chunks, and memory of the gradient."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import SelectiveSSM
from tests.bad_inputs import refuses
from tests.recurrences.cases import MASK, RESET, check, evaluation, expected, problem
from tests.recurrences.table import ROWS
from tests.tiers import tiered

CHUNK_SIZE = "ssm_jax.recurrences.families.input_dependent.chunk_size"
ROW = ROWS["selective"]


def test_start_is_the_published_one(key):
    d, n = 400, 16
    params = SelectiveSSM(dt_min=1e-3, dt_max=0.1, dt_floor=2e-3).init(key, d)
    np.testing.assert_allclose(np.exp(params["log_rate"][7]), np.arange(1, n + 1), 1e-6)
    np.testing.assert_array_equal(params["feedthrough"], np.ones(d))
    dt = np.log1p(np.exp(np.float64(params["step_bias"])))
    assert np.all((dt > 1.999e-3) & (dt < 0.1001))
    # Of two decades, those below the floor start there.
    np.testing.assert_allclose(np.mean(dt < 2.001e-3), np.log10(2) / 2, atol=0.05)
    np.testing.assert_allclose(np.mean(dt < 1e-2), 1 / 2, atol=0.06)
    for name, shape in (("input_kernel", (d, 57)), ("step_kernel", (25, d))):
        bound = shape[0] ** -0.5
        assert params[name].shape == shape
        np.testing.assert_allclose(np.std(params[name]), bound / np.sqrt(3), rtol=0.03)
        assert np.abs(params[name]).max() <= bound


@pytest.mark.full
@pytest.mark.parametrize("size", tiered([1, 2, 7], (2,), full=(2,)))
def test_chunks_of_the_length_change_nothing(size, monkeypatch):
    monkeypatch.setattr(CHUNK_SIZE, lambda *_, **__: size)
    p = problem(ROW, 7, batch=5, start=True)

    def run(params, x, state):
        return ROW.recurrence.apply(params, x, state, reset=RESET, mask=MASK)

    check(jax.jit(evaluation(run))(*p), expected(ROW, p, RESET, MASK))


@pytest.mark.full
@pytest.mark.parametrize("method", tiered(["sequential", "associative"], full=1))
def test_memory_of_the_gradient_holds_no_states_of_the_length(method):
    d, n, length = 64, 64, 16384
    selective = SelectiveSSM(d_state=n)
    states = length * d * n * jnp.dtype(jnp.float32).itemsize

    def memory(length):
        def total(params, x):
            return jnp.sum(selective.apply(params, x, method=method)[0])

        params = jax.eval_shape(lambda: selective.init(jax.random.key(0), d))
        x = jax.ShapeDtypeStruct((length, d), jnp.float32)
        compiled = jax.jit(jax.value_and_grad(total, (0, 1))).lower(params, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    short, long = memory(length), memory(2 * length)
    assert long < states
    assert long - short < states / 4


def test_low_precision_is_that_of_input_and_output_only():
    p = problem(ROW, 17)
    low = jnp.asarray(p.x, jnp.bfloat16)
    run = jax.jit(ROW.recurrence.apply)
    (y, last), (exact, last_exact) = run(p.params, low), run(p.params, np.float32(low))
    assert y.dtype == jnp.bfloat16 and last.dtype == jnp.float32
    np.testing.assert_array_equal(y, exact.astype(jnp.bfloat16))
    np.testing.assert_array_equal(last, last_exact)


@pytest.mark.full
def test_gradient_where_devices_hold_different_rows_is_that_of_one_device():
    p = problem(ROW, 7)
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((2,), ("data",), axis_types=auto)
    rows, same = jax.P("data"), jax.P()

    def loss(params, x, mask):
        y, _ = ROW.recurrence.apply(params, x, mask=mask)
        return jnp.sum(jnp.sin(y))

    def of_rows(params, x, mask):
        return jax.grad(lambda p: jax.lax.psum(loss(p, x, mask), "data"))(params)

    spread = jax.shard_map(
        of_rows, mesh=mesh, in_specs=(same, rows, rows), out_specs=same
    )
    arguments = p.params, p.x, MASK[1:3]
    given, wanted = jax.jit(spread)(*arguments), jax.jit(jax.grad(loss))(*arguments)
    chex.assert_trees_all_close(given, wanted, rtol=0, atol=1e-5)


def test_convolution_is_refused_for_decays_that_vary(key):
    selective = SelectiveSSM(d_state=2)
    with refuses("method", "'fft'", rule="'chunked'"):
        selective.apply(selective.init(key, 2), jnp.ones((4, 2)), method="fft")


REFUSALS = {
    "size": ({"d_state": 0}, "d_state", "positive", 0),
    "rank": ({"dt_rank": 0}, "dt_rank", "positive", 0),
    "steps": ({"dt_min": 1.0}, "dt_min", "(0, dt_max]", 1),
}


@pytest.mark.parametrize(
    ("fields", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_numbers_that_do_not_fit_are_refused(fields, name, rule, value):
    with refuses(name, value, rule=rule):
        SelectiveSSM(**fields)
