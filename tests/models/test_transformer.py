"""A Transformer: blocks of two sublayers, and positional embeddings."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ssm_jax.layers import MLP, Attention
from ssm_jax.models import (
    Block,
    PooledHead,
    PositionalEmbedding,
    SequenceModel,
    StepHead,
    TokenEncoder,
    VectorEncoder,
)
from tests.bad_inputs import refuses
from tests.tiers import tiered

LENGTH, HALF, WIDTH = 12, 6, 4
X = np.random.default_rng(0).normal(size=(3, LENGTH, 2)).astype(np.float32)
# Rows with padding at the end, at the start and in between; six valid steps each.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1],
        [0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0],
    ],
    bool,
)


def transformer(attention, *, prenorm=True, **options):
    block = Block(attention, prenorm=prenorm, feedforward=MLP(8))
    return SequenceModel(VectorEncoder(WIDTH), block, 2, StepHead(2), **options)


BOTH_WAYS = Attention(2, bidirectional=True)
POSITIONS = PositionalEmbedding(LENGTH, std=1.0)


@functools.cache
def initialized(net):
    variables = jax.jit(net.init)(jax.random.key(0), X)
    return variables, jax.jit(net.apply)


def close(given, expected):
    chex.assert_trees_all_close(given, expected, rtol=0, atol=2e-5)


def normed(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("prenorm", tiered([True, False]))
def test_block_has_two_residual_sublayers(prenorm):
    layer, feedforward = Attention(2), MLP(8)
    block = Block(layer, prenorm=prenorm, feedforward=feedforward)
    x = np.random.default_rng(0).normal(size=(2, LENGTH, WIDTH)).astype(np.float32)
    variables = jax.jit(block.init)(jax.random.key(0), x)

    def attended(x):
        return layer.apply({"params": variables["params"]["layer"]}, x)[0]

    def mapped(x):
        return feedforward.apply({"params": variables["params"]["feedforward"]}, x)

    expected = x
    for sublayer in map(jax.jit, (attended, mapped)):
        if prenorm:
            expected = expected + sublayer(normed(expected))
        else:
            expected = normed(expected + sublayer(expected))
    close(jax.jit(block.apply)(variables, x)[0], expected)


@pytest.mark.full
def test_without_positions_outputs_ignore_the_order():
    order = np.random.default_rng(0).permutation(LENGTH)
    for options, equal in (({}, True), ({"positions": POSITIONS}, False)):
        variables, apply = initialized(transformer(BOTH_WAYS, **options))
        (y, _), (permuted, _) = apply(variables, X), apply(variables, X[:, order])
        assert np.allclose(permuted, y[:, order], rtol=0, atol=2e-5) == equal


@pytest.mark.full
@pytest.mark.parametrize(
    "attention", tiered([BOTH_WAYS, Attention(2, "linear")], full=1)
)
def test_outputs_ignore_padding_and_other_segments(attention):
    net = transformer(attention, positions=POSITIONS)
    variables, apply = initialized(net)
    alone, _ = apply(variables, X[:, :HALF])
    after, _ = apply(variables, X[:, HALF:])

    padded = np.full(X.shape, 7, np.float32)
    padded[MASK] = X[:, :HALF].reshape(-1, 2)
    y, _ = apply(variables, padded, mask=MASK)
    close(np.asarray(y)[MASK].reshape(alone.shape), alone)

    reset = np.tile(np.arange(LENGTH) == HALF, (3, 1))
    packed, _ = apply(variables, X, reset=reset)
    close(packed, jnp.concatenate([alone, after], 1))


@pytest.mark.full
def test_state_of_linear_attention_continues_the_sequence():
    net = transformer(Attention(2, "linear"))
    variables, apply = initialized(net)
    whole, last = apply(variables, X)
    left, state = apply(variables, X[:, :HALF], net.initial_state((3,)))
    right, state = apply(variables, X[:, HALF:], state)
    close((jnp.concatenate([left, right], 1), state), (whole, last))


@pytest.mark.full
def test_bert_base_has_its_published_number_of_parameters():
    # 109,482,240 with the two token type embeddings, without a classifier.
    block = Block(Attention(12, bidirectional=True), feedforward=MLP(3072))
    net = SequenceModel(
        encoder=TokenEncoder(768, 30_522),
        block=block,
        n_layers=12,
        head=PooledHead(2, d_hidden=768),
        positions=PositionalEmbedding(512),
        normed_encoder=True,
    )
    tokens = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    variables = jax.eval_shape(net.init, jax.random.key(0), tokens)
    n_params = sum(leaf.size for leaf in jax.tree.leaves(variables))
    assert n_params == 109_482_240 - 2 * 768 + (2 * 768 + 2)


POSITIONS_BY_FLAGS = {
    "plain": ({}, [0, 1, 2, 3, 4, 5, 6]),
    "padded": ({"mask": [0, 1, 1, 0, 0, 1, 1]}, [None, 0, 1, None, None, 2, 3]),
    "packed": ({"reset": [1, 0, 0, 1, 0, 1, 0]}, [0, 1, 2, 0, 1, 0, 1]),
    # A segment may start on padding.
    "both": (
        {"mask": [1, 1, 0, 0, 1, 1, 1], "reset": [0, 0, 0, 1, 0, 0, 1]},
        [0, 1, None, None, 0, 1, 0],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "wanted_positions"),
    POSITIONS_BY_FLAGS.values(),
    ids=POSITIONS_BY_FLAGS.keys(),
)
def test_positions_count_the_valid_steps_of_a_segment(flags, wanted_positions):
    positions = PositionalEmbedding(max_length=7)
    x = np.random.default_rng(0).normal(size=(2, 7, 3)).astype(np.float32)
    flags = {name: np.array([row, row], bool) for name, row in flags.items()}
    variables = positions.init(jax.random.key(0), x)
    y = positions.apply(variables, x, **flags)
    for step, position in enumerate(wanted_positions):
        if position is not None:
            expected = x[:, step] + variables["params"]["table"][position]
            np.testing.assert_array_equal(y[:, step], expected)


def test_positions_are_initialized_normal():
    x = jnp.zeros((1, 100))
    params = PositionalEmbedding(50, std=0.3).init(jax.random.key(0), x)["params"]
    assert params["table"].shape == (50, 100)
    assert stats.kstest(np.ravel(params["table"]) / 0.3, "norm").pvalue > 0.01


def test_sequence_longer_than_max_length_is_rejected():
    with refuses("max_length", 8, rule="at least 9"):
        PositionalEmbedding(max_length=8).init(jax.random.key(0), jnp.zeros((2, 9, 3)))


@pytest.mark.full
def test_state_is_rejected_with_positions():
    net = transformer(Attention(2, "linear"), positions=POSITIONS)
    variables, _ = initialized(net)
    with refuses("state", rule="None"):
        net.apply(variables, X, net.initial_state((3,)))


@pytest.mark.full
def test_feedforward_dropout_is_active_only_in_training():
    block = Block(Attention(2), feedforward=MLP(8, dropout=0.5))
    x = np.random.default_rng(0).normal(size=(2, LENGTH, WIDTH)).astype(np.float32)
    variables = jax.jit(block.init)(jax.random.key(0), x)
    calm, _ = jax.jit(block.apply)(variables, x)
    train = jax.jit(functools.partial(block.apply, train=True))
    dropped, _ = train(variables, x, rngs={"dropout": jax.random.key(1)})
    assert not np.allclose(calm, dropped)
