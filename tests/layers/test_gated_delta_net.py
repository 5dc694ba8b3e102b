"""Gated DeltaNet and DeltaNet: their definition, decoding, and sizes."""

import dataclasses

import chex
import jax
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import GatedDeltaNet
from ssm_jax.recurrences import GatedDeltaRule
from tests.layers.cases import decode
from tests.layers.test_mamba2 import rms_norm, silu
from tests.layers.test_short_convolution import convolution
from tests.recurrences.oracle_matrix import gated_delta_rule
from tests.tiers import tiered

BATCH, LENGTH, WIDTH = 2, 11, 6
# Parts that all have different widths: z 20, u 8 + 20, numbers 2 times 4.
RULE = GatedDeltaRule(
    n_heads=4, d_key=2, d_value=5, n_key_heads=2, dt_min=0.05, dt_max=0.5
)
LAYERS = {
    "gated": GatedDeltaNet(RULE),
    "plain": GatedDeltaNet(dataclasses.replace(RULE, decay=False), gate=False),
}
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)


@pytest.mark.parametrize("layer", tiered(LAYERS))
def test_layer_matches_its_definition(layer):
    variables = meta.unbox(jax.jit(layer.init)(jax.random.key(0), X))
    params = jax.tree.map(np.float64, variables["params"])
    params["norm"]["scale"] *= np.random.default_rng(1).normal(size=5)
    parts = X @ params["in"]["dense"]["kernel"]
    d_gate = 20 if layer.gate else 0
    z, u, numbers = np.split(parts, [d_gate, d_gate + 28], -1)
    assert numbers.shape[-1] == (8 if layer.recurrence.decay else 4)
    u, window = convolution(params["convolution"] | {"bias": np.zeros(28)}, u)
    assert "bias" not in params["convolution"]
    inputs = np.concatenate([silu(u), numbers], -1)
    rule = layer.recurrence
    of_rule = params["recurrent"]["recurrence"] if rule.decay else {}
    y, h = gated_delta_rule(rule, of_rule, inputs)
    y = rms_norm(y, np.tile(params["norm"]["scale"], 4), 4)
    y = (y * silu(z) if layer.gate else y) @ params["out"]["dense"]["kernel"]
    variables = {"params": jax.tree.map(np.float32, params)}
    given = jax.jit(layer.apply)(variables, X)
    chex.assert_trees_all_close(given, (y, (window, h)), rtol=0, atol=5e-6)


@pytest.mark.full
@pytest.mark.parametrize("layer", tiered(LAYERS))
def test_one_token_at_a_time_equals_one_call(layer):
    variables = meta.unbox(jax.jit(layer.init)(jax.random.key(0), X))
    whole = jax.jit(layer.apply)(variables, X)
    by_token = jax.jit(decode, static_argnums=0)(layer, variables, X)
    chex.assert_trees_all_close(by_token, whole, rtol=0, atol=5e-6)
