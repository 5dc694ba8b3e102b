"""Models on batches that are sharded over explicit and automatic axes of a mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import (
    MLP,
    Attention,
    ChannelMixing,
    Mamba,
    RecurrentLayer,
    RotaryAttention,
)
from ssm_jax.models import (
    Block,
    PooledHead,
    PositionalEmbedding,
    SequenceModel,
    StepHead,
    TokenEncoder,
    VectorEncoder,
)
from ssm_jax.recurrences import CES, DLR, SelectiveSSM
from tests import meshes
from tests.tiers import tiered

KINDS = meshes.KINDS | meshes.SHARDED_PARAMS
BATCH, LENGTH, VOCABULARY = 8, 12, 7
DROPS = RecurrentLayer(DLR(d_state=3), ChannelMixing("glu", dropout=0.2))
MODELS = {
    "language": SequenceModel(
        TokenEncoder(8, VOCABULARY), Block(Mamba(SelectiveSSM(d_state=3))), 2, None
    ),
    "batch_norm": SequenceModel(
        VectorEncoder(8), Block(DROPS, norm="batch", dropout=0.1), 2, StepHead(2)
    ),
    "scanned": SequenceModel(
        VectorEncoder(8), Block(DROPS), 3, StepHead(2), scan_blocks=True, remat=True
    ),
    "hybrid": SequenceModel(
        VectorEncoder(8),
        (Block(DROPS), Block(RotaryAttention(n_heads=2, window=4), dropout=0.1)),
        5,
        StepHead(2),
        scan_blocks=True,
    ),
    "pooled": SequenceModel(
        VectorEncoder(8),
        Block(RecurrentLayer(CES(bidirectional=True), ChannelMixing()), norm="rms"),
        2,
        PooledHead(3, d_hidden=4, dropout=0.1),
    ),
    "transformer": SequenceModel(
        TokenEncoder(8, VOCABULARY, d_embedding=4),
        Block(Attention(2), feedforward=MLP(8), prenorm=True),
        2,
        None,
        positions=PositionalEmbedding(LENGTH),
        normed_encoder=True,
        encoder_dropout=0.1,
    ),
}


def problem(model):
    """Predictions, what training changes and gradients as a function of a batch."""
    rng = np.random.default_rng(0)
    if isinstance(model.encoder, TokenEncoder):
        x = rng.integers(0, VOCABULARY, (BATCH, LENGTH)).astype(np.int32)
    else:
        x = rng.normal(size=(BATCH, LENGTH, 3)).astype(np.float32)
    flags = {
        "reset": rng.random((BATCH, LENGTH)) < 0.1,
        "mask": rng.random((BATCH, LENGTH)) < 0.7,
    }
    variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), x))
    params = variables.pop("params")

    def loss(params, x, flags):
        (y, _), changed = model.apply(
            {"params": params, **variables},
            x,
            train=True,
            rngs={"dropout": jax.random.key(1)},
            mutable=["batch_stats"],
            **flags,
        )
        return jnp.sum(jnp.sin(y)), (y, changed)

    return jax.grad(loss, has_aux=True), (params, x, flags)


@pytest.mark.parametrize("sharded", tiered([True, False], 0))
@pytest.mark.parametrize("model", tiered(MODELS, 0, full=("transformer", "batch_norm")))
def test_types_of_sharded_batches_agree(model, sharded):
    function, arrays = problem(model)
    meshes.check_types(function, *arrays, sharded=sharded)


@pytest.mark.full
@pytest.mark.parametrize("kind", tiered(KINDS, 0, full=("explicit", "explicit_params")))
@pytest.mark.parametrize("model", tiered(MODELS, 0, full=("language",)))
def test_sharded_batches_have_the_values_and_gradients_of_one_device(model, kind):
    """Also the same dropout, and moments of the whole batch."""
    function, arrays = problem(model)
    expected = jax.jit(function)(*arrays)
    given = kind.evaluate(function, *arrays)
    # Gradients are sums over rows and steps in another order.
    meshes.check_close(given, expected, 1e-5)
