"""Models in NNX through `flax.nnx.bridge` compute what they compute in Linen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.core import meta

from ssm_jax.layers import Recurrent
from ssm_jax.recurrences import DLR, S5
from tests.tiers import tiered


@pytest.mark.parametrize(
    "recurrence", tiered([DLR(d_state=4), S5(d_state=16)], 0, full=1)
)
def test_layer_in_nnx_is_that_of_linen(recurrence):
    layer = Recurrent(recurrence)
    x = jax.random.normal(jax.random.key(1), (2, 9, 3))
    bridged = nnx.bridge.ToNNX(layer, rngs=nnx.Rngs(0)).lazy_init(x)
    values = jax.tree.map(lambda leaf: leaf, nnx.to_pure_dict(nnx.state(bridged)))
    params = {"recurrence": values["recurrence"]}
    y, _ = nnx.jit(lambda module: module(x))(bridged)
    expected, _ = jax.jit(layer.apply)({"params": params}, x)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    _, state = bridged(x[:, :4])  # The state is carried by the caller.
    rest, _ = bridged(x[:, 4:], state)
    np.testing.assert_allclose(rest, expected[:, 4:], rtol=1e-4, atol=1e-5)

    def loss(y):
        return jnp.mean(y**2)

    grads = nnx.to_pure_dict(nnx.grad(lambda module: loss(module(x)[0]))(bridged))
    linen = jax.grad(lambda p: loss(layer.apply({"params": meta.unbox(p)}, x)[0]))
    for name, grad in linen(params)["recurrence"].items():
        found = grads["recurrence"][name]
        np.testing.assert_allclose(found, grad, rtol=1e-4, atol=1e-6)
