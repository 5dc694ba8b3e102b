"""Under ``jax_enable_x64`` the dtype of results is that of inputs and parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.oracle import assert_close
from tests.recurrences.cases import EVERY_METHOD, METHODS, problem, rows
from tests.recurrences.table import ROWS


def in_double(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


@rows(
    brief=True,
    fast=("dlr", "selective", "fru_summed"),
    full=(*EVERY_METHOD, "fru_summed"),
)
def test_double_in_is_double_out(row):
    p = problem(row, 17)
    with jax.enable_x64(True):
        y, last = jax.eval_shape(row.recurrence.apply, in_double(p.params), p.x * 1.0)
        assert y.dtype == p.x.dtype
        y, last = jax.eval_shape(
            row.recurrence.apply, in_double(p.params), np.float64(p.x)
        )
        assert y.dtype == jnp.float64
        assert y.shape == (*p.x.shape[:-1], row.recurrence.d_out(row.width))
        for leaf in jax.tree.leaves(last):
            assert leaf.dtype in (jnp.float64, jnp.complex128)


@pytest.mark.full
@rows(brief=True, full=EVERY_METHOD)
def test_double_is_the_definition_to_its_digits(row):
    p = problem(row, 17)
    with jax.enable_x64(True):
        params, x = in_double(p.params), np.float64(p.x)
        y, last = jax.jit(row.recurrence.apply)(params, x)
    expected, wanted_last = row.run(params, x, None)
    assert_close(y, expected, 1e-10)
    if last is not None:
        assert_close(last, wanted_last, 1e-10)


@pytest.mark.full
@pytest.mark.parametrize("name", ["s4", "s4_bidirectional"])
def test_double_kernel_from_the_generating_function_is_the_definition(name):
    row = ROWS[name]
    p = problem(row, 17)
    with jax.enable_x64(True):
        params, x = in_double(p.params), np.float64(p.x)
        run = jax.jit(functools.partial(row.recurrence.apply, method="fft"))
        y, _ = run(params, x)
    assert_close(y, row.run(params, x, None)[0], 1e-12)


@rows(
    methods=METHODS,
    directions=(1,),
    brief=True,
    fast=("ema", "s4", "selective"),
    full=("ema", "s4", "selective"),
)
def test_states_have_the_dtype_of_the_parameters(row, method):
    recurrence, p = row.recurrence, problem(row, 17)
    x, flags_of_steps = p.x, np.tile(np.arange(17) < 12, (2, 1))

    def tokens(flags):
        reset = None if method == "fft" else flags
        options = {"method": method, "mask": flags, "reset": reset}
        _, state = recurrence.apply(p.params, x, **options)

        def one_token(state, x):
            y, state = recurrence.apply(p.params, x[:, None], state)
            return state, y

        return jax.lax.scan(one_token, state, np.swapaxes(x, 0, 1))

    with jax.enable_x64(True):
        for flags in (None, flags_of_steps):
            shapes = jax.eval_shape(functools.partial(tokens, flags))
            for leaf in jax.tree.leaves(shapes):
                assert leaf.dtype in (jnp.float32, jnp.complex64)
