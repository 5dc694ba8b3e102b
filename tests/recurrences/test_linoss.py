"""LinOSS without an eigenbasis, over many steps, and its initialization."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import LinOSS
from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.recurrences.cases import check, evaluate, expected, problem
from tests.recurrences.oracle_linoss import linoss
from tests.recurrences.table import ROWS
from tests.tiers import tiered


@pytest.mark.parametrize("method", ["associative", "sequential"])
@pytest.mark.parametrize("name", tiered(["linoss", "linoss_imex"], 1))
def test_matrices_without_an_eigenbasis_are_evaluated(name, method):
    """At frequencies of 0, and with ``imex`` where the step squared times A is 4."""
    row = ROWS[name]
    p = problem(row, 17, start=True)
    # Two of each: near the frequency, beside it, and at it, where relu has a corner,
    # from above.
    frequencies = np.float32([1e-30, 16, 1e-5] if name == "linoss" else [16, 1e-30])
    steps = np.zeros_like(frequencies)  # Of one half.
    params = p.params | {"squared_frequency": frequencies, "logit_dt": steps}
    p = p._replace(params=params)
    given = evaluate(row.recurrence, p, method=method)
    # A finite difference below 0 is that of the rectifier: not of the derivative.
    run = functools.partial(linoss_above, row.recurrence)
    wanted = expected(row._replace(run=run), p)
    check(given, wanted)


def linoss_above(recurrence, params, x, state):
    """The definition, continued to negative squared frequencies."""
    return linoss(recurrence, params, x, state, rectified=False)


@pytest.mark.parametrize("method", ["associative", "sequential"])
@pytest.mark.parametrize("discretization", tiered(["imex", "im"]))
def test_frequency_of_zero_is_a_double_sum(discretization, method):
    """Exactly, at the corner of the rectifier and below."""
    unit = LinOSS(d_state=2, discretization=discretization)
    params = unit.init(jax.random.key(0), 1) | {
        "squared_frequency": jnp.array([0.0, -1.0]),
        "logit_dt": jnp.zeros(2),
        "B_re": jnp.ones((2, 1)),
        "B_im": jnp.zeros((2, 1)),
    }
    x = np.ones((9, 1), np.float32)

    @jax.jit
    def gradients(params):
        def last(params):
            _, last = unit.apply(params, x, method=method)
            return last[1, 0], last

        return jax.grad(last, has_aux=True)(params)

    grads, last = gradients(params)
    steps = np.arange(1, 10)
    np.testing.assert_array_equal(last[:, :2], [[4.5, 4.5], [sum(steps) / 4] * 2])
    assert all(np.all(np.isfinite(grad)) for grad in grads.values())


@pytest.mark.full
@pytest.mark.parametrize("method", ["associative", "sequential"])
@pytest.mark.parametrize("discretization", ["im", "imex"])
def test_many_steps_keep_their_digits(discretization, method):
    """Slow and undamped oscillators, of which no error of a step may be amplified."""
    unit = LinOSS(d_state=4, discretization=discretization)
    params = dict(unit.init(jax.random.key(0), 1))
    params["squared_frequency"] = jnp.array([0.0, 1e-6, 1e-3, 0.1])
    params["logit_dt"] = jnp.full(4, -2.0)
    x = np.random.default_rng(0).normal(size=(1, 4096, 1)).astype(np.float32)
    given = jax.jit(functools.partial(unit.apply, method=method))(params, x)
    assert_close(given, linoss(unit, params, np.float64(x)), 2e-4)


@pytest.mark.full
def test_parameters_are_initialized_in_their_ranges(key):
    n, d = 4000, 16
    params = LinOSS(d_state=n).init(key, d)
    for name in ("squared_frequency", "logit_dt"):
        assert 0 <= params[name].min() < 0.01 and 0.99 < params[name].max() <= 1
    for name, bound in (("B", d**-0.5), ("C", n**-0.5)):
        for part in ("re", "im"):
            largest = np.abs(params[f"{name}_{part}"]).max()
            assert 0.99 * bound < largest <= bound


@pytest.mark.parametrize("method", ["fft", "chunked", "pallas"])
def test_other_methods_are_refused(method):
    unit = LinOSS(d_state=1)
    params = unit.init(jax.random.key(0), 1)
    with refuses("method", method, rule="associative"):
        unit.apply(params, np.ones((3, 1), np.float32), method=method)
