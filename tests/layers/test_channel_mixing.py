"""Maps over channels against their formulas in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from ssm_jax.layers import ChannelMixing, Linear
from ssm_jax.layers.channel_mixing import gelu

D, FEATURES = 6, 5
X = np.random.default_rng(0).normal(size=(3, 7, D)).astype(np.float32)


def exact_gelu(x):
    x = np.float64(x)
    return x * special.ndtr(x)


def weights(variables, name="out"):
    dense = variables["params"][name]["dense"]
    return np.float64(dense["kernel"]), np.float64(dense["bias"])


def test_gelu_and_its_derivatives_match_float64():
    x = np.linspace(-6, 6, 101).astype(np.float32)[:, None, None]
    density = np.exp(-(np.float64(x) ** 2) / 2) / np.sqrt(2 * np.pi)
    slope = special.ndtr(np.float64(x)) + x * density
    bend = (2 - np.float64(x) ** 2) * density
    first = jax.grad(lambda x: jnp.sum(gelu(x)))
    second = jax.grad(lambda x: jnp.sum(first(x)))
    for derivative, expected in ((gelu, exact_gelu(x)), (first, slope), (second, bend)):
        given = jax.jit(derivative)(x)
        np.testing.assert_allclose(given, expected, rtol=0, atol=1e-6)


def test_linear_is_initialized_uniform_within_one_over_sqrt_d():
    layer = Linear(400)
    params = layer.init(jax.random.key(0), jnp.zeros((1, 25)))["params"]["dense"]
    for name, shape in (("kernel", (25, 400)), ("bias", (400,))):
        assert params[name].shape == shape
        assert params[name].dtype == jnp.float32
        uniform = stats.uniform(-0.2, 0.4).cdf
        assert stats.kstest(np.ravel(params[name]), uniform).pvalue > 0.01, name
        assert np.abs(params[name]).max() <= 0.2


STARTS = {
    "normal": (stats.norm(0, 0.02).cdf, np.inf),
    # The bound of Xavier is the root of 6 / (25 + 400).
    "xavier": (stats.uniform(-0.1188177, 0.2376354).cdf, 0.1188178),
}


@pytest.mark.parametrize("start", STARTS)
def test_linear_kernel_init_without_bias(start):
    layer = Linear(400, start)
    params = layer.init(jax.random.key(0), jnp.zeros((1, 25)))["params"]["dense"]
    distribution, greatest = STARTS[start]
    assert stats.kstest(np.ravel(params["kernel"]), distribution).pvalue > 0.01
    assert np.abs(params["kernel"]).max() <= greatest
    np.testing.assert_array_equal(params["bias"], np.zeros(400))


def test_linear_without_bias():
    layer = Linear(FEATURES, use_bias=False)
    variables = layer.init(jax.random.key(0), X)
    assert variables["params"]["dense"].keys() == {"kernel"}
    expected = np.float64(X) @ variables["params"]["dense"]["kernel"]
    np.testing.assert_allclose(layer.apply(variables, X), expected, rtol=0, atol=1e-6)


def test_linear_matches_its_formula():
    layer = Linear(FEATURES)
    variables = layer.init(jax.random.key(0), X)
    dense = variables["params"]["dense"]
    expected = np.float64(X) @ dense["kernel"] + dense["bias"]
    np.testing.assert_allclose(layer.apply(variables, X), expected, rtol=0, atol=1e-6)


def test_linear_mixing_matches_its_formula():
    layer = ChannelMixing()
    variables = layer.init(jax.random.key(0), X, FEATURES)
    kernel, bias = weights(variables)
    expected = exact_gelu(X) @ kernel + bias
    given = layer.apply(variables, X, FEATURES)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-6)


def test_glu_matches_its_formula():
    layer = ChannelMixing("glu")
    variables = layer.init(jax.random.key(0), X, FEATURES)
    kernel, bias = weights(variables)
    assert kernel.shape == (D, 2 * FEATURES)
    both = exact_gelu(X) @ kernel + bias
    expected = both[..., :FEATURES] * special.expit(both[..., FEATURES:])
    given = layer.apply(variables, X, FEATURES)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-6)


@pytest.mark.full
def test_dropout_drops_channels_at_all_steps_in_training():
    layer = ChannelMixing(dropout=0.25)
    x = jnp.ones((40, 7, 50))
    # With an identity map the output shows which channels were kept.
    identity = {"out": {"dense": {"kernel": jnp.eye(50), "bias": jnp.zeros(50)}}}
    rngs = {"dropout": jax.random.key(0)}
    y = layer.apply({"params": identity}, x, 50, train=True, rngs=rngs)
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1], y.shape))
    kept = y[:, 0] != 0
    np.testing.assert_allclose(y[:, 0][kept], exact_gelu(1) / 0.75, rtol=1e-6)
    np.testing.assert_allclose(np.mean(kept), 0.75, rtol=0, atol=0.03)
    # Each sequence has its own mask.
    assert len(np.unique(kept, axis=0)) == 40


def test_dropout_needs_a_key_only_in_training():
    layer = ChannelMixing(dropout=0.25)
    variables = layer.init(jax.random.key(0), X, FEATURES)
    plain = ChannelMixing().apply(variables, X, FEATURES)
    np.testing.assert_array_equal(layer.apply(variables, X, FEATURES), plain)
    with pytest.raises(Exception, match="dropout"):
        layer.apply(variables, X, FEATURES, train=True)
