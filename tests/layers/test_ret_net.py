"""RetNet: its definition, decoding, and the layer of gated linear attention."""

import chex
import jax
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import RetNet
from ssm_jax.recurrences import GatedLinearAttention, Retention
from tests.layers.cases import decode
from tests.layers.test_mamba2 import rms_norm, silu
from tests.recurrences.oracle_matrix import retention
from tests.recurrences.oracle_selective import gated_attention
from tests.tiers import tiered

BATCH, LENGTH, WIDTH = 2, 11, 8
LAYERS = {
    "retention": (RetNet(Retention(n_heads=2)), retention),
    "gla": (RetNet(GatedLinearAttention(n_heads=2, rank=2)), gated_attention),
}
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)
each_layer = pytest.mark.parametrize("layer, run", tiered(LAYERS, unpack=True))


@each_layer
def test_layer_matches_its_definition(layer, run):
    variables = meta.unbox(jax.jit(layer.init)(jax.random.key(0), X))
    params = jax.tree.map(np.float64, variables["params"])
    of_recurrence = params["recurrent"]["recurrence"]
    y, h = run(layer.recurrence, of_recurrence, np.float64(X))
    gate = silu(X @ params["gate"]["dense"]["kernel"])
    y = (rms_norm(y, 1, 2) * gate) @ params["out"]["dense"]["kernel"]
    given = jax.jit(layer.apply)(variables, X)
    chex.assert_trees_all_close(given, (y, h), rtol=0, atol=1e-5)


@pytest.mark.full
@each_layer
def test_one_token_at_a_time_equals_one_call(layer, run):
    del run
    variables = meta.unbox(jax.jit(layer.init)(jax.random.key(0), X))
    whole = jax.jit(layer.apply)(variables, X)
    by_token = jax.jit(decode, static_argnums=0)(layer, variables, X)
    chex.assert_trees_all_close(by_token, whole, rtol=0, atol=1e-5)
