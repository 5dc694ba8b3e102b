"""Dropout by rows: the masks of a row do not depend on its device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.layers import ETSMLP, MLP, Attention, ChannelMixing, RowDropout, rows_from
from ssm_jax.models import Block, LastHead, PairHead, PooledHead, RecurrentNetwork
from ssm_jax.recurrences import GRU
from tests.bad_inputs import refuses
from tests.tiers import tiered

ONES = jnp.ones((40, 6, 50))
RNGS = {"dropout": jax.random.key(0)}


@pytest.mark.parametrize("dtype", tiered([jnp.float32, jnp.bfloat16]))
@pytest.mark.parametrize("rate", [0.25, 0.9])
def test_kept_elements_are_scaled_and_masks_differ_by_row(rate, dtype):
    y = RowDropout(rate).apply({}, ONES.astype(dtype), train=True, rngs=RNGS)
    assert y.dtype == dtype
    kept = y != 0
    expected = (jnp.ones((), dtype) / (1 - rate)).astype(np.float32)
    np.testing.assert_allclose(y[kept].astype(np.float32), expected, rtol=1e-2)
    # 12,000 samples: four standard deviations are at most 0.016.
    assert abs(float(jnp.mean(kept)) - (1 - rate)) < 0.016
    assert len(np.unique(kept.reshape(40, -1), axis=0)) == 40


@pytest.mark.parametrize("axes", [(-2,), (1,), (0,), (0, -1)])
def test_broadcast_dims_share_a_mask(axes):
    layer = RowDropout(0.5, broadcast_dims=axes)
    kept = np.asarray(layer.apply({}, ONES, train=True, rngs=RNGS) != 0)
    for axis in range(3):
        shared = np.all(kept == np.take(kept, [0], axis))
        assert shared == (axis in {axis % 3 for axis in axes})


def test_first_row_is_an_index_in_the_global_batch():
    layer = RowDropout(0.5)
    whole = layer.apply({}, ONES, train=True, rngs=RNGS)
    part = layer.apply({}, ONES[8:16], train=True, first_row=8, rngs=RNGS)
    np.testing.assert_array_equal(part, whole[8:16])
    # Two calls, two keys.
    other = {"dropout": jax.random.key(1)}
    assert not np.array_equal(layer.apply({}, ONES, train=True, rngs=other), whole)


def test_no_dropout_outside_training_or_at_rate_zero():
    for layer, train in ((RowDropout(0.5), False), (RowDropout(0.0), True)):
        np.testing.assert_array_equal(layer.apply({}, ONES, train=train), ONES)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_rate_out_of_range_is_rejected(rate):
    with refuses("rate", rate, rule="below 1"):
        RowDropout(rate)


def test_flax_dropout_masks_differ_between_devices():
    layer = nn.Dropout(0.5, deterministic=False)

    def train(first_row):
        with rows_from(first_row):
            return layer.apply({}, ONES, rngs=RNGS)

    np.testing.assert_array_equal(train(4), train(4))
    assert 0.4 < np.mean(np.asarray(train(0)) != train(4)) < 0.6


class Training(nn.Module):
    """An MLP that always drops."""

    @nn.compact
    def __call__(self, x):
        return MLP(4, dropout=0.5)(x, train=True)


class Rematerialized(nn.Module):
    """A layer inside a Flax transformation, which creates a scope for it."""

    @nn.compact
    def __call__(self, x, *, train=False):
        del train
        return nn.remat(Training)()(x)


MODULES = {
    "channel_mixing": (ChannelMixing("glu", dropout=0.5), (3,)),
    "ets_mlp": (ETSMLP(GRU(d_state=4), 4, kernel_init="xavier", dropout=0.5), ()),
    "attention": (Attention(2, dropout=0.5), ()),
    "mlp": (MLP(8, dropout=0.5), ()),
    "block": (Block(Attention(2), dropout=0.5, feedforward=MLP(4)), ()),
    "pooled": (PooledHead(3, d_hidden=8, dropout=0.5), ()),
    "pair": (PairHead(3, d_hidden=8, dropout=0.5), ()),
    "network": (RecurrentNetwork(GRU(d_state=4), LastHead(2), dropout=0.5), ()),
    "rematerialized": (Rematerialized(), ()),
}


@pytest.mark.parametrize(
    ("module", "args"),
    tiered(
        MODULES,
        ("block",),
        full=("block", "ets_mlp", "attention", "network"),
        unpack=True,
    ),
)
def test_rows_from_reaches_every_module(module, args):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 2, 3, 4)).astype(np.float32)
    variables = jax.jit(lambda x: module.init(jax.random.key(0), x, *args))(x[:4])

    @jax.jit
    def train(x, first_row):
        with rows_from(first_row):
            out = module.apply(variables, x, *args, train=True, rngs=RNGS)
        return out[0] if isinstance(out, tuple) else out

    left, right, other = train(x[:4], 0), train(x[2:], 2), train(x[2:], 0)
    np.testing.assert_allclose(left[2:], right[:2], rtol=0, atol=1e-6)
    assert np.max(np.abs(other - right)) > 1e-2
