"""The layer of xLSTM: its definition, decoding, and its sizes."""

import chex
import jax
import numpy as np
import pytest
from flax.core import meta
from scipy import special

from ssm_jax.layers import MLSTMLayer
from ssm_jax.recurrences import MLSTM
from tests.bad_inputs import refuses
from tests.layers.cases import decode
from tests.layers.test_short_convolution import convolution
from tests.recurrences.oracle_matrix import mlstm

BATCH, LENGTH, WIDTH = 2, 11, 6
UNIT = MLSTM(d_head=3)
LAYER = MLSTMLayer(UNIT, block_size=2)
X = np.random.default_rng(0).normal(size=(BATCH, LENGTH, WIDTH)).astype(np.float32)


def silu(x):
    return x * special.expit(x)


def block_diagonal(kernel, x):
    """The product with the whole matrix."""
    n, size, _ = kernel.shape
    matrix = np.zeros((n * size, n * size))
    for i, block in enumerate(kernel):
        matrix[i * size : (i + 1) * size, i * size : (i + 1) * size] = block
    return x @ matrix


def normalized(y, n_heads):
    """The layer norm of each head, without a scale."""
    heads = np.stack(np.split(y, n_heads, -1), -2)
    heads = heads - np.mean(heads, -1, keepdims=True)
    heads = heads / np.sqrt(np.mean(heads**2, -1, keepdims=True) + 1e-5)
    return heads.reshape(y.shape)


def test_layer_matches_its_definition():
    variables = meta.unbox(jax.jit(LAYER.init)(jax.random.key(0), X))
    rng = np.random.default_rng(1)
    # All are far from their first values, of which many are 0 or 1.
    params = jax.tree.map(
        lambda v: np.float64(np.float32(v + rng.normal(size=v.shape))),
        variables["params"],
    )
    u, z = np.split(X @ params["in"]["dense"]["kernel"], 2, -1)
    c, window = convolution(params["convolution"], u)
    c = silu(c)
    q, k = (block_diagonal(params[name]["kernel"], c) for name in ("query", "key"))
    v = block_diagonal(params["value"]["kernel"], u)
    qkv = np.concatenate([q, k, v], -1)
    inputs = np.concatenate([qkv, qkv @ params["gates"]["dense"]["kernel"]], -1)
    y, h = mlstm(UNIT, params["recurrent"]["recurrence"], inputs)
    y = params["norm"]["scale"] * normalized(y, 4)
    y = (y + params["skip"] * c) * silu(z)
    y = y @ params["out"]["dense"]["kernel"]
    variables = {"params": jax.tree.map(np.float32, params)}
    given = jax.jit(LAYER.apply)(variables, X)
    chex.assert_trees_all_close(given, (y, (window, h)), rtol=1e-4, atol=1e-4)


@pytest.mark.full
def test_one_token_at_a_time_equals_one_call():
    variables = meta.unbox(jax.jit(LAYER.init)(jax.random.key(0), X))
    whole = jax.jit(LAYER.apply)(variables, X)
    by_token = jax.jit(decode, static_argnums=0)(LAYER, variables, X)
    chex.assert_trees_all_close(by_token, whole, rtol=0, atol=5e-6)


def test_shapes_are_those_of_the_published_models():
    """Of the model of 125 million parameters, with four heads."""
    x = jax.ShapeDtypeStruct((1, 1, 768), np.float32)
    layer = MLSTMLayer(MLSTM(d_head=384))
    variables = jax.eval_shape(layer.init, jax.random.key(0), x)
    shapes = jax.tree.map(np.shape, meta.unbox(variables)["params"])
    assert shapes == {
        "in": {"dense": {"kernel": (768, 3072)}},
        "convolution": {"kernel": (4, 1536), "bias": (1536,)},
        **{name: {"kernel": (384, 4, 4)} for name in ("query", "key", "value")},
        "gates": {"dense": {"kernel": (4608, 8)}},
        "recurrent": {"recurrence": dict.fromkeys(("input_bias", "forget_bias"), (4,))},
        "norm": {"scale": (1536,)},
        "skip": (1536,),
        "out": {"dense": {"kernel": (1536, 768)}},
    }


REFUSALS = {
    "head": (MLSTMLayer(MLSTM(d_head=5)), "expand", "5 and 4"),
    "block": (MLSTMLayer(MLSTM(d_head=3), block_size=5), "expand", "3 and 5"),
    "key": (MLSTMLayer(MLSTM(d_head=4, d_key=2)), "recurrence", "d_head"),
}


@pytest.mark.parametrize(("layer", "name", "rule"), REFUSALS.values(), ids=REFUSALS)
def test_sizes_that_do_not_fit_are_refused(layer, name, rule):
    with refuses(name, 2, rule=rule):
        jax.eval_shape(layer.init, jax.random.key(0), X)
