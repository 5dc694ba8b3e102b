"""Models in bfloat16, and blocks whose activations are computed again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.core import meta

from ssm_jax.layers import MLP, ChannelMixing, Mamba, RecurrentLayer, RotaryAttention
from ssm_jax.models import (
    Block,
    LastHead,
    Norm,
    RecurrentNetwork,
    SequenceModel,
    StepHead,
    TokenEncoder,
    VectorEncoder,
)
from ssm_jax.recurrences import DLR, GRU
from tests.tiers import tiered

LENGTH = 32
DROPOUT = 0.3


def vectors(layer, norm="layer", n_layers=2, **fields):
    block = Block(layer, norm=norm, prenorm=True, feedforward=MLP(16), dropout=DROPOUT)
    return SequenceModel(VectorEncoder(8), block, n_layers, StepHead(2), **fields)


def tokens(**fields):
    block = Block(RecurrentLayer(DLR(d_state=4), ChannelMixing()))
    return SequenceModel(TokenEncoder(8, 5), block, 1, None, **fields)


def hybrid(**fields):
    blocks = (
        Block(DLR_LAYER, prenorm=True, dropout=DROPOUT),
        Block(RotaryAttention(n_heads=2, window=4), prenorm=True),
    )
    return SequenceModel(VectorEncoder(8), blocks, 5, StepHead(2), **fields)


def network(**fields):
    return RecurrentNetwork(GRU(d_state=4), LastHead(2), VectorEncoder(3), **fields)


DLR_LAYER = RecurrentLayer(DLR(d_state=4), ChannelMixing("glu"))
MODELS = {
    "layer": lambda **fields: vectors(DLR_LAYER, **fields),
    "batch": lambda **fields: vectors(DLR_LAYER, "batch", **fields),
    "scalar": lambda **fields: vectors(DLR_LAYER, "scalar", **fields),
    "mamba": lambda **fields: vectors(Mamba(), "rms", **fields),
    "tokens": tokens,
    "hybrid": hybrid,
    "network": network,
}


def trained(model, *, seed=0):
    """Parameters, and a jitted gradient of the mean square of the predictions."""
    shape = (2, LENGTH) if "vocabulary" in vars(model.encoder) else (2, LENGTH, 3)
    rng = np.random.default_rng(seed)
    x = rng.integers(5, size=shape) if len(shape) == 2 else rng.standard_normal(shape)
    x = jnp.asarray(x, jnp.int32 if len(shape) == 2 else jnp.float32)
    variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), x))
    variables.pop("metrics", None)

    def loss(params):
        (y, state), _ = model.apply(
            {**variables, "params": params},
            x,
            train=True,
            mutable=["batch_stats", "metrics"],
            rngs={"dropout": jax.random.key(1)},
        )
        return jnp.mean(jnp.square(y)), (y, state)

    return variables["params"], jax.jit(jax.value_and_grad(loss, has_aux=True))


@pytest.mark.parametrize("build", tiered(MODELS, fast=(), full=()))
def test_modules_compute_in_bfloat16(build):
    """Recurrences, parameters, gradients, states and predictions stay float32."""
    seen = []

    def record(call, args, kwargs, context):
        y = call(*args, **kwargs)
        leaf = isinstance(context.module, nn.Dense | Norm | nn.Embed)
        if leaf and context.method_name in ("__call__", "attend"):
            seen.append(y.dtype)
        return y

    model = build(dtype="bfloat16")
    params, gradient = trained(model)
    seen.clear()
    with nn.intercept_methods(record):
        (_, (y, state)), grads = gradient(params)
    assert len(seen) > 1 and set(seen) == {jnp.dtype(jnp.bfloat16)}
    wide = {jnp.dtype(jnp.float32), jnp.dtype(jnp.complex64)}
    assert {leaf.dtype for leaf in jax.tree.leaves((params, grads, y, state))} <= wide
    # The same parameters as those of the float32 model, and nearly its predictions.
    same, exact = trained(build())
    assert jax.tree.all(jax.tree.map(np.array_equal, params, same))
    (_, (expected, _)), of_wanted = exact(same)
    assert 0 < np.abs(y - expected).max() < 0.05 * np.abs(expected).max()
    for found, leaf in zip(*map(jax.tree.leaves, (grads, of_wanted)), strict=True):
        # Of a bias before BatchNorm: zero, but for what rounding leaves.
        rounding = 2.5e-3 if np.linalg.norm(leaf) < 1e-5 else 1e-3
        assert np.linalg.norm(found - leaf) <= 0.1 * np.linalg.norm(leaf) + rounding


def test_dtype_that_is_none_is_refused(unchecked):
    with pytest.raises(ValueError, match="`dtype` must be one of"):
        tokens(dtype="float16")


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rematerialized_blocks_are_the_same_model(dtype):
    """Dropout masks and metrics of the layers included."""
    # XLA rounds to bfloat16 elsewhere where the blocks are not in a scan.
    params, plain = trained(vectors(DLR_LAYER, dtype=dtype, scan_blocks=True))
    same, again = trained(vectors(DLR_LAYER, dtype=dtype, remat=True))
    assert jax.tree.all(jax.tree.map(np.array_equal, params, same))
    (loss, _), expected = plain(params)
    (found, _), grads = again(params)
    np.testing.assert_allclose(found, loss, rtol=1e-6)
    for one, other in zip(*map(jax.tree.leaves, (grads, expected)), strict=True):
        tolerance = 1e-5 if dtype == "float32" else 1e-2
        assert np.linalg.norm(one - other) <= tolerance * (1 + np.linalg.norm(other))


def temporary_bytes(**fields):
    """Temporary memory of the gradient of six blocks on 2 rows of 512 steps."""
    block = Block(RecurrentLayer(DLR(d_state=4), ChannelMixing()))
    model = SequenceModel(VectorEncoder(16), block, 6, StepHead(2), **fields)
    x = jnp.zeros((2, 512, 3))
    variables = meta.unbox(jax.eval_shape(model.init, jax.random.key(0), x))

    def loss(variables, x):
        return jnp.mean(jnp.square(model.apply(variables, x)[0]))

    compiled = jax.jit(jax.grad(loss)).lower(variables, x).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.nightly
def test_rematerialized_blocks_take_less_memory():
    assert temporary_bytes(remat=True) < 0.7 * temporary_bytes()
