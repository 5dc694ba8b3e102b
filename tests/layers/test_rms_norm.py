"""The norm of groups of channels, and its dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.layers.rms_norm import RMSNorm
from tests.layers.test_mamba2 import rms_norm
from tests.tiers import tiered


@pytest.mark.parametrize("n_groups", tiered([2, 1, 6]))
@pytest.mark.parametrize("use_scale", [True, False])
def test_groups_are_divided_by_their_root_mean_square(n_groups, use_scale):
    x = np.random.default_rng(0).normal(size=(3, 5, 6)).astype(np.float32)
    norm = RMSNorm(n_groups, use_scale=use_scale)
    variables = norm.init(jax.random.key(0), x)
    scale = np.ones(6)
    if use_scale:
        scale = np.arange(6.0)
        variables = {"params": {"scale": np.float32(scale)}}
    expected = rms_norm(np.float64(x), scale, n_groups)
    np.testing.assert_allclose(norm.apply(variables, x), expected, atol=1e-6)


def test_low_precision_is_that_of_input_and_output_only():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5, 64)), jnp.bfloat16)
    norm = RMSNorm(use_scale=False)
    y = norm.apply({}, x)
    expected = norm.apply({}, x.astype(jnp.float32)).astype(jnp.bfloat16)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.float32(y), np.float32(expected))
