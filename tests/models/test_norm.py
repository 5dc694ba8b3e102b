"""Normalization layers against their formulas in float64."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.models import Norm, ScalarNorm
from tests.tiers import tiered

X = np.random.default_rng(0).normal(2.0, 3.0, size=(3, 8, 5)).astype(np.float32)
MASK = np.arange(8) < np.array([[8], [3], [5]])


def exact_batch(x, mean, variance):
    return (np.float64(x) - mean) / np.sqrt(variance + 1e-5)


def moments(stats):
    return stats["batch_stats"]["batch"]["mean"], stats["batch_stats"]["batch"]["var"]


def test_scalar_norm_matches_its_formula():
    params = {"scale": jnp.float32(1.5), "shift": jnp.float32(-0.7)}
    x = np.float64(X)
    mean, deviation = x.mean(-1, keepdims=True), x.std(-1, keepdims=True)
    wanted = 1.5 / deviation * (x - mean - 0.7)
    given = ScalarNorm().apply({"params": params}, X)
    np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


def test_initial_scalar_norm_is_plain_normalization():
    variables = ScalarNorm().init(jax.random.key(0), X)
    chex.assert_trees_all_equal(
        variables["params"], {"scale": jnp.ones(()), "shift": jnp.zeros(())}
    )


@pytest.mark.full
@pytest.mark.parametrize("value", [0.0, 3.0, -1e4])
def test_scalar_norm_of_equal_channels_is_finite(value):
    norm = ScalarNorm()
    x = jnp.full((2, 4, 5), value)
    variables = norm.init(jax.random.key(0), x)

    def total(variables, x):
        return jnp.sum(norm.apply(variables, x) ** 2)

    chex.assert_tree_all_finite(norm.apply(variables, x))
    chex.assert_tree_all_finite(jax.grad(total, (0, 1))(variables, x))


def test_layer_norm_is_over_the_channels_of_a_step():
    norm = Norm("layer")
    variables = norm.init(jax.random.key(0), X)
    x = np.float64(X)
    variance = x.var(-1, keepdims=True)
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-5)
    given = norm.apply(variables, X, mask=MASK)
    np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("offset", tiered([0.0, 1e2, 1e3, 1e4, -1e6], (1e3, -1e6)))
@pytest.mark.parametrize("kind", ["layer", "scalar", "batch"])
def test_moments_keep_their_digits_at_large_means(kind, offset):
    """Values, gradients and running moments, whatever the mean is."""
    norm, rng = Norm(kind), np.random.default_rng(0)
    x = (rng.normal(size=(4, 32, 16)) + offset).astype(np.float32)
    weights = rng.normal(size=x.shape).astype(np.float32)
    variables = norm.init(jax.random.key(0), x)

    def total(x):
        options = {"train": True, "mutable": "batch_stats"}
        y, stats = norm.apply(variables, x, **options)
        return jnp.sum(weights * y), (y, stats)

    gradient, (y, stats) = jax.jit(jax.grad(total, has_aux=True))(x)
    axes = (0, 1) if kind == "batch" else -1
    x, epsilon = np.float64(x), 1e-12 if kind == "scalar" else 1e-5
    mean, variance = (f(x, axes, keepdims=True) for f in (np.mean, np.var))
    std = np.sqrt(variance + epsilon)
    wanted = (x - mean) / std
    np.testing.assert_allclose(y, wanted, rtol=0, atol=3e-6)

    def average(values):
        return np.mean(values, axes, keepdims=True)

    slope = weights - average(weights) - wanted * average(weights * wanted)
    np.testing.assert_allclose(gradient, slope / std, rtol=0, atol=1e-5)
    if kind == "batch":
        given_mean, given_variance = moments(stats)
        np.testing.assert_allclose(given_mean, 0.1 * mean[0, 0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            given_variance, 0.9 + 0.1 * variance[0, 0], rtol=1e-6
        )


@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])
def test_batch_norm_uses_moments_of_the_valid_steps(mask):
    norm = Norm("batch")
    data = np.float64(X.reshape(-1, 5) if mask is None else X[mask])
    mean, variance = data.mean(0), data.var(0)
    x = X if mask is None else np.where(mask[..., None], X, np.float32(1e3))
    variables = norm.init(jax.random.key(0), x)
    y, updated = norm.apply(variables, x, mask=mask, train=True, mutable="batch_stats")
    wanted = exact_batch(X, mean, variance)
    where = np.ones((3, 8), bool) if mask is None else mask
    np.testing.assert_allclose(y[where], wanted[where], rtol=0, atol=1e-4)
    # The running moments start at 0 and 1 and move by a tenth.
    given_mean, given_variance = moments(updated)
    np.testing.assert_allclose(given_mean, 0.1 * mean, rtol=1e-4)
    np.testing.assert_allclose(given_variance, 0.9 + 0.1 * variance, rtol=1e-4)


def test_batch_norm_uses_running_moments_outside_training():
    norm = Norm("batch")
    variables = norm.init(jax.random.key(0), X)
    mean, variance = np.linspace(-1, 1, 5), np.linspace(1, 2, 5)
    running = {"mean": jnp.float32(mean), "var": jnp.float32(variance)}
    stats = {"batch_stats": {"batch": running}}
    given = norm.apply(variables | stats, X)
    np.testing.assert_allclose(given, exact_batch(X, mean, variance), rtol=0, atol=1e-5)


# The second device has one valid step, the last none; together they have nine.
UNEVEN = np.arange(8) < np.array([[8], [1], [0]])


@pytest.mark.parametrize("mask", [None, UNEVEN], ids=["full", "uneven"])
@pytest.mark.parametrize("shift", tiered([0.0, 300.0, 1e4], (300.0,)))
def test_batch_norm_weights_all_valid_steps_of_all_devices_equally(mask, shift):
    norm, alone = Norm("batch", axis_name="data"), Norm("batch")
    variables = alone.init(jax.random.key(0), X)
    x = X + np.float32(shift)
    weights = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)
    where = np.ones((3, 8), bool) if mask is None else mask

    def run(norm):
        def of_share(x, weights, mask):
            def loss(x, params):
                every = variables | {"params": params}
                options = {"mask": mask, "train": True, "mutable": "batch_stats"}
                y, stats = norm.apply(every, x, **options)
                return jnp.sum(jnp.where(mask[..., None], weights * y, 0)), (y, stats)

            gradient, aux = jax.grad(loss, (0, 1), has_aux=True)(x, variables["params"])
            return *aux, *gradient

        return of_share

    shares = jax.jit(jax.vmap(run(norm), axis_name="data"))(x, weights, where)
    y, stats, of_x, of_params = shares
    stats = jax.tree.map(lambda leaf: leaf[1], stats)
    of_params = jax.tree.map(lambda leaf: leaf.sum(0), of_params)
    wanted = jax.jit(run(alone))(x, weights, where)
    given = (y[where], stats, of_x[where], of_params)
    expected = (wanted[0][where], wanted[1], wanted[2][where], wanted[3])
    chex.assert_trees_all_close(given, expected, rtol=1e-5, atol=1e-5)
    data = np.float64(x[where])
    mean, variance = moments(stats)
    np.testing.assert_allclose(mean, 0.1 * data.mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance, 0.9 + 0.1 * data.var(0), rtol=1e-5)


def test_batch_norm_without_valid_steps_keeps_its_moments_and_is_finite():
    norm = Norm("batch")
    variables = norm.init(jax.random.key(0), X)
    running = {"mean": jnp.full(5, 2.0), "var": jnp.full(5, 3.0)}
    variables |= {"batch_stats": {"batch": running}}
    mask = np.zeros((3, 8), bool)

    def total(x):
        options = {"mask": mask, "train": True, "mutable": "batch_stats"}
        y, stats = norm.apply(variables, x, **options)
        return jnp.sum(y), stats

    gradient, stats = jax.jit(jax.grad(total, has_aux=True))(X)
    chex.assert_trees_all_equal(stats["batch_stats"]["batch"], running)
    chex.assert_tree_all_finite(gradient)


def test_batch_norm_matches_flax():
    norm, flax = Norm("batch"), nn.BatchNorm(momentum=0.9, use_fast_variance=False)
    variables = norm.init(jax.random.key(0), X)
    plain = flax.init(jax.random.key(0), X, use_running_average=True)
    chex.assert_trees_all_equal(
        {name: of["batch"] for name, of in variables.items()}, plain
    )
    y, stats = norm.apply(variables, X, mask=MASK, train=True, mutable="batch_stats")
    options = {"mask": MASK[..., None], "use_running_average": False}
    wanted, of_flax = flax.apply(plain, X, mutable="batch_stats", **options)
    chex.assert_trees_all_close(y, wanted, rtol=0, atol=1e-5)
    own = stats["batch_stats"]["batch"]
    chex.assert_trees_all_close(own, of_flax["batch_stats"], rtol=1e-5)
