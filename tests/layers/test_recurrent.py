"""Recurrences as Flax modules: parameters, groups and methods."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import (
    ETSMLP,
    ChannelMixing,
    LabelledParam,
    Mamba,
    Recurrent,
    RecurrentLayer,
)
from ssm_jax.models import Block
from ssm_jax.recurrences import DLR, FRU, GRU, LSTM, ParamGroup, TimeInvariant
from tests.bad_inputs import refuses
from tests.tiers import tiered

LENGTH, WIDTH = 6, 4
PLAIN = DLR(d_state=3, lr_multiplier=0.1)
LAYERS = {
    "recurrent": Recurrent(PLAIN),
    "layer": RecurrentLayer(PLAIN, ChannelMixing("glu")),
    "ets_mlp": ETSMLP(PLAIN, d_hidden=WIDTH),
    "mamba": Mamba(PLAIN, expand=1),
}
each_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())


@pytest.fixture
def x():
    values = np.random.default_rng(0).normal(size=(2, LENGTH, WIDTH))
    return jnp.asarray(values, jnp.float32)


@functools.cache
def initialized(layer):
    """Variables of a layer, and its compiled ``apply``."""
    variables = jax.jit(layer.init)(jax.random.key(0), jnp.zeros((2, LENGTH, WIDTH)))
    return variables, jax.jit(layer.apply)


@pytest.mark.full
@each_layer
def test_parameters_are_boxed_in_their_groups(layer):
    variables, _ = initialized(layer)
    params = variables["params"]
    params = params.get("recurrent", params)["recurrence"]
    recurrence = layer.recurrence
    for name, leaf in params.items():
        group = recurrence.groups().get(name)
        assert (leaf.group if isinstance(leaf, LabelledParam) else None) == group, name
    plain = meta.unbox(params)
    chex.assert_trees_all_equal_shapes_and_dtypes(
        plain, recurrence.init(jax.random.key(0), WIDTH)
    )


@pytest.mark.full
@each_layer
def test_parameters_apply_with_and_without_boxes(layer, x):
    variables, apply = initialized(layer)
    plain = meta.unbox(variables)
    boxes = jax.tree.leaves(plain, is_leaf=lambda leaf: isinstance(leaf, LabelledParam))
    assert not any(isinstance(leaf, LabelledParam) for leaf in boxes)
    chex.assert_trees_all_equal(apply(variables, x), apply(plain, x))


def test_recurrent_equals_the_recurrence(x):
    variables, apply = initialized(Recurrent(PLAIN))
    params = meta.unbox(variables)["params"]["recurrence"]
    expected = jax.jit(PLAIN.apply)(params, x)
    chex.assert_trees_all_close(apply(variables, x), expected, rtol=0, atol=1e-6)


@pytest.mark.full
def test_recurrence_in_a_block_is_a_linear_layer(x):
    block = Block(Recurrent(PLAIN), prenorm=True)
    variables, apply = initialized(block)
    assert variables["params"].keys() == {"layer", "norm"}
    params = meta.unbox(variables)["params"]["layer"]["recurrence"]
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    expected, last = jax.jit(PLAIN.apply)(params, normed)
    chex.assert_trees_all_close(apply(variables, x), (x + expected, last), atol=1e-5)


@pytest.mark.parametrize("make", [Recurrent, RecurrentLayer])
def test_method_reaches_the_recurrence(make, x):
    mixing = (ChannelMixing(),) if make is RecurrentLayer else ()

    def program(method):
        layer = make(PLAIN, *mixing, method=method)
        return str(jax.make_jaxpr(layer.apply)(variables, x))

    variables, _ = initialized(make(PLAIN, *mixing))
    assert "fft" in program("fft")
    assert "fft" not in program("sequential")


def test_layer_applies_mixing_to_the_recurrence(x):
    layer = RecurrentLayer(PLAIN, ChannelMixing("glu"))
    variables, apply = initialized(layer)
    params = meta.unbox(variables)["params"]
    y, _ = jax.jit(PLAIN.apply)(params["recurrent"]["recurrence"], x)
    mixed = ChannelMixing("glu").apply({"params": params["mixing"]}, y, WIDTH)
    given, _ = apply(variables, x)
    np.testing.assert_allclose(given, mixed, rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("starts", tiered({"segments": 4, "one": None}, full=1))
@pytest.mark.parametrize(
    "recurrence",
    tiered(
        [
            PLAIN,
            FRU(frequencies=(0.0, 1.0), horizon=LENGTH, d_statistic=3, d_output=2),
            GRU(d_state=3),
            LSTM(d_state=3),
        ],
        full=1,
    ),
    ids=lambda recurrence: type(recurrence).__name__,
)
def test_last_only_returns_the_output_of_the_last_valid_step(recurrence, starts, key):
    """Rows: all valid, padding in between, padding at the end, all padding."""
    data = [[1] * 6, [0, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0] * 6]
    mask = np.array(data, bool)
    reset = None if starts is None else np.tile(np.arange(LENGTH) == starts, (4, 1))
    x = jax.random.normal(key, (4, LENGTH, WIDTH))
    layer = Recurrent(recurrence)
    variables = jax.jit(layer.init)(key, x)
    before = jax.tree.map(lambda leaf: leaf + 0.5, layer.initial_state((4,), WIDTH))

    @functools.partial(jax.jit, static_argnums=1)
    def run(variables, last):
        def loss(variables, x):
            y, after = layer.apply(
                variables, x, before, reset=reset, mask=mask, last_only=last
            )
            y = y if last else y[np.arange(4), [5, 4, 2, 5]][:, None]
            return jnp.sum(jnp.sin(y)), (y, after)

        return jax.value_and_grad(loss, (0, 1), has_aux=True)(variables, x)

    (_, found), of_found = run(variables, True)
    (_, expected), of_wanted = run(variables, False)
    assert found[0].shape == (4, 1, recurrence.d_out(WIDTH))
    np.testing.assert_array_equal(found[0][3], 0)
    chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-6)
    chex.assert_trees_all_close(of_found, of_wanted, rtol=0, atol=1e-5)


def test_box_keeps_its_group_through_tree_map():
    box = LabelledParam(jnp.ones(3), ParamGroup(weight_decay=False))
    doubled = jax.tree.map(lambda leaf: 2 * leaf, box)
    assert doubled.group == box.group
    np.testing.assert_array_equal(doubled.unbox(), [2, 2, 2])
    replaced = box.replace_boxed(jnp.zeros(1))
    assert replaced.group == box.group
    assert replaced.unbox().shape == (1,)
    assert box.add_axis(0, {}) is box
    assert box.remove_axis(0, {}) is box


class Misnamed(DLR):
    """A recurrence with a group for a parameter that does not exist."""

    def groups(self):
        return {"speed": ParamGroup()}


def test_group_of_an_unknown_parameter_is_rejected(x, key):
    assert issubclass(Misnamed, TimeInvariant)
    with refuses("groups", "{'speed'}", rule="'sqrt_decay'"):
        Recurrent(Misnamed(d_state=3, eigenvalues="real")).init(key, x)
