"""The short convolution against a loop over its taps, with states and resets."""

import chex
import jax
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import ShortConvolution
from tests.recurrences import oracle
from tests.recurrences.cases import MASK, RESET
from tests.tiers import tiered

WIDTH = 3


def convolution(params, x, window=None):
    """Sums the taps of every step; returns the output and the final window."""
    kernel, bias = (np.float64(params[name]) for name in ("kernel", "bias"))
    past, length = len(kernel) - 1, x.shape[-2]
    if window is None:
        window = np.zeros((len(x), past, x.shape[-1]))
    seen = np.concatenate([window, x], -2)
    taps = [kernel[j] * seen[:, j : j + length] for j in range(past + 1)]
    return sum(taps) + bias, seen[:, length:]


@pytest.mark.parametrize("d_conv", tiered([1, 2, 4, 9], (2,), full=(2, 4)))
def test_convolution_uses_the_window_and_its_own_segment(d_conv):
    """Covers windows shorter than a segment and longer than the sequence."""
    rng = np.random.default_rng(d_conv)
    rows, length = MASK.shape
    x = rng.normal(size=(rows, length, WIDTH)).astype(np.float32)
    window = rng.normal(size=(rows, d_conv - 1, WIDTH)).astype(np.float32)
    layer = ShortConvolution(d_conv)
    variables = meta.unbox(layer.init(jax.random.key(0), x))
    apply = jax.jit(layer.apply)
    for flags in ({}, {"mask": MASK}, {"reset": RESET}, {"reset": RESET, "mask": MASK}):
        expected = oracle.packed(convolution, variables["params"], x, window, **flags)
        given = apply(variables, x, window, **flags)
        chex.assert_trees_all_close(given, expected, rtol=0, atol=1e-6)


@pytest.mark.full
def test_taps_are_initialized_uniform_within_one_over_sqrt_k(key):
    variables = ShortConvolution().init(key, np.zeros((1, 1000), np.float32))
    params = meta.unbox(variables)["params"]
    assert params["kernel"].shape == (4, 1000) and params["bias"].shape == (1000,)
    for values in params.values():
        assert np.abs(values).max() <= 0.5
        np.testing.assert_allclose(np.std(values), 0.5 / np.sqrt(3), rtol=0.05)
