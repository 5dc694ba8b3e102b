"""Mamba: its definition, decoding, and use in a model."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta
from scipy import special

from ssm_jax.layers import LabelledParam, Mamba
from ssm_jax.layers.recurrent import recurrences_of
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import LRU, SelectiveSSM
from tests.layers.cases import decode
from tests.layers.test_short_convolution import convolution
from tests.recurrences.oracle_selective import selective
from tests.tiers import tiered

BATCH, LENGTH, WIDTH = 2, 11, 20
SELECTIVE = SelectiveSSM(d_state=3, dt_min=0.05, dt_max=0.5)
MAMBA = Mamba(SELECTIVE)
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)


@functools.cache
def initialized(layer):
    """Variables of a layer without their boxes, and its compiled ``apply``."""
    variables = jax.jit(layer.init)(jax.random.key(0), X)
    return meta.unbox(variables), jax.jit(layer.apply)


def silu(x):
    return x * special.expit(x)


@pytest.mark.full
def test_layer_matches_its_definition():
    variables, apply = initialized(MAMBA)
    params = jax.tree.map(np.float64, variables["params"])
    u, z = np.split(X @ params["in"]["dense"]["kernel"], 2, -1)
    u, window = convolution(params["convolution"], u)
    y, h = selective(SELECTIVE, params["recurrent"]["recurrence"], silu(u))
    y = (y * silu(z)) @ params["out"]["dense"]["kernel"]
    given = apply(variables, X)
    chex.assert_trees_all_close(given, (y, (window, h)), rtol=0, atol=5e-6)


@pytest.mark.parametrize("method", tiered(["sequential", "chunked", "associative"]))
def test_one_token_at_a_time_equals_one_call(method):
    variables, _ = initialized(MAMBA)

    @jax.jit
    def both(variables, x):
        whole = Mamba(SELECTIVE, method=method).apply(variables, x)
        return decode(MAMBA, variables, x), whole

    chex.assert_trees_all_close(*both(variables, X), rtol=0, atol=5e-6)


def test_default_rank_follows_the_input_width():
    params = initialized(MAMBA)[0]["params"]["recurrent"]["recurrence"]
    assert params["step_kernel"].shape == (2, 2 * WIDTH)
    of_three = Mamba(SelectiveSSM(dt_rank=3))
    params = initialized(of_three)[0]["params"]["recurrent"]["recurrence"]
    assert params["step_kernel"].shape == (3, 2 * WIDTH)


@pytest.mark.full
def test_initial_output_projection_is_divided_by_sqrt_n_layers():
    one, four = (initialized(Mamba(n_layers=n))[0]["params"] for n in (1, 4))
    halved = jax.tree.map(lambda v: v / 2, one["out"])
    chex.assert_trees_all_close(four["out"], halved, rtol=1e-5)
    chex.assert_trees_all_equal(four["in"], one["in"])


@pytest.mark.full
def test_any_recurrence_can_be_used():
    layer = Mamba(LRU(d_state=3))
    variables, apply = initialized(layer)
    y, state = apply(variables, X, layer.initial_state((BATCH,), WIDTH))
    assert y.shape == X.shape and state[1].shape == (BATCH, 3)


@pytest.mark.full
def test_model_exposes_its_recurrence_and_carries_both_states():
    net = SequenceModel(
        encoder=VectorEncoder(8),
        block=Block(MAMBA, prenorm=True),
        n_layers=2,
        head=StepHead(2),
    )
    boxed = jax.jit(net.init)(jax.random.key(0), X)
    variables = meta.unbox(boxed)
    assert net.recurrence == SELECTIVE
    found = list(recurrences_of(boxed["params"]))
    assert len(found) == 2
    for params in found:
        grouped = {k for k, v in params.items() if isinstance(v, LabelledParam)}
        assert grouped == {"log_rate", "step_bias", "feedthrough"}
    apply = jax.jit(net.apply)
    whole, last = apply(variables, X)
    left, state = apply(variables, X[:, :4], net.initial_state((BATCH,)))
    right, state = apply(variables, X[:, 4:], state)
    given = jnp.concatenate([left, right], 1), state
    chex.assert_trees_all_close(given, (whole, last), rtol=0, atol=2e-5)
