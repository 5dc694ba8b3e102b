"""Stacks of trees and their derivatives against `jax.numpy.stack`."""

import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels.platforms import compiling_for
from ssm_jax.models.stacking import stack, unstack

TREES = [
    {"a": jnp.arange(6.0).reshape(2, 3) + k, "b": jnp.full(2, k, jnp.int32)}
    for k in range(5)
]


def plain(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def loss(stack, trees):
    weight = jnp.arange(30.0).reshape(5, 2, 3)
    return jnp.sum(weight * jnp.sin(stack(trees)["a"]) ** 2)


def floats(trees):
    return [{"a": tree["a"]} for tree in trees]


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_leaves_are_stacked(platform):
    with compiling_for(platform):
        chex.assert_trees_all_equal(jax.jit(stack)(TREES), plain(TREES))


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_stacks_are_split(platform):
    split = jax.jit(unstack, static_argnums=1)
    with compiling_for(platform):
        chex.assert_trees_all_equal(list(split(plain(TREES), len(TREES))), TREES)


def test_trees_without_floats_are_stacked_and_split():
    trees = [{"b": tree["b"], "c": None} for tree in TREES]
    chex.assert_trees_all_equal(stack(trees), plain(trees))
    chex.assert_trees_all_equal(list(unstack(plain(trees), len(trees))), trees)


def test_gradient_is_that_of_the_plain_stack():
    trees = floats(TREES)
    ours, expected = (
        jax.grad(lambda t, s=s: loss(s, t))(trees) for s in (stack, plain)
    )
    chex.assert_trees_all_equal(ours, expected)


def test_tangents_are_those_of_the_plain_stack():
    trees = floats(TREES)
    ours, expected = (jax.jvp(s, (trees,), (trees,)) for s in (stack, plain))
    chex.assert_trees_all_equal(ours, expected)


def test_gradients_of_gradients_and_batches_are_those_of_the_plain_stack():
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, -leaf]), floats(TREES))

    def second(stack):
        def of_gradient(trees):
            gradient = jax.grad(lambda t: loss(stack, t))(trees)
            return sum(jnp.sum(jnp.cos(leaf)) for leaf in jax.tree.leaves(gradient))

        return jax.vmap(jax.grad(of_gradient))(batch)

    chex.assert_trees_all_close(second(stack), second(plain), rtol=1e-6)


def test_indices_are_right_for_numbers_that_are_not_finite():
    for value in (np.nan, np.inf, -0.0):
        trees = [{"a": tree["a"].at[0, 0].set(value)} for tree in TREES]
        rows = jax.grad(lambda t: jnp.sum(stack(t)["a"][3]))(trees)
        assert [float(row["a"].sum()) for row in rows] == [0, 0, 0, 6, 0]


def test_slices_of_the_gradient_are_one_kernel():
    gradient = jax.jit(jax.grad(lambda trees: loss(stack, trees)))
    program = gradient.lower(floats(TREES)).compile().as_text()
    # XLA would compile one kernel for each position that it knows.
    assert len(re.findall(r"dynamic-slice\(", program)) >= len(TREES)
    assert not re.findall(r" slice\(.*slice=\{\[[1-9]", program)
