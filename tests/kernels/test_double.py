"""Under ``jax_enable_x64``: float64 in, float64 out, with the digits of float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay, linear_recurrence
from tests.kernels import oracle
from tests.kernels.cases import METHODS, make
from tests.kernels.test_bad_inputs import GOOD
from tests.tiers import tiered


def in_double(tree):
    def double(leaf):
        is_float = getattr(leaf, "dtype", None) == np.float32
        return np.asarray(leaf, np.float64) if is_float else leaf

    return jax.tree.map(double, tree)


@pytest.mark.parametrize("kernel", GOOD, ids=lambda kernel: kernel.__name__)
def test_double_in_is_double_out(kernel):
    with jax.enable_x64(True):
        out = jax.tree.leaves(kernel(**in_double(GOOD[kernel])))
    dtypes = {leaf.dtype for leaf in out}
    floating = {dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)}
    assert floating and floating <= {jnp.dtype("float64"), jnp.dtype("complex128")}


@pytest.mark.parametrize("kind", tiered(("real", "log_phase_lo", "complex"), 1, full=2))
@pytest.mark.parametrize("method", tiered(METHODS, ("sequential", "associative")))
def test_decay_in_single_is_taken_as_exact(method, kind):
    decay, p = make(kind, (1100, 4))
    with jax.enable_x64(True):
        b, h0 = (v.astype(np.promote_types(v.dtype, np.float64)) for v in (p.b, p.h0))
        given = jax.jit(functools.partial(linear_recurrence, method=method))(
            jax.tree.map(jnp.asarray, decay), b, h0
        )
    oracle.assert_close(given, oracle.states(p), 1e-12)


@pytest.mark.parametrize("method", tiered(METHODS, ("sequential",)))
def test_double_is_the_loop_to_its_digits(method):
    decay, p = make("log_phase", (3, 17, 4))
    run = functools.partial(linear_recurrence, method=method)
    with jax.enable_x64(True):
        log = LogDecay(*(np.float64(leaf) for leaf in jax.tree.leaves(decay)))
        given = jax.jit(run)(log, np.complex128(p.b), np.complex128(p.h0))
    oracle.assert_close(given, oracle.states(p), 1e-12)
