"""Under ``jax_enable_x64`` float64 inputs give outputs of float64 accuracy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.kernels.oracle import assert_close
from tests.recurrences.cases import EVERY_METHOD, WIDTH, problem, rows


def in_double(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


@rows(brief=True, fast=("dlr", "selective", "fru_summed"))
def test_double_in_is_double_out(row):
    p = problem(row, 17)
    with jax.enable_x64(True):
        y, last = jax.eval_shape(row.recurrence.apply, in_double(p.params), p.x * 1.0)
        assert y.dtype == p.x.dtype
        y, last = jax.eval_shape(
            row.recurrence.apply, in_double(p.params), np.float64(p.x)
        )
        assert y.dtype == jnp.float64
        assert y.shape == (*p.x.shape[:-1], row.recurrence.d_out(WIDTH))
        for leaf in jax.tree.leaves(last):
            assert leaf.dtype in (jnp.float64, jnp.complex128)


@pytest.mark.full
@rows(brief=True, fast=EVERY_METHOD)
def test_double_is_the_definition_to_its_digits(row):
    p = problem(row, 17)
    with jax.enable_x64(True):
        params, x = in_double(p.params), np.float64(p.x)
        y, last = jax.jit(row.recurrence.apply)(params, x)
    wanted, wanted_last = row.run(params, x, None)
    assert_close(y, wanted, 1e-10)
    if last is not None:
        assert_close(last, wanted_last, 1e-10)
