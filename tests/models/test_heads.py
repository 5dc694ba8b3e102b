"""Heads and encoders against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy import special, stats

from ssm_jax.models import (
    LastHead,
    PairHead,
    PooledHead,
    ScalarEncoder,
    StepHead,
    TokenEncoder,
    VectorEncoder,
)
from tests.bad_inputs import refuses
from tests.tiers import tiered

D, OUT = 4, 3
X = np.random.default_rng(0).normal(size=(3, 9, D)).astype(np.float32)
MASK = np.array(
    [[1, 1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 1, 1, 1, 1], [1] * 9], bool
)


def mapped(variables, x, name="linear"):
    dense = variables["params"][name]["dense"]
    return np.float64(x) @ np.float64(dense["kernel"]) + np.float64(dense["bias"])


def close(given, expected, atol=1e-5):
    np.testing.assert_allclose(given, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "mask"])
def test_last_head_predicts_from_the_last_valid_step(mask):
    head = LastHead(OUT)
    variables = head.init(jax.random.key(0), X)
    last = X[:, -1] if mask is None else X[np.arange(3), [2, 8, 8]]
    close(head.apply(variables, X, mask=mask), mapped(variables, last))


@pytest.mark.parametrize("l_output", [None, 1, 4, 9])
def test_step_head_predicts_at_the_last_steps(l_output):
    head = StepHead(OUT, l_output)
    variables = head.init(jax.random.key(0), X)
    expected = mapped(variables, X)[:, -(l_output or 9) :]
    close(head.apply(variables, X), expected)


def test_pooled_head_maps_the_mean_of_the_valid_steps():
    head = PooledHead(OUT)
    variables = head.init(jax.random.key(0), X)
    close(head.apply(variables, X), mapped(variables, X.mean(1)))
    x = np.where(MASK[..., None], X, np.float32(1e3))
    mean = np.stack([row[data].mean(0) for row, data in zip(X, MASK, strict=True)])
    close(head.apply(variables, x, mask=MASK), mapped(variables, mean))


def test_pooled_head_without_valid_steps_maps_zeros():
    head = PooledHead(OUT)
    variables = head.init(jax.random.key(0), X)
    given = head.apply(variables, X, mask=np.zeros((3, 9), bool))
    close(given, mapped(variables, np.zeros((3, D))))


def test_pair_head_concatenates_both_means_in_order():
    head = PairHead(OUT, d_hidden=6)
    pairs = np.stack([X, X[::-1]], 1)
    mask = np.stack([MASK, MASK[::-1]], 1)
    variables = head.init(jax.random.key(0), pairs)
    mean = np.stack([row[data].mean(0) for row, data in zip(X, MASK, strict=True)])
    both = np.concatenate([mean, mean[::-1]], -1)
    hidden = mapped(variables, both, "hidden")
    expected = mapped(variables, hidden * special.ndtr(hidden))
    close(head.apply(variables, pairs, mask=mask), expected)


def test_pooled_head_with_a_hidden_layer():
    head = PooledHead(OUT, d_hidden=6)
    variables = head.init(jax.random.key(0), X)
    hidden = np.tanh(mapped(variables, X.mean(1), "hidden"))
    assert hidden.shape == (3, 6)
    close(head.apply(variables, X), mapped(variables, hidden))


@pytest.mark.parametrize("make", tiered([PooledHead, PairHead], (PairHead,)))
def test_hidden_channels_are_dropped_in_training(make):
    x = np.stack([X, X], 1) if make is PairHead else X
    head = make(OUT, d_hidden=200, dropout=0.25)
    variables = jax.tree.map(jnp.ones_like, head.init(jax.random.key(0), x))
    calm = head.apply(variables, x)
    rngs = {"dropout": jax.random.key(1)}
    dropped = head.apply(variables, x, train=True, rngs=rngs)
    # All hidden channels are equal: what is left is the share of those kept.
    share = dropped / calm
    close(share, np.broadcast_to(share[..., :1], share.shape))
    assert np.all(np.abs(share - 1) < 0.2)
    assert len(np.unique(share[..., 0].round(5))) == len(X)


@pytest.mark.parametrize("make", [PooledHead, PairHead])
def test_kernel_init_of_heads(make):
    x = np.stack([X, X], 1) if make is PairHead else X
    head = make(100, d_hidden=100, kernel_init="normal", use_bias=False)
    params = head.init(jax.random.key(0), x)["params"]
    last, hidden = params["linear"]["dense"], params["hidden"]["dense"]
    assert last.keys() == {"kernel"}
    np.testing.assert_array_equal(hidden["bias"], np.zeros(100))
    for kernel in (last["kernel"], hidden["kernel"]):
        normal = stats.norm(0, 0.02).cdf
        assert stats.kstest(np.ravel(kernel), normal).pvalue > 0.01


def test_last_head_with_truncated_normal_init():
    """Weights and bias normal with std 0.1, truncated at two of them."""
    head = LastHead(2000, kernel_init="truncated_normal")
    params = head.init(jax.random.key(0), X)["params"]["linear"]["dense"]
    for leaf in (params["kernel"], params["bias"]):
        assert stats.kstest(np.ravel(leaf) / 0.1, stats.truncnorm(-2, 2).cdf).pvalue > (
            0.01
        )


def test_scalar_encoder_matches_its_formula():
    encoder = ScalarEncoder(d_model=2000)
    x = jnp.asarray([[[2.0], [0.0]]])
    params = encoder.init(jax.random.key(0), x)["params"]["dense"]
    assert stats.kstest(params["kernel"][0], "norm").pvalue > 0.01
    assert stats.kstest(params["bias"] / 0.1, "norm").pvalue > 0.01
    given = encoder.apply({"params": {"dense": params}}, x)
    close(given[0, 0], 2 * params["kernel"][0] + params["bias"])
    close(given[0, 1], params["bias"])


def test_vector_encoder_is_a_linear_map():
    encoder = VectorEncoder(d_model=6)
    variables = encoder.init(jax.random.key(0), X)
    close(encoder.apply(variables, X), mapped(variables, X))


def test_token_encoder_looks_up_rows_of_a_normal_table():
    encoder = TokenEncoder(d_model=20, vocabulary=50, std=0.1)
    tokens = np.array([[3, 0, 49], [3, 3, 1]])
    variables = encoder.init(jax.random.key(0), tokens)
    table = variables["params"]["table"]["embedding"]
    assert table.shape == (50, 20)
    assert stats.kstest(np.ravel(table) / 0.1, "norm").pvalue > 0.01
    close(encoder.apply(variables, tokens), table[tokens], 0)


def test_table_narrower_than_the_model_is_projected_both_ways():
    encoder = TokenEncoder(d_model=6, vocabulary=9, d_embedding=2)
    tokens = np.array([[3, 0, 8], [3, 3, 1]])

    def both(encoder):
        return encoder.attend(encoder(tokens))

    variables = nn.init(both, encoder)(jax.random.key(0))
    params = variables["params"]
    table = params["table"]["embedding"]
    up, down = (params[f"{way}_table"]["dense"]["kernel"] for way in ("from", "to"))
    assert (table.shape, up.shape, down.shape) == ((9, 2), (2, 6), (6, 2))
    assert all(
        params[f"{way}_table"]["dense"].keys() == {"kernel"} for way in ("from", "to")
    )
    close(nn.apply(both, encoder)(variables), table[tokens] @ up @ down @ table.T)
    # A model with a head of its own needs no map to the table.
    assert "to_table" not in encoder.init(jax.random.key(0), tokens)["params"]


REFUSALS = {
    "scalar_encoder": (ScalarEncoder(d_model=4), "x", "(*b, l, 1)", X.shape),
    "too_long": (StepHead(OUT, l_output=10), "l_output", "[1, 9]", 10),
    "pair": (PairHead(OUT, d_hidden=6), "x", "(*b, 2, l, d)", X.shape),
}


@pytest.mark.parametrize(
    ("module", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_error_names_rule_and_value(module, name, rule, value, unchecked):
    with refuses(name, value, rule=rule):
        module.init(jax.random.key(0), X)
