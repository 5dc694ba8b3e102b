"""Mamba-3: its definition, decoding, and its sizes."""

import chex
import jax
import numpy as np
import pytest
from flax.core import meta
from scipy import special

from ssm_jax.layers import Mamba3
from ssm_jax.recurrences import TrapezoidalSSD
from tests.bad_inputs import refuses
from tests.layers.cases import decode
from tests.layers.test_mamba2 import rms_norm
from tests.recurrences.oracle_matrix import trapezoidal_ssd

BATCH, LENGTH, WIDTH = 2, 11, 6
# Six heads in two groups, whose parts all have different widths.
UNIT = TrapezoidalSSD(d_head=2, d_state=5, n_groups=2, dt_min=0.05, dt_max=0.5)
LAYER = Mamba3(UNIT)
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)


def test_layer_matches_its_definition():
    variables = meta.unbox(jax.jit(LAYER.init)(jax.random.key(0), X))
    params, rng = (
        jax.tree.map(np.float64, variables["params"]),
        np.random.default_rng(1),
    )
    for name in ("key_norm", "query_norm"):
        params[name]["scale"] *= np.float32(rng.normal(size=5))
    parts = X @ params["in"]["dense"]["kernel"]
    z, v, B, C, numbers = np.split(parts, [12, 24, 34, 44], -1)
    B, C = (
        rms_norm(part, np.tile(params[name]["scale"], 2), 2)
        for part, name in ((B, "key_norm"), (C, "query_norm"))
    )
    inputs = np.concatenate([v, B, C, numbers], -1)
    y, state = trapezoidal_ssd(UNIT, params["recurrent"]["recurrence"], inputs)
    y = (y * z * special.expit(z)) @ params["out"]["dense"]["kernel"]
    variables = {"params": jax.tree.map(np.float32, params)}
    given = jax.jit(LAYER.apply)(variables, X)
    chex.assert_trees_all_close(given, (y, state), rtol=0, atol=1e-5)


@pytest.mark.full
def test_one_token_at_a_time_equals_one_call():
    variables = meta.unbox(jax.jit(LAYER.init)(jax.random.key(0), X))
    whole = jax.jit(LAYER.apply)(variables, X)
    by_token = jax.jit(decode, static_argnums=0)(LAYER, variables, X)
    chex.assert_trees_all_close(by_token, whole, rtol=0, atol=5e-6)


def test_shapes_are_those_of_the_published_code():
    """Of its default sizes, with a width of 768."""
    x = jax.ShapeDtypeStruct((1, 1, 768), np.float32)
    variables = jax.eval_shape(Mamba3().init, jax.random.key(0), x)
    shapes = jax.tree.map(np.shape, meta.unbox(variables)["params"])
    of_heads = dict.fromkeys(("key_bias", "query_bias"), (24, 128))
    assert shapes == {
        "in": {"dense": {"kernel": (768, 2 * 1536 + 2 * 128 + 3 * 24 + 32)}},
        "key_norm": {"scale": (128,)},
        "query_norm": {"scale": (128,)},
        "recurrent": {
            "recurrence": of_heads | dict.fromkeys(("step_bias", "feedthrough"), (24,))
        },
        "out": {"dense": {"kernel": (1536, 768)}},
    }


def test_heads_that_do_not_divide_the_width_are_refused():
    with refuses("expand", 2, rule="256"):
        jax.eval_shape(Mamba3(TrapezoidalSSD(n_groups=4)).init, jax.random.key(0), X)
