"""Steps of different sizes, ``dt``: models evaluate their recurrences with them."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import Attention, ChannelMixing, Mamba, Recurrent, RecurrentLayer
from ssm_jax.models import (
    Block,
    LastHead,
    RecurrentNetwork,
    SequenceModel,
    StepHead,
    VectorEncoder,
)
from ssm_jax.recurrences import DLR, GRU, S5, SelectiveSSM
from tests.bad_inputs import refuses

BATCH, LENGTH, D_INPUT = 3, 12, 2
STEPS: dict[str, Any] = {"dt_min": 0.1, "dt_max": 0.5}
UNIT = S5(d_state=4, blocks=1, **STEPS)
LAYER = RecurrentLayer(UNIT, ChannelMixing("glu"))


def model(*layers, head=None, **options):
    blocks: Any = tuple(Block(layer, prenorm=True) for layer in layers)
    return SequenceModel(VectorEncoder(4), blocks, 2, head or StepHead(2), **options)


CASES: dict[str, Any] = {
    "s5": model(LAYER),
    "scanned": model(LAYER, scan_blocks=True, remat=True),
    "mamba": model(Mamba(SelectiveSSM(d_state=3, **STEPS))),
    "hybrid": model(LAYER, Attention(2)),
    "last": model(LAYER, head=LastHead(2)),
    "bfloat16": model(LAYER, dtype="bfloat16"),
    "network": RecurrentNetwork(UNIT, StepHead(2)),
}


@pytest.fixture
def given(key):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, LENGTH, D_INPUT)).astype(np.float32)
    return x, rng.uniform(0.2, 3, (BATCH, LENGTH)).astype(np.float32)


def variables_of(model, x, key) -> Any:
    return meta.unbox(jax.jit(model.init)(key, x))


@pytest.mark.full
def test_a_network_is_its_recurrence_with_dt(given, key):
    x, dt = given
    network = CASES["network"]
    variables = variables_of(network, x, key)
    params = variables["params"]
    y, state = UNIT.apply(params["recurrent"]["recurrence"], x, dt=dt)
    found, last = jax.jit(network.apply)(variables, x, dt=dt)
    head = network.head.apply({"params": params["head"]}, y)
    chex.assert_trees_all_close((found, last), (head, state), atol=1e-5)
    plain, _ = jax.jit(network.apply)(variables, x)
    assert np.abs(found - plain).max() > 1e-2


@pytest.mark.full
def test_a_block_is_its_layer_with_dt(given, key):
    x, dt = given
    block = Block(Recurrent(UNIT))
    network: Any = SequenceModel(VectorEncoder(4), block, 1, StepHead(2))
    variables = variables_of(network, x, key)
    params = variables["params"]
    hidden = network.encoder.apply({"params": params["encoder"]}, x)
    y, _ = UNIT.apply(params["block_0"]["layer"]["recurrence"], hidden, dt=dt)
    hidden = hidden + y
    mean, std = (f(hidden, -1, keepdims=True) for f in (np.mean, np.std))
    normed = (hidden - mean) / std
    expected = network.head.apply({"params": params["head"]}, normed)
    found, _ = network.apply(variables, x, dt=dt)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("network", CASES.values(), ids=CASES)
def test_steps_of_size_1_are_those_without_dt(network, given, key):
    x, dt = given
    variables = variables_of(network, x, key)
    apply = jax.jit(network.apply)
    without, with_ones = apply(variables, x), apply(variables, x, dt=jnp.ones_like(dt))
    atol = 3e-2 if getattr(network, "dtype", "") == "bfloat16" else 1e-4
    chex.assert_trees_all_close(with_ones, without, rtol=0, atol=atol)
    others, _ = apply(variables, x, dt=dt)
    assert np.abs(others - without[0]).max() > 1e-3


@pytest.mark.full
def test_steps_of_a_larger_size_are_those_of_a_larger_log_dt(given, key):
    x, dt = given
    network = CASES["s5"]
    variables = variables_of(network, x, key)

    def larger(path, leaf):
        names = [getattr(part, "key", "") for part in path]
        return leaf + np.log(2.5) if names[-1] == "log_dt" else leaf

    scaled = jax.tree.map_with_path(larger, variables)
    expected, _ = network.apply(scaled, x)
    found, _ = network.apply(variables, x, dt=np.full_like(dt, 2.5))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["s5", "scanned", "mamba"])
def test_calls_padding_and_segments(name, given, key):
    (x, dt), network = given, CASES[name]
    variables, cut = variables_of(network, x, key), 5
    apply = jax.jit(network.apply)
    whole, last = apply(variables, x, dt=dt)
    first, state = apply(variables, x[:, :cut], dt=dt[:, :cut])
    second, state = apply(variables, x[:, cut:], state, dt=dt[:, cut:])
    joined = jnp.concatenate([first, second], 1)
    chex.assert_trees_all_close((joined, state), (whole, last), rtol=0, atol=1e-4)

    # Padding whose size is not a number, before the steps.
    padded = [np.pad(v, [(0, 0), (2, 0)] + [(0, 0)] * (v.ndim - 2)) for v in (x, dt)]
    padded[1][:, :2] = np.nan
    mask = np.arange(LENGTH + 2) >= 2
    mask = np.broadcast_to(mask, (BATCH, LENGTH + 2))
    found, state = apply(variables, padded[0], mask=mask, dt=padded[1])
    chex.assert_trees_all_close((found[:, 2:], state), (whole, last), atol=1e-4)

    reset = np.broadcast_to(np.arange(LENGTH) == cut, (BATCH, LENGTH))
    segments, state = apply(variables, x, reset=reset, dt=dt)
    alone, of_second = apply(variables, x[:, cut:], dt=dt[:, cut:])
    chex.assert_trees_all_close(segments[:, :cut], first, rtol=0, atol=1e-4)
    chex.assert_trees_all_close(
        (segments[:, cut:], state), (alone, of_second), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("recurrence", [GRU(d_state=4), DLR(d_state=4)])
def test_models_without_step_sizes_refuse_them(recurrence, given, key):
    x, dt = given
    layer = Recurrent(recurrence)
    for network in (model(layer), RecurrentNetwork(recurrence, StepHead(2))):
        with refuses("dt", type(recurrence).__name__):
            jax.eval_shape(lambda network=network: network.init(key, x, dt=dt))
