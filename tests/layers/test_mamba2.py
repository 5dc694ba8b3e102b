"""Mamba-2: its definition, decoding, and its sizes."""

import chex
import jax
import numpy as np
import pytest
from flax.core import meta
from scipy import special

from ssm_jax.layers import Mamba2
from ssm_jax.recurrences import SSD
from tests.bad_inputs import refuses
from tests.layers.cases import decode
from tests.layers.test_short_convolution import convolution
from tests.recurrences.oracle_matrix import ssd

BATCH, LENGTH, WIDTH = 2, 11, 6
# Six heads in two groups, whose parts all have different widths.
UNIT = SSD(d_head=2, d_state=3, n_groups=2, dt_min=0.05, dt_max=0.5)
MAMBA = Mamba2(UNIT)
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)


def silu(x):
    return x * special.expit(x)


def rms_norm(x, scale, n_groups=1):
    """Divides groups of channels by their root mean square."""
    groups = np.split(x, n_groups, -1)
    means = [np.mean(group**2, -1, keepdims=True) for group in groups]
    pairs = zip(groups, means, strict=True)
    return scale * np.concatenate([g / np.sqrt(m + 1e-5) for g, m in pairs], -1)


def test_layer_matches_its_definition():
    variables = meta.unbox(jax.jit(MAMBA.init)(jax.random.key(0), X))
    params = jax.tree.map(np.float64, variables["params"])
    params["norm"]["scale"] *= np.random.default_rng(1).normal(size=12)
    parts = X @ params["in"]["dense"]["kernel"]
    z, u, steps = np.split(parts, [12, 12 + 12 + 2 * 2 * 3], -1)
    u, window = convolution(params["convolution"], u)
    inputs = np.concatenate([silu(u), steps], -1)
    y, h = ssd(UNIT, params["recurrent"]["recurrence"], inputs)
    y = rms_norm(y * silu(z), params["norm"]["scale"], 2)
    y = y @ params["out"]["dense"]["kernel"]
    variables = {"params": jax.tree.map(np.float32, params)}
    given = jax.jit(MAMBA.apply)(variables, X)
    chex.assert_trees_all_close(given, (y, (window, h)), rtol=0, atol=5e-6)


@pytest.mark.full
def test_one_token_at_a_time_equals_one_call():
    variables = meta.unbox(jax.jit(MAMBA.init)(jax.random.key(0), X))
    whole = jax.jit(MAMBA.apply)(variables, X)
    by_token = jax.jit(decode, static_argnums=0)(MAMBA, variables, X)
    chex.assert_trees_all_close(by_token, whole, rtol=0, atol=5e-6)


def test_shapes_are_those_of_the_published_models():
    """Of the model of 130 million parameters."""
    x = jax.ShapeDtypeStruct((1, 1, 768), np.float32)
    variables = jax.eval_shape(Mamba2().init, jax.random.key(0), x)
    shapes = jax.tree.map(np.shape, meta.unbox(variables)["params"])
    assert shapes == {
        "in": {"dense": {"kernel": (768, 3352)}},
        "convolution": {"kernel": (4, 1792), "bias": (1792,)},
        "recurrent": {
            "recurrence": dict.fromkeys(("log_rate", "step_bias", "feedthrough"), (24,))
        },
        "norm": {"scale": (1536,)},
        "out": {"dense": {"kernel": (1536, 768)}},
    }


def test_heads_that_do_not_divide_the_width_are_refused():
    with refuses("expand", 2, rule="256"):
        jax.eval_shape(Mamba2(SSD(n_groups=4)).init, jax.random.key(0), X)
