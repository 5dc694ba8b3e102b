"""Models of published shapes, and the parts that only they use."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.config.spec import build, from_json, spec, to_json
from ssm_jax.layers import GatedMLP
from ssm_jax.models import SequenceModel, mamba2_attention, recurrent_gemma
from ssm_jax.recurrences import SSD
from tests.bad_inputs import refuses
from tests.tiers import tiered

TOKENS = np.random.default_rng(0).integers(0, 7, (2, 12))
SMALL = recurrent_gemma(16, n_layers=8, n_heads=2, vocabulary=7, window=4)
MODELS = {
    "recurrent_gemma": SMALL,
    "mamba2_attention": mamba2_attention(
        16,
        n_layers=5,
        n_heads=2,
        attention=(1, 4),
        recurrence=SSD(d_head=8, d_state=4),
        vocabulary=7,
        window=4,
    ),
}
each = pytest.mark.parametrize("model", tiered(MODELS, 0))

PUBLISHED = {
    # Width, layers, heads; billions of parameters, with and without the embedding.
    "2b": ((2560, 26, 10), (2.68, 2.03)),
    "9b": ((4096, 38, 16), (8.58, 7.53)),
}


@pytest.mark.parametrize("shape", PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_shapes_have_the_published_number_of_parameters(shape):
    sizes, published = shape
    assert parameters(recurrent_gemma(*sizes)) == published


@pytest.mark.nightly  # Its 64 layers are traced one by one.
def test_mamba2_with_attention_has_the_published_number_of_parameters():
    assert parameters(mamba2_attention()) == (2.7, 2.57)


def test_layers_of_attention_are_those_named():
    pattern = mamba2_attention().pattern
    assert pattern.count("b") == 6 and pattern[56] == "b"
    with refuses("attention", 64):
        mamba2_attention(attention=[9, 64])


def parameters(model):
    """Billions of parameters, with and without the table of the embedding."""
    x = jax.ShapeDtypeStruct((1, 4), jnp.int32)
    params = meta.unbox(jax.eval_shape(model.init, jax.random.key(0), x))["params"]
    total, table = (
        sum(leaf.size for leaf in jax.tree.leaves(tree))
        for tree in (params, params["encoder"])
    )
    return round(total / 1e9, 2), round((total - table) / 1e9, 2)


@each
def test_a_config_describes_the_model(model):
    fields = model.__dataclass_fields__.keys() - {"parent", "name"}
    config = spec(SequenceModel, **{name: getattr(model, name) for name in fields})
    assert build(from_json(to_json(config))) == model
    config.block[1].layer.window = 3
    changed = build(config)
    assert changed.block[1].layer.window == 3
    assert changed.block[0] == model.block[0]


@each
def test_tokens_one_by_one_are_those_of_one_call(model):
    variables = jax.jit(model.init)(jax.random.key(0), TOKENS)
    apply = jax.jit(model.apply)
    expected, last = apply(variables, TOKENS)
    state, found = model.initial_state((2,)), []
    for token in TOKENS.T:
        logits, state = apply(variables, token[:, None], state)
        found.append(logits)
    found = np.concatenate(found, 1), state
    chex.assert_trees_all_close(found, (expected, last), rtol=0, atol=2e-5)


@pytest.mark.full
def test_logits_are_bounded_and_the_embedding_is_scaled():
    variables = jax.jit(SMALL.init)(jax.random.key(0), TOKENS)
    assert SMALL.encoder.scale == 4
    assert recurrent_gemma().encoder.scale == 50.5  # Not 50.596, the root of 2560.
    of_table = SMALL.encoder.clone(scale=1.0)
    own = {"params": variables["params"]["encoder"]}
    scaled = SMALL.encoder.apply(own, TOKENS)
    np.testing.assert_array_equal(scaled, 4 * of_table.apply(own, TOKENS))
    free, _ = SMALL.clone(logit_cap=None).apply(variables, TOKENS)
    capped, _ = SMALL.clone(logit_cap=0.5).apply(variables, TOKENS)
    np.testing.assert_allclose(capped, 0.5 * np.tanh(free / 0.5), atol=1e-5)
    assert np.abs(free).max() > 1


@pytest.mark.full
@pytest.mark.parametrize("activation", ["gelu_tanh", "silu"])
def test_gated_mlp_is_a_product_of_two_maps(activation):
    layer = GatedMLP(6, activation)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    variables = jax.jit(layer.init)(jax.random.key(0), x)
    variables = jax.tree.map(lambda leaf: leaf + 0.1, variables)  # No zero biases.

    def linear(name, x):
        dense = variables["params"][name]["dense"]
        return x @ np.float64(dense["kernel"]) + np.float64(dense["bias"])

    gate = linear("gate", x)
    if activation == "silu":
        gate = gate / (1 + np.exp(-gate))
    else:
        cubic = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
        gate = gate / 2 * (1 + np.tanh(cubic))
    expected = linear("out", gate * linear("in", x))
    np.testing.assert_allclose(layer.apply(variables, x), expected, atol=1e-5)
