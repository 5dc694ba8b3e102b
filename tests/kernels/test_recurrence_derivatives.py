"""Derivatives of every order and mode, and JAX transformations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

from ssm_jax.kernels import linear_recurrence
from tests.kernels import oracle
from tests.kernels.cases import (
    METHODS,
    N,
    evaluate,
    expected,
    make,
    weighted,
)
from tests.tiers import tiered

FEW = ("associative", "fft")


@pytest.mark.full
@pytest.mark.parametrize("method", tiered(METHODS, 0, full=FEW))
def test_first_and_second_derivatives_are_known(method):
    # The three states of a constant input of 1 sum up to 3 + 2 a + a^2.
    def total(a):
        return jnp.sum(linear_recurrence(a, jnp.ones((3, 3)), method=method)[0])

    @jax.jit
    def derivatives(a):
        _, tangent = jax.jvp(total, (a,), (jnp.ones(3),))
        return tangent, jax.hessian(total)(a)

    a = jnp.array([0.5, -0.5, 0.0])
    tangent, hessian = derivatives(a)
    np.testing.assert_allclose(tangent, jnp.sum(2 + 2 * a), rtol=1e-6)
    np.testing.assert_allclose(hessian, 2 * np.eye(3), atol=2e-6)


@pytest.mark.parametrize(
    ("method", "kind"),
    tiered(
        [
            *((method, "log_phase") for method in METHODS),
            ("chunked", "varying_complex"),
        ],
        0,
        full=[(method, "log_phase") for method in FEW],
        unpack=True,
    ),
)
def test_derivatives_are_differences_in_both_modes_and_orders(method, kind):
    with jax.enable_x64(True):
        decay, p = make(kind, (3, 2, N))
        inputs = jax.tree.map(in_double, (decay, p.b, p.h0))

        @jax.jit
        def out(decay, b, h0):
            return linear_recurrence(
                decay, b, h0, reverse=method == "fft", method=method
            )

        check_grads(out, inputs, order=2, modes=("fwd", "rev"), rtol=1e-5)


def in_double(value):
    return jnp.asarray(value, jnp.promote_types(value.dtype, jnp.float64))


@pytest.mark.full
@pytest.mark.parametrize("method", tiered(METHODS, 0, full=FEW))
def test_vmap_over_decays_is_one_after_another(method):
    decay, p = make("complex", (5, N))
    decays = np.stack([decay, decay / 2, -decay])
    over = jax.vmap(plain(method), in_axes=(0, None, None, None, None))
    given = over(decays, *p[1:5])
    for i, one in enumerate(decays):
        row = jax.tree.map(lambda v, i=i: v[i], given)
        oracle.assert_close(row, expected(one, p._replace(a=one)), 1e-6)


@pytest.mark.full
@pytest.mark.parametrize("method", tiered(METHODS, 0, full=("associative", "pallas")))
def test_vmap_over_batches_is_one_after_another(method):
    decay, p = make("log_phase", (3, 5, N))
    over = jax.vmap(plain(method), in_axes=(None, 0, 0, 0, 0))
    given = over(decay, *p[1:5])
    for i in range(3):
        row = jax.tree.map(lambda v, i=i: v[i], given)
        part = oracle.Problem(p.a, *(v[i] for v in p[1:5]))
        oracle.assert_close(row, expected(decay, part), 1e-6)


def plain(method):
    return functools.partial(evaluate, reset=None, reverse=False, method=method)


@pytest.mark.full
@pytest.mark.parametrize("method", tiered(METHODS, 0, full=FEW))
def test_checkpoint_changes_no_gradient(method):
    decay, p = make("log_phase", (5, N))

    @jax.checkpoint
    def loss(decay, b, h0):
        out = linear_recurrence(decay, b, h0, method=method)
        return weighted(out, p.c, p.c_last)

    grads = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(decay, p.b, p.h0)
    oracle.assert_close(grads, expected(decay, p)[1], 1e-6)


# Pallas is interpreted here, which JAX does not support with varying axes.
@pytest.mark.full
@pytest.mark.parametrize(
    "method", tiered([name for name in METHODS if name != "pallas"], 0, full=FEW)
)
def test_gradient_inside_shard_map_is_that_of_one_device(method):
    decay, p = make("log_phase", (8, 5, N))
    mesh = jax.make_mesh((8,), ("data",), (jax.sharding.AxisType.Auto,))

    # `decay` is replicated, so its gradient is summed over the devices.
    @jax.jit
    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), *[P("data")] * 4),
        out_specs=(P("data"), (P(), P("data"), P("data"))),
        check_vma=True,
    )
    def step(decay, b, h0, c, c_last):
        return plain(method)(decay, b, h0, c, c_last)

    given = step(decay, *p[1:5])
    oracle.assert_close(given, expected(decay, p), 1e-6)
