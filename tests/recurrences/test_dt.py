"""Steps of different sizes, ``dt``, compared with a loop in float64."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.recurrences import DLR, S4D, S5, SelectiveSSM
from tests.bad_inputs import refuses
from tests.tiers import tiered

WIDTH, LENGTH, BATCH = 2, 9, 3
STEPS = {"dt_min": 0.1, "dt_max": 0.5}
CASES = {
    "s5": S5(d_state=4, blocks=1, **STEPS),
    "s5_bilinear": S5(d_state=4, blocks=1, discretization="bilinear", **STEPS),
    "s4d": S4D(d_state=4, **STEPS),
    "s4d_bilinear": S4D(d_state=4, discretization="bilinear", **STEPS),
    "selective": SelectiveSSM(d_state=3, **STEPS),
}
each = pytest.mark.parametrize(
    "recurrence", tiered(CASES, fast=["selective"], full=["s4d", "selective"])
)


def step(recurrence, p, dt, x):
    """The map of one step, ``h -> a h + b``, and the readout ``h -> y``."""
    if isinstance(recurrence, SelectiveSSM):
        n = recurrence.d_state
        chosen = x @ p["input_kernel"]
        r, B, C = chosen[: -2 * n], chosen[-2 * n : -n], chosen[-n:]
        size = dt * np.log1p(np.exp(r @ p["step_kernel"] + p["step_bias"]))[:, None]
        a = np.exp(-size * np.exp(p["log_rate"]))
        return a, size * B * x[:, None], lambda h: h @ C + p["feedthrough"] * x
    mimo = isinstance(recurrence, S5)
    real = np.minimum(p["lam_re"], -1e-4) if mimo else -np.exp(p["log_rate"])
    lam = real + 1j * p["frequency"]
    delta = np.exp(p["log_dt"]) if mimo else np.exp(p["log_dt"])[:, None]
    B, C = (p[f"{name}_re"] + 1j * p[f"{name}_im"] for name in "BC")

    def discretized(size):
        if recurrence.discretization == "zoh":
            return np.exp(lam * size), np.expm1(lam * size) / lam
        return (1 + lam * size / 2) / (1 - lam * size / 2), size / (1 - lam * size / 2)

    a, gain = discretized(delta * dt)
    if mimo:
        return a, gain * (B @ x), lambda h: 2 * (C @ h).real + p["feedthrough"] * x
    # The state is stored divided by B and the gain of a step of size 1.
    unit = discretized(delta)[1]
    C = 2 * C * B * unit
    b = gain / unit * x[:, None]
    return a, b, lambda h: np.sum(C * h, -1).real + p["feedthrough"] * x


def run(recurrence, params, x, dt, state, reset, mask):
    """All rows step by step: outputs, zero at padded steps, and final states."""
    p = {name: np.float64(value) for name, value in params.items()}
    y, last = np.zeros(x.shape), []
    for row in range(len(x)):
        h = state[row]
        for t in range(x.shape[1]):
            h = np.zeros_like(h) if reset[row, t] else h
            if mask[row, t]:
                a, b, read = step(recurrence, p, dt[row, t], np.float64(x[row, t]))
                h = a * h + b
                y[row, t] = read(h)
        last.append(h)
    return y, np.array(last)


@pytest.fixture
def given(recurrence, key):
    """Parameters and arguments, with padding whose ``dt`` is not a number."""
    rng = np.random.default_rng(0)
    params = recurrence.init(key, WIDTH)
    x = rng.normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)
    dt = rng.uniform(0, 3, (BATCH, LENGTH)).astype(np.float32)
    _, state = recurrence.apply(params, x)
    reset = rng.random((BATCH, LENGTH)) < 0.2
    mask = rng.random((BATCH, LENGTH)) < 0.8
    return params, x, np.where(mask, dt, np.nan), state, reset, mask


@each
@pytest.mark.parametrize("method", tiered(["sequential", "associative"], 0, full=1))
def test_outputs_states_and_gradients_are_those_of_the_loop(recurrence, method, given):
    params, x, dt, state, reset, mask = given

    def apply(params, dt, state):
        options = {"reset": reset, "mask": mask, "method": method, "dt": dt}
        return recurrence.apply(params, x, state, **options)

    expected = run(recurrence, params, x, dt, np.asarray(state), reset, mask)
    weights = np.random.default_rng(1).normal(size=x.shape)

    def total(params, dt, state):
        y, last = apply(params, dt, state)
        return jnp.sum(weights * y), (y, last)

    (_, got), gradient = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))(
        params, dt, state
    )
    for value, definition in zip(got, expected, strict=True):
        np.testing.assert_allclose(value, definition, rtol=0, atol=2e-5)
    names = ["log_rate" if "log_rate" in params else "lam_re", "feedthrough"]
    rng, eps = np.random.default_rng(2), 1e-5

    def moved(sign):
        """The total where parameters and ``dt`` are moved along one direction."""
        shifted = {
            name: np.float64(value) + sign * eps * direction.get(name, 0)
            for name, value in params.items()
        }
        args = (shifted, x, dt + sign * eps * of_dt, np.asarray(state), reset, mask)
        return np.sum(weights * run(recurrence, *args)[0])

    direction = {name: rng.normal(size=params[name].shape) for name in names}
    of_dt = rng.normal(size=dt.shape)
    slope = (moved(1) - moved(-1)) / (2 * eps)
    along = sum(np.sum(gradient[0][name] * direction[name]) for name in names)
    along += np.sum(np.where(mask, gradient[1] * of_dt, 0))
    assert np.all(np.asarray(gradient[1])[~mask] == 0)
    np.testing.assert_allclose(along, slope, rtol=1e-3, atol=1e-3)


@each
def test_unit_steps_are_those_of_the_ordinary_call(recurrence, given):
    params, x, _, state, reset, mask = given
    for options in ({}, {"reset": reset, "mask": mask, "state": state}):
        expected = recurrence.apply(params, x, **options)
        got = recurrence.apply(params, x, dt=np.ones(LENGTH, np.float32), **options)
        for value, ordinary in zip(got, expected, strict=True):
            np.testing.assert_allclose(value, ordinary, rtol=0, atol=1e-5)


@each
@pytest.mark.parametrize(
    "array", tiered({"numpy": np.asarray, "jax": jnp.asarray}, 0, full=["jax"])
)
def test_a_compiled_function_may_know_dt(recurrence, array, given, key):
    params, x, dt, _, _, mask = given
    dt, mask = array(np.float32(dt)), array(mask)

    def total(params, dt):
        y, _ = recurrence.apply(params, x, dt=dt, mask=mask)
        return jnp.sum(y**2)

    known = jax.jit(jax.value_and_grad(lambda params: total(params, dt)))(params)
    traced = jax.jit(jax.value_and_grad(total))(params, dt)
    chex.assert_trees_all_close(known, traced, rtol=1e-5, atol=1e-5)
    negative = -array(np.ones(LENGTH, np.float32))
    with refuses("dt", -1.0):
        jax.jit(lambda params: total(params, negative))(params)


@pytest.mark.parametrize(
    "recurrence", tiered({name: CASES[name] for name in ("s4d", "s5")}, 0, full=1)
)
def test_halved_steps_of_inputs_that_hold_are_the_whole_steps(recurrence, given):
    params, x, _, state, *_ = given
    dt = np.full(2 * LENGTH, 0.5, np.float32)
    held, last = recurrence.apply(params, np.repeat(x, 2, axis=1), state, dt=dt)
    expected, wanted_last = recurrence.apply(params, x, state)
    np.testing.assert_allclose(held[:, 1::2], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(last, wanted_last, rtol=0, atol=1e-5)


@pytest.mark.parametrize("recurrence", [CASES["s4d"]])
def test_rows_share_dt_with_a_batch_axis_of_1(recurrence, given):
    params, x, *_ = given
    dt = np.linspace(0.5, 2, LENGTH, dtype=np.float32)
    of_each, _ = recurrence.apply(params, x, dt=np.broadcast_to(dt, x.shape[:-1]))
    for shared in (dt, dt[None]):
        y, _ = recurrence.apply(params, x, dt=shared)
        np.testing.assert_array_equal(y, of_each)


@pytest.mark.full
@pytest.mark.parametrize("recurrence", [CASES["s5"]])
def test_dt_that_does_not_fit_is_refused(recurrence, given, key, unchecked):
    params, x, *_ = given
    dt = np.ones((BATCH, LENGTH), np.float32)
    for change, name, value in (
        ({"dt": dt, "method": "fft"}, "method", "'fft'"),
        ({"dt": dt[:, :-1]}, "dt", (BATCH, LENGTH - 1)),
        ({"dt": dt[:2]}, "dt", (2, LENGTH)),
        ({"dt": dt[:, :1]}, "dt", (BATCH, 1)),
        ({"dt": dt[None]}, "dt", (1, BATCH, LENGTH)),
        ({"dt": dt[..., None]}, "dt", "leave out the last axis"),
        ({"dt": dt.astype(int)}, "dt", "int64"),
        ({"dt": -dt}, "dt", -1.0),
        ({"dt": np.nan * dt}, "dt", "nan"),
    ):
        with refuses(name, value):
            recurrence.apply(params, x, **change)
    both = S5(d_state=4, blocks=1, bidirectional=True)
    with refuses("dt", "bidirectional"):
        both.apply(both.init(key, WIDTH), x, dt=dt)


@pytest.mark.full
@pytest.mark.parametrize("recurrence", [CASES["s5"]])
def test_layer_passes_dt_to_its_recurrence(recurrence, given, key):
    _, x, dt, *_ = given
    dt = np.nan_to_num(dt, nan=1)
    layer = RecurrentLayer(recurrence, ChannelMixing())
    variables = jax.jit(layer.init)(key, x)
    ordinary, _ = layer.apply(variables, x)
    unit, _ = layer.apply(variables, x, dt=np.ones_like(dt))
    np.testing.assert_allclose(unit, ordinary, rtol=0, atol=1e-5)
    assert np.abs(layer.apply(variables, x, dt=dt)[0] - ordinary).max() > 1e-2
    with refuses("dt", "DLR"):
        other = RecurrentLayer(DLR(d_state=2), ChannelMixing())
        other.init(key, x, dt=dt)
