"""Griffin: its definition, and decoding."""

import chex
import jax
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import Griffin
from ssm_jax.recurrences import RGLRU
from tests.layers.cases import decode
from tests.layers.test_short_convolution import convolution
from tests.recurrences.oracle_selective import rg_lru

BATCH, LENGTH, WIDTH = 2, 11, 6
UNIT = RGLRU(n_heads=2, r_min=0.7)
GRIFFIN = Griffin(UNIT, width=8)
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)


@pytest.mark.full
def test_layer_matches_its_definition():
    variables = meta.unbox(jax.jit(GRIFFIN.init)(jax.random.key(0), X))
    params = jax.tree.map(np.float64, variables["params"])

    def linear(name, x):
        return x @ params[name]["dense"]["kernel"] + params[name]["dense"]["bias"]

    u, window = convolution(params["convolution"], linear("in", X))
    y, h = rg_lru(UNIT, params["recurrent"]["recurrence"], u)
    gate = linear("gate", X)
    cubic = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    y = linear("out", y * gate * (1 + np.tanh(cubic)) / 2)
    given = jax.jit(GRIFFIN.apply)(variables, X)
    chex.assert_trees_all_close(given, (y, (window, h)), rtol=0, atol=5e-6)


def test_one_token_at_a_time_equals_one_call():
    variables = meta.unbox(jax.jit(GRIFFIN.init)(jax.random.key(0), X))

    whole = jax.jit(GRIFFIN.apply)(variables, X)
    by_token = jax.jit(decode, static_argnums=0)(GRIFFIN, variables, X)
    chex.assert_trees_all_close(by_token, whole, rtol=0, atol=5e-6)
