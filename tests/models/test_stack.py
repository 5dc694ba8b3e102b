"""`SequenceModel`: states, masks and normalization of every layer."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.core import meta

from ssm_jax.layers import ChannelMixing, RecurrentLayer, RotaryAttention
from ssm_jax.models import (
    Block,
    PairHead,
    PooledHead,
    SequenceModel,
    StepHead,
    TokenEncoder,
    VectorEncoder,
)
from ssm_jax.recurrences import DLR, DSS
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
BLOCKS = {
    "layer-post": ("layer", False),
    "layer-pre": ("layer", True),
    "batch-pre": ("batch", True),
    "scalar-post": ("scalar", False),
}
each_block = pytest.mark.parametrize(
    ("norm", "prenorm"),
    tiered(BLOCKS, list(BLOCKS)[-1:], full=list(BLOCKS)[-1:], unpack=True),
)


def model(norm="layer", prenorm=False, *, head=None, dropout=0.0, **options):
    layer = RecurrentLayer(DLR(d_state=3, **options), ChannelMixing(dropout=dropout))
    return SequenceModel(
        encoder=VectorEncoder(WIDTH),
        block=Block(layer, norm, prenorm=prenorm, dropout=dropout),
        n_layers=2,
        head=head or StepHead(2),
    )


@functools.cache
def initialized(net):
    """Variables of a model with random running moments, and its compiled ``apply``."""
    variables = jax.jit(net.init)(jax.random.key(0), X[:, :HALF])
    rng = np.random.default_rng(1)
    moments = jax.tree.map(
        lambda v: jnp.asarray(rng.uniform(0.5, 1.5, v.shape), v.dtype),
        variables.get("batch_stats", {}),
    )
    variables = meta.unbox(variables) | ({"batch_stats": moments} if moments else {})
    return variables, jax.jit(net.apply, static_argnames=("train", "mutable"))


def assert_close(given, expected):
    chex.assert_trees_all_close(given, expected, rtol=0, atol=2e-5)


@pytest.mark.full
@each_block
def test_state_of_all_layers_continues_the_sequence(norm, prenorm):
    net = model(norm, prenorm)
    variables, apply = initialized(net)
    whole, last = apply(variables, X)
    left, state = apply(variables, X[:, :HALF], net.initial_state((3,)))
    right, state = apply(variables, X[:, HALF:], state)
    assert_close((jnp.concatenate([left, right], 1), state), (whole, last))
    assert len(state) == 2
    chex.assert_trees_all_equal_shapes_and_dtypes(state, net.initial_state((3,)))
    # The layers have separate states.
    assert np.abs(state[0] - state[1]).max() > 1e-2


def hybrid(**fields):
    """Two recurrences, then attention in windows, and a cut period."""
    recurrent = Block(RecurrentLayer(DLR(d_state=3), ChannelMixing()), prenorm=True)
    attention = Block(RotaryAttention(n_heads=2, window=2), prenorm=True)
    options = {"n_layers": 5, "pattern": "aab"} | fields
    return SequenceModel(
        VectorEncoder(WIDTH), (recurrent, attention), head=StepHead(2), **options
    )


@pytest.mark.full
def test_states_of_different_layers_continue_the_sequence():
    """Also decoding step by step, where the cached window moves on."""
    net = hybrid()
    variables, apply = initialized(net)
    whole, last = apply(variables, X)
    initial = net.initial_state((3,))
    assert [len(jax.tree.leaves(state)) for state in initial] == [1, 1, 3, 1, 1]
    left, state = apply(variables, X[:, :HALF], initial)
    right, state = apply(variables, X[:, HALF:], state)
    assert_close((jnp.concatenate([left, right], 1), state), (whole, last))
    chex.assert_trees_all_equal_shapes_and_dtypes(state, initial)
    outputs, state = [], initial
    for t in range(LENGTH):
        y, state = apply(variables, X[:, t : t + 1], state)
        outputs.append(y)
    assert_close((jnp.concatenate(outputs, 1), state), (whole, last))


PATTERNS = {
    "none": (None, 5, "ababa"),
    "cut": ("aab", 5, "aabaa"),
    "each": ("abbab", 5, "abbab"),
    "longer": ("abbbb", 3, "abb"),
}


@pytest.mark.parametrize("row", PATTERNS.values(), ids=PATTERNS.keys())
def test_pattern_names_the_block_of_each_layer(row):
    pattern, n_layers, expected = row
    net = hybrid(pattern=pattern, n_layers=n_layers)
    a, b = net.block
    assert net.blocks == tuple({"a": a, "b": b}[letter] for letter in expected)
    assert net.recurrence == a.layer.recurrence


def test_patterns_and_blocks_that_do_not_fit_are_rejected():
    with refuses("pattern", "'aac'", rule="'ab'"):
        hybrid(pattern="aac")
    with refuses("pattern", "''", rule="'ab'"):
        hybrid(pattern="")
    with refuses("pattern", "'aa'", rule="every block"):
        hybrid(pattern="aa")
    with refuses("pattern", "'aab'", rule="first 2 layers"):
        hybrid(n_layers=2)
    with refuses("block", (), rule="at least one"):
        hybrid().clone(block=())
    a, b = hybrid().block
    with refuses("block", [True, False], rule="prenorm"):
        hybrid().clone(block=(a, b.clone(prenorm=False)))
    with refuses("block", ("rms", 1e-5), rule="norm"):
        hybrid().clone(block=(a, b.clone(norm="rms")))
    post = [each.clone(prenorm=False) for each in (a, b.clone(norm="rms"))]
    with refuses("block", ("rms", 1e-5), rule="norm"):
        hybrid().clone(block=tuple(post), normed_encoder=True)
    assert hybrid().clone(block=tuple(post)).blocks[2].norm == "rms"


@pytest.mark.full
def test_padding_and_segments_reach_every_layer_of_a_hybrid():
    net = hybrid()
    variables, apply = initialized(net)
    left, _ = apply(variables, X[:, :HALF])
    right, last = apply(variables, X[:, HALF:])
    reset = np.tile(np.arange(LENGTH) == HALF, (3, 1))
    packed = apply(variables, X, reset=reset)
    assert_close(packed, (jnp.concatenate([left, right], 1), last))
    padded = np.full(X.shape, 7, np.float32)
    padded[MASK] = X[:, HALF:].reshape(-1, 2)
    given, state = apply(variables, padded, mask=MASK)
    assert_close((given[MASK].reshape(right.shape), state), (right, last))


class Entering(nn.Module):
    """A layer that returns zeros and records its arguments."""

    @nn.compact
    def __call__(self, x, state=None, *, reset=None, mask=None, train=False):
        self.sow("intermediates", "x", x)
        return jnp.zeros_like(x), state


@pytest.mark.full
def test_encoder_dropout_follows_the_encoder_normalization():
    net = SequenceModel(
        encoder=VectorEncoder(50),
        block=Block(Entering()),
        n_layers=2,
        head=StepHead(2),
        normed_encoder=True,
        encoder_dropout=0.25,
    )
    variables = {"params": jax.jit(net.init)(jax.random.key(0), X)["params"]}

    def entering(**options):
        _, sown = net.apply(variables, X, mutable="intermediates", **options)
        blocks = sown["intermediates"]
        return tuple(np.asarray(blocks[f"block_{i}"]["layer"]["x"][0]) for i in (0, 1))

    calm, _ = entering()
    np.testing.assert_allclose(calm.mean(-1), 0, atol=1e-6)
    np.testing.assert_allclose(calm.std(-1), 1, atol=1e-3)
    rngs = {"dropout": jax.random.key(1)}
    first, second = entering(train=True, rngs=rngs)
    kept = first != 0
    assert abs(kept.mean() - 0.75) < 0.03
    np.testing.assert_allclose(first[kept], calm[kept] / 0.75, rtol=1e-5)
    assert np.all(second != 0)  # The block's own rate is 0; it normalises the sum.


@pytest.mark.full
def test_encoder_dropout_is_off_by_default():
    net = SequenceModel(VectorEncoder(4), Block(Entering()), 1, StepHead(2))
    variables = net.init(jax.random.key(0), X)
    calm, _ = net.apply(variables, X)
    trained, _ = net.apply(variables, X, train=True)
    np.testing.assert_array_equal(calm, trained)


def assert_padding_is_not_there(net):
    variables, apply = initialized(net)
    data = X[:, :HALF]
    padded = np.full(X.shape, 7, np.float32)
    padded[MASK] = data.reshape(-1, 2)
    assert_close(apply(variables, padded, mask=MASK), apply(variables, data))


@pytest.mark.full
@each_block
def test_padding_changes_no_prediction_and_no_state(norm, prenorm):
    assert_padding_is_not_there(model(norm, prenorm, head=PooledHead(3)))


@pytest.mark.full
def test_padding_changes_no_prediction_in_two_directions():
    assert_padding_is_not_there(model(head=PooledHead(3), bidirectional=True))


@pytest.mark.full
def test_moments_of_a_batch_ignore_padding():
    net = model("batch", prenorm=True, head=PooledHead(3))
    variables, apply = initialized(net)
    step = {"train": True, "mutable": "batch_stats"}
    data = X[:, :HALF]
    padded = np.full(X.shape, 7, np.float32)
    padded[MASK] = data.reshape(-1, 2)
    given = apply(variables, padded, mask=MASK, **step)
    expected = apply(variables, data, **step)
    assert_close(given, expected)
    # Moments over the padding would differ.
    _, careless = apply(variables, padded, **step)
    differ = jax.tree.map(
        lambda a, b: np.abs(a - b).max() > 1e-3, careless, expected[1]
    )
    assert all(jax.tree.leaves(differ))


@pytest.mark.full
def test_segments_reach_every_layer():
    net = model()
    variables, apply = initialized(net)
    left, _ = apply(variables, X[:, :HALF])
    right, last = apply(variables, X[:, HALF:])
    reset = np.tile(np.arange(LENGTH) == HALF, (3, 1))
    packed = apply(variables, X, reset=reset)
    assert_close(packed, (jnp.concatenate([left, right], 1), last))


@pytest.mark.full
def test_without_a_head_the_embedding_table_maps_to_logits():
    tokens = np.random.default_rng(0).integers(0, 7, (2, LENGTH))
    layer = RecurrentLayer(DLR(d_state=3), ChannelMixing())
    block = Block(layer, prenorm=True)
    tied = SequenceModel(TokenEncoder(WIDTH, vocabulary=7), block, 1, head=None)
    params = meta.unbox(jax.jit(tied.init)(jax.random.key(0), tokens))["params"]
    assert params.keys() == {"encoder", "block_0", "norm"}

    def found(net, params):
        @functools.partial(jax.value_and_grad, has_aux=True)
        def of(params):
            y, state = net.apply({"params": params}, tokens)
            return jnp.sum(y[..., 2]), (y, state)

        return jax.jit(of)(params)

    # The same model with a head whose kernel is the transposed table.
    table = params["encoder"]["table"]["embedding"]
    head = {"linear": {"dense": {"kernel": table.T, "bias": np.zeros(7, np.float32)}}}
    given, of_tied = found(tied, params)
    expected, of_both = found(tied.clone(head=StepHead(7)), params | {"head": head})
    chex.assert_trees_all_close(given, expected, rtol=1e-5, atol=2e-5)
    of_table = of_both["encoder"]["table"]["embedding"]
    of_head = of_both["head"]["linear"]["dense"]["kernel"].T
    given = of_tied["encoder"]["table"]["embedding"]
    np.testing.assert_allclose(given, of_table + of_head, rtol=1e-4, atol=1e-4)


def test_model_without_head_and_table_is_rejected():
    net = model().clone(head=None)
    with refuses("head", "VectorEncoder"):
        jax.eval_shape(net.init, jax.random.key(0), X)


@pytest.mark.full
def test_layers_have_separate_parameters():
    params = initialized(model("scalar", prenorm=True))[0]["params"]
    assert params.keys() == {"encoder", "block_0", "block_1", "norm", "head"}
    one, other = (params[f"block_{i}"]["layer"]["recurrent"] for i in (0, 1))
    assert np.any(one["recurrence"]["w_re"] != other["recurrence"]["w_re"])


@pytest.mark.full
def test_block_has_a_residual_connection():
    layer = RecurrentLayer(DLR(d_state=3), ChannelMixing())
    x = np.random.default_rng(0).normal(size=(2, LENGTH, WIDTH)).astype(np.float32)
    mean, deviation = x.mean(-1, keepdims=True), x.std(-1, keepdims=True)
    for prenorm in (False, True):
        block = Block(layer, "scalar", prenorm=prenorm)
        variables = meta.unbox(jax.jit(block.init)(jax.random.key(0), x))
        inner = {"params": variables["params"]["layer"]}
        entering = (x - mean) / deviation if prenorm else x
        expected = x + jax.jit(layer.apply)(inner, entering)[0]
        if not prenorm:
            expected -= expected.mean(-1, keepdims=True)
            expected /= expected.std(-1, keepdims=True)
        assert_close(jax.jit(block.apply)(variables, x)[0], expected)


@pytest.mark.full
def test_dropout_is_active_only_in_training():
    net = model(dropout=0.5)
    variables, apply = initialized(net)
    calm = apply(variables, X)
    assert_close(apply(variables, X), calm)
    one, same, other = (
        apply(variables, X, train=True, rngs={"dropout": jax.random.key(seed)})[0]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
    assert not np.allclose(one, calm[0])


@pytest.mark.full
def test_model_of_pairs_of_token_sequences():
    net = model(head=PairHead(3, d_hidden=5)).clone(encoder=TokenEncoder(WIDTH, 11))
    tokens = np.random.default_rng(0).integers(0, 11, (3, 2, 6))
    variables = jax.jit(net.init)(jax.random.key(0), tokens)
    apply = jax.jit(net.apply)
    mask = np.broadcast_to(np.arange(6) < 4, tokens.shape)
    padded, states = apply(variables, tokens, mask=mask)
    expected, last = apply(variables, tokens[..., :4])
    assert padded.shape == (3, 3)
    assert_close((padded, states), (expected, last))
    chex.assert_trees_all_equal_shapes(states, net.initial_state((3, 2)))


PUBLISHED = {
    "atomic_1": (DLR(d_state=4096), 128, 1, 1, 1_074_051),
    "atomic_6": (DLR(d_state=4096), 128, 6, 1, 6_441_101),
    "shift": (DLR(d_state=4096), 32, 1, 8, 271_818),
    "dss_1": (DSS(d_state=4096, eigenvalue_init="lin"), 128, 1, 1, 1_074_179),
}


@pytest.mark.parametrize("row", PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_models_have_the_published_number_of_parameters(row):
    recurrence, d_model, n_layers, d_output, published = row
    layer = RecurrentLayer(recurrence, ChannelMixing())
    net = SequenceModel(
        encoder=VectorEncoder(d_model),
        block=Block(layer, "scalar"),
        n_layers=n_layers,
        head=StepHead(d_output),
    )
    x = jax.ShapeDtypeStruct((1, 64, 3), jnp.float32)
    variables = jax.eval_shape(net.init, jax.random.key(0), x)
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == published


PUBLISHED_ATTENTION = {
    "attention_1": (1, None, 83_332),
    "attention_2": (2, None, 166_023),
    "attention_feedforward_1": (1, 16 * 128, 1_136_772),
    "attention_feedforward_2": (2, 16 * 128, 2_272_903),
}


@pytest.mark.parametrize(
    ("n_layers", "d_feedforward", "published"),
    PUBLISHED_ATTENTION.values(),
    ids=PUBLISHED_ATTENTION.keys(),
)
def test_attention_has_the_published_number_of_parameters(
    n_layers, d_feedforward, published
):
    layer = RotaryAttention(n_heads=4, d_feedforward=d_feedforward)
    block = Block(layer, norm="scalar")
    net = SequenceModel(VectorEncoder(128), block, n_layers, StepHead(1))
    x = jax.ShapeDtypeStruct((1, 64, 3), jnp.float32)
    variables = jax.eval_shape(net.init, jax.random.key(0), x)
    # The published number includes the feedthrough of a DLR in each layer, 128
    # parameters that the authors' code creates and that their attention does not use.
    unused = 128 * n_layers
    n_params = sum(leaf.size for leaf in jax.tree.leaves(variables))
    assert n_params + unused == published


@pytest.mark.full
@pytest.mark.parametrize("n_states", [0, 1, 3])
def test_wrong_number_of_states_is_rejected(n_states):
    net = model()
    variables, _ = initialized(net)
    (state, _) = net.initial_state((3,))
    with refuses("state", n_states, rule="2"):
        net.apply(variables, X, (state,) * n_states)
