"""Axes that are padded, split and joined, and products of all steps as rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ssm_jax.kernels import axes, compiling_for
from tests.tiers import tiered

X = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("size", tiered([1, 2, 4, 7], (4,)))
def test_chunks_are_joined_to_what_was_split(axis, size):
    length = X.shape[axis]
    in_place = axes.split_axis(jnp.asarray(X), axis, size)
    first = axes.split_chunks(jnp.asarray(X), axis=axis, size=size)
    np.testing.assert_array_equal(np.moveaxis(first, 0, axis), in_place)
    assert in_place.shape[axis : axis + 2] == (-(-length // size), size)
    np.testing.assert_array_equal(axes.join_axis(in_place, axis, length), X)
    np.testing.assert_array_equal(axes.join_chunks(first, axis=axis, length=length), X)
    whole = np.reshape(np.moveaxis(first, axis + 1, 1), (-1, X.size // length))
    np.testing.assert_array_equal(whole[length:], 0)


def test_one_axis_is_padded_on_both_sides():
    given = axes.pad_axis(jnp.asarray(X), -2, before=1, after=2, constant_values=7)
    expected = np.pad(X, [(0, 0), (1, 2), (0, 0)], constant_values=7)
    np.testing.assert_array_equal(given, expected)


def product(x, w):
    return axes.by_rows(lambda rows: rows @ w, x)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("batch", [(), (4,), (4, 6), (2, 2, 6), (0, 6)])
def test_rows_are_those_of_the_product(batch, platform):
    x = X.reshape(-1, 3)[: np.prod(batch, dtype=int)].reshape(*batch, 3)
    with compiling_for(platform):
        np.testing.assert_allclose(product(jnp.asarray(x), W), x @ W, rtol=1e-5)


def test_no_copy_is_transposed_for_the_gradient_of_a_weight():
    def compiled(multiply):
        loss = jax.grad(lambda w: jnp.sum(jnp.sin(multiply(jnp.asarray(X), w))))
        return jax.jit(loss).lower(W).compile().as_text()

    assert " transpose(" in compiled(jnp.matmul)
    assert " transpose(" not in compiled(product)


@pytest.mark.full
def test_steps_may_be_divided_among_devices_by_their_type():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        for spec in (PartitionSpec("data"), PartitionSpec(None, "data")):
            x = jax.device_put(X, NamedSharding(mesh, spec))
            y = jax.jit(product)(x, W)
            assert y.sharding.is_equivalent_to(x.sharding, 3)
            np.testing.assert_allclose(y, X @ W, rtol=1e-5)
