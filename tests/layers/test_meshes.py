"""Every layer over time on arrays that are sharded over explicit and automatic axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import ExpertChoiceMLP
from tests import meshes
from tests.layers.cases import WIDTH, rows
from tests.tiers import tiered

KINDS = meshes.KINDS | meshes.SHARDED_PARAMS | meshes.BOTH_AXES
FEW = ("linear_causal", "local_causal", "mamba", "recurrent")
BATCH, LENGTH = 8, 12
_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)
FLAGS = {
    "reset": _RNG.random((BATCH, LENGTH)) < 0.1,
    "mask": _RNG.random((BATCH, LENGTH)) < 0.7,
}


def problem(layer, **options):
    """Values and gradients of a layer as a function of arrays, and these."""
    variables = meta.unbox(jax.jit(layer.init)(jax.random.key(0), X))
    state = layer.initial_state((BATCH,), WIDTH)

    def loss(variables, x, state, flags):
        y, last = layer.apply(
            variables, x, state, rngs={"dropout": jax.random.key(1)}, **flags, **options
        )
        total = sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(last))
        return jnp.sum(jnp.sin(y)) + total, (y, last)

    return jax.grad(loss, (0, 1), has_aux=True), (variables, X, state, FLAGS)


@pytest.mark.parametrize("spec", tiered([meshes.ROWS, meshes.CHANNELS]), ids=str)
@pytest.mark.parametrize("sharded", tiered([True, False]))
@rows(fast=("linear_causal",), full=FEW)
def test_types_of_sharded_rows_agree(row, sharded, spec):
    function, arrays = problem(row.layer, train=True)
    meshes.check_types(function, *arrays, sharded=sharded, spec=spec)


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(KINDS, 0, full=("explicit", "auto_params")))
@rows(fast=(), full=("recurrent", "softmax_rotary"))
def test_sharded_rows_have_the_values_and_gradients_of_one_device(row, kind):
    function, arrays = problem(row.layer, train=True)
    check(function, arrays, kind)


def check(function, arrays, kind):
    expected = jax.jit(function)(*arrays)
    given = kind.evaluate(function, *arrays)
    # Gradients are sums over rows and steps in another order.
    meshes.check_close(given, expected, 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(meshes.KINDS, 0, full=("explicit",)))
def test_experts_of_sharded_rows_choose_the_steps_of_one_device(kind):
    layer = ExpertChoiceMLP(d_hidden=5, n_experts=2)
    variables = meta.unbox(jax.jit(layer.init)(jax.random.key(0), X))

    def loss(variables, x, mask):
        y = layer.apply(variables, x, mask=mask)
        return jnp.sum(jnp.sin(y)), y

    check(jax.grad(loss, (0, 1), has_aux=True), (variables, X, FLAGS["mask"]), kind)
