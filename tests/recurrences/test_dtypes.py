"""Parameters of any floating-point dtype; decays and states remain float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from tests.recurrences.cases import EVERY_METHOD, problem, rows
from tests.recurrences.table import ROWS
from tests.tiers import tiered

# One row per kind of evaluation.
EVALUATIONS = ("dlr", "s4", "gru", "selective")
_FEW = ("s5", "fru", "lstm", "selective")


def rounded(params, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)


def operations(jaxpr, dtype):
    """Names of the operations with operands of a dtype."""
    for equation in jaxpr.eqns:
        if any(getattr(v.aval, "dtype", None) == dtype for v in equation.invars):
            yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from operations(inner, dtype)


@rows(brief=True, fast=_FEW, full=(*EVERY_METHOD, *_FEW))
def test_low_parameters_are_converted_before_anything_else(row):
    dtype = jnp.bfloat16
    recurrence = row.recurrence
    params = jax.eval_shape(lambda: recurrence.init(jax.random.key(0), row.width))
    low = rounded({name: np.ones(v.shape) for name, v in params.items()}, dtype)
    x = np.ones((1, 3, row.width), np.float32)
    jaxpr = jax.make_jaxpr(lambda params: recurrence.apply(params, x))(low)
    assert set(operations(jaxpr.jaxpr, dtype)) == {"convert_element_type"}
    for leaf in jaxpr.out_avals:
        assert leaf.dtype in (jnp.float32, jnp.complex64)


@pytest.mark.full
@pytest.mark.parametrize("name", tiered(EVALUATIONS, 0, full=["gru", "dlr"]))
def test_rounded_parameters_give_what_they_give_in_float32(name):
    recurrence, p = ROWS[name].recurrence, problem(ROWS[name], 3)
    low = rounded(p.params, jnp.bfloat16)

    @jax.jit
    def run(params):
        def loss(params):
            y, last = recurrence.apply(params, p.x, method="sequential")
            return jnp.sum(p.weights[0] * y), (y, last)

        grads, out = jax.grad(loss, has_aux=True)(params)
        return out, grads

    out, grads = run(low)
    expected, grads_wanted = run(rounded(low, jnp.float32))
    for given, exact in zip(*map(jax.tree.leaves, (out, expected)), strict=True):
        np.testing.assert_allclose(given, exact, rtol=1e-6, atol=1e-6)
    for name, grad in grads.items():
        assert grad.dtype == jnp.bfloat16
        exact = np.asarray(grads_wanted[name])
        assert np.all(np.isfinite(exact))
        np.testing.assert_allclose(
            np.float32(grad), exact, rtol=2**-7, atol=1e-6 * np.abs(exact).max()
        )


@rows(brief=True, fast=_FEW, full=(*EVERY_METHOD, *_FEW))
def test_one_double_parameter_makes_all_double(row):
    recurrence = row.recurrence
    with jax.enable_x64(True):
        params = jax.eval_shape(lambda: recurrence.init(jax.random.key(0), row.width))
        many = {name: np.ones(v.shape, np.float32) for name, v in params.items()}
        first = min(many)
        many[first] = many[first].astype(np.float64)
        for x in (np.ones((1, 3, row.width)), np.ones((1, 3, row.width), np.float32)):
            y, last = jax.eval_shape(recurrence.apply, many, x)
            assert y.dtype == x.dtype
            for leaf in jax.tree.leaves(last):
                assert leaf.dtype in (jnp.float64, jnp.complex128)


@rows(brief=True, fast=_FEW)
def test_numpy_doubles_are_evaluated_in_float32_without_a_warning(row):
    recurrence, x = row.recurrence, np.ones((1, 3, row.width))
    params = jax.eval_shape(lambda: recurrence.init(jax.random.key(0), row.width))
    # Warnings are errors in all tests.
    y, _ = jax.eval_shape(lambda params: recurrence.apply(params, x), params)
    assert y.dtype == jnp.float32
