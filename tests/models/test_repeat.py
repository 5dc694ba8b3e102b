"""Blocks evaluated by a scan, compared to blocks applied one after the other."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.core import meta

from ssm_jax.kernels import compiling_for
from ssm_jax.layers import ChannelMixing, Mamba, RecurrentLayer, RotaryAttention
from ssm_jax.metrics import METRICS_COLLECTION, Mean, log_metric, sown_metrics
from ssm_jax.models import Block, Norm, SequenceModel, StepHead, VectorEncoder
from ssm_jax.models.repeat import find_periods
from ssm_jax.recurrences import DLR, GRU
from tests.tiers import tiered

LENGTH, WIDTH, DEPTH = 9, 4, 3


class Logged(nn.Module):
    """A layer that logs a metric of several entries."""

    layer: nn.Module

    def initial_state(self, batch_shape, d_model):
        return self.layer.initial_state(batch_shape, d_model)

    @nn.compact
    def __call__(self, x, state=None, **flags):
        log_metric(self, "width", Mean(jnp.mean(jnp.abs(x), (0, 1))))
        return self.layer(x, state, **flags)


def recurrent(recurrence):
    return Logged(RecurrentLayer(recurrence, ChannelMixing()))


BLOCKS = {
    "batch": Block(recurrent(DLR(d_state=3)), "batch", prenorm=True),
    "nonlinear": Block(recurrent(GRU(d_state=WIDTH)), "scalar"),
    "mamba": Block(Mamba(), "rms", prenorm=True),
    "no_state": Block(recurrent(DLR(d_state=3, bidirectional=True))),
    # Two periods of different variables and states, and a cut one.
    "hybrid": (
        Block(recurrent(DLR(d_state=3)), "batch", prenorm=True),
        Block(Logged(RotaryAttention(n_heads=2, window=3)), "batch", prenorm=True),
    ),
}
each_block = pytest.mark.parametrize("block", tiered(BLOCKS, full=("batch", "hybrid")))


def stack(block, **fields):
    fields = {"scan_blocks": True} | fields
    depth = 5 if isinstance(block, tuple) else DEPTH
    return SequenceModel(VectorEncoder(WIDTH), block, depth, StepHead(2), **fields)


@functools.cache
def example(block):
    """A model, its variables, and arguments of a call."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, LENGTH, 3)).astype(np.float32)
    model = stack(block)
    variables = dict(meta.unbox(jax.jit(model.init)(jax.random.key(0), x)))
    states = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype),
        model.initial_state((2,)),
    )
    reset = np.arange(LENGTH) == 5
    flags = {"reset": np.tile(reset, (2, 1)), "mask": rng.random((2, LENGTH)) < 0.8}
    return model, variables, x, states, flags


def one_by_one(model, variables, x, states, *, mutable, **flags):
    """Applies the encoder, each block and the head, each with its own variables."""

    def own(name):
        return {key: tree[name] for key, tree in variables.items() if name in tree}

    x, finals, changed = model.encoder.apply(own("encoder"), x), [], {}
    for i, state in enumerate(states):
        name = f"block_{i}"
        (x, final), found = model.blocks[i].apply(
            own(name), x, state, mutable=mutable, **flags
        )
        finals.append(final)
        for key, tree in found.items():
            changed.setdefault(key, {})[name] = tree
    if model.blocks[0].prenorm:
        norm = Norm(model.blocks[0].norm)
        (x, found) = norm.apply(
            own("norm"), x, mask=flags["mask"], train=flags["train"], mutable=mutable
        )
        for key, tree in found.items():
            changed[key]["norm"] = tree
    return (model.head.apply(own("head"), x), tuple(finals)), changed


EVALUATIONS = {
    "scan": {"scan_blocks": True},
    "loop": {"scan_blocks": False},
    "remat": {"scan_blocks": True, "remat": True},
    "loop-remat": {"scan_blocks": False, "remat": True},
}


@pytest.mark.full
@each_block
@pytest.mark.parametrize("fields", tiered(EVALUATIONS, full=["scan"]))
def test_model_computes_what_its_blocks_compute(block, fields):
    """Outputs, final states, moments of BatchNorm, metrics and gradients."""
    model, variables, x, states, flags = example(block)
    evaluated = model.clone(**fields)
    flags = flags | {"train": True, "mutable": ["batch_stats", METRICS_COLLECTION]}

    def found(apply):
        def loss(params, x, states):
            (y, final), changed = apply({**variables, "params": params}, x, states)
            squares = [jnp.mean(jnp.abs(leaf) ** 2) for leaf in jax.tree.leaves(final)]
            return jnp.mean(jnp.sin(y)) + sum(squares), (y, final, changed)

        of = jax.value_and_grad(loss, has_aux=True)
        return jax.jit(of)(variables["params"], x, states)

    given = found(lambda *args: evaluated.apply(*args, **flags))
    expected = found(lambda *args: one_by_one(model, *args, **flags))
    chex.assert_trees_all_close(given, expected, rtol=1e-5, atol=2e-6)
    if isinstance(model.blocks[0].layer, Logged):
        (_, (_, _, changed)), _ = given
        width = sown_metrics(changed[METRICS_COLLECTION])["width"]
        assert width.count == model.n_layers * WIDTH


@pytest.mark.full
def test_program_of_more_blocks_has_no_more_products():
    def products(depth):
        model = stack(BLOCKS["batch"]).clone(n_layers=depth)
        x = jnp.ones((2, LENGTH, 3))
        variables = meta.unbox(jax.eval_shape(model.init, jax.random.key(0), x))
        step = jax.grad(lambda v: jnp.sum(model.apply(v, x)[0]))
        return jax.jit(step).lower(variables).as_text().count("dot_general")

    assert products(2) == products(7) > 4


@pytest.mark.full
@pytest.mark.parametrize(
    ("platform", "depth", "remat", "scans"),
    [
        ("cpu", 7, False, False),
        ("cpu", 8, False, True),
        ("cpu", 2, True, True),
        ("tpu", 2, False, True),
    ],
)
def test_few_blocks_are_not_scanned_on_cpus(platform, depth, remat, scans):
    class Same(nn.Module):
        def __call__(self, x, state=None, **flags):
            return x, state

    model = stack(Block(Same(), "scalar"), scan_blocks=None, remat=remat)
    model = model.clone(n_layers=depth)
    x = jnp.ones((2, LENGTH, 3))
    variables = meta.unbox(jax.eval_shape(model.init, jax.random.key(0), x))
    with compiling_for(platform):
        program = jax.make_jaxpr(model.apply)(variables, x)
    assert ("scan[" in str(program)) == scans


@pytest.mark.full
@each_block
def test_initialized_blocks_have_the_variables_and_groups_of_one_block(block):
    model, _, x, *_ = example(block)
    encoded = jnp.zeros((2, LENGTH, WIDTH))
    boxed = jax.eval_shape(model.init, jax.random.key(0), x)
    for i, block in enumerate(model.blocks):
        expected = jax.eval_shape(block.init, jax.random.key(0), encoded)
        for name, of_block in expected.items():
            found = boxed[name][f"block_{i}"]
            # The boxes of parameters, and so their groups, are part of the structure.
            chex.assert_trees_all_equal_structs(found, of_block)
            chex.assert_trees_all_equal_shapes_and_dtypes(found, of_block)


@pytest.mark.full
@each_block
def test_outputs_of_an_initialization_are_those_of_its_variables(block):
    model, *_, x, states, flags = example(block)
    run = jax.jit(functools.partial(model.init_with_output, **flags))
    expected, variables = run(jax.random.key(0), x, states)
    variables.pop(METRICS_COLLECTION, None)
    found = jax.jit(functools.partial(model.apply, **flags))(variables, x, states)
    chex.assert_trees_all_close(found, expected, atol=1e-5)


@pytest.mark.full
def test_each_block_draws_numbers_of_its_own_whatever_the_length():
    class Draw(nn.Module):
        @nn.compact
        def __call__(self, x, state=None, **flags):
            self.param("number", jax.random.normal)
            return x, state

    model = stack(Block(Draw(), "scalar"))
    other = Block(Draw(), "scalar", dropout=0.5)
    hybrid = model.clone(block=(model.block, other), n_layers=5)
    for each in (model, hybrid):
        init, n = jax.jit(each.init), each.n_layers
        variables = init(jax.random.key(0), jnp.ones((2, LENGTH, 3)))
        blocks = [variables["params"][f"block_{i}"]["layer"] for i in range(n)]
        assert len({float(of_block["number"]) for of_block in blocks}) == n
        of_step = init(jax.random.key(0), jnp.ones((2, 1, 3)))
        chex.assert_trees_all_equal(of_step, variables)


@pytest.mark.full
def test_initialization_of_more_blocks_draws_by_the_same_program():
    def draws(depth):
        model = stack(BLOCKS["batch"]).clone(n_layers=depth)
        init = jax.jit(model.init).lower(jax.random.key(0), jnp.ones((2, LENGTH, 3)))
        return init.as_text().count("call @_normal")

    assert draws(2) == draws(7) > 1


@pytest.mark.parametrize(
    ("kinds", "periods"),
    [
        ("a", [(0, 1, 1)]),
        ("aaa", [(0, 1, 3)]),
        ("aab" * 8 + "aa", [(0, 3, 8), (24, 1, 2)]),
        ("abc", [(0, 1, 1), (1, 1, 1), (2, 1, 1)]),
        # Attention at the layers 9, 18, 27, 36, 45 and 56 of 64.
        (
            ("m" * 8 + "a") * 5 + "m" * 10 + "a" + "m" * 8,
            [(0, 9, 5), (45, 1, 10), (55, 1, 1), (56, 1, 8)],
        ),
    ],
)
def test_periods_of_patterns(kinds, periods):
    assert find_periods(kinds) == periods


@pytest.mark.full
def test_program_of_more_periods_has_no_more_products():
    def products(depth):
        model = stack(BLOCKS["hybrid"]).clone(n_layers=depth, pattern="aab")
        x = jnp.ones((2, LENGTH, 3))
        variables = meta.unbox(jax.eval_shape(model.init, jax.random.key(0), x))
        step = jax.grad(lambda v: jnp.sum(model.apply(v, x)[0]))
        return jax.jit(step).lower(variables).as_text().count("dot_general")

    assert products(7) == products(13) > products(6) > 4


@pytest.mark.full
def test_blocks_whose_states_differ_in_kind_are_not_scanned():
    """A state of None beside an array, which a scan cannot hold."""
    model, variables, x, states, flags = example(BLOCKS["batch"])
    mixed = (None, *states[1:])
    given, _ = model.apply(variables, x, mixed, **flags)
    zeros = (jnp.zeros_like(states[0]), *states[1:])
    expected, _ = model.apply(variables, x, zeros, **flags)
    np.testing.assert_allclose(given, expected, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("hybrid", [False, True])
def test_dropout_of_each_block_has_its_own_mask_however_it_is_evaluated(hybrid):
    class Ones(nn.Module):
        @nn.compact
        def __call__(self, x, state=None, **flags):
            return jnp.ones_like(x), state

    model = stack(Block(Ones(), "scalar", prenorm=True, dropout=0.5))
    if hybrid:
        other = Block(Ones(), "scalar", prenorm=True, dropout=0.5)
        model = model.clone(block=(model.block, other), n_layers=5)
    x = np.zeros((64, LENGTH, 3), np.float32)
    variables = meta.unbox(model.init(jax.random.key(0), x))

    def masks(**fields):
        _, seen = model.clone(**fields).apply(
            variables,
            x,
            train=True,
            rngs={"dropout": jax.random.key(1)},
            capture_intermediates=True,
        )
        blocks = (seen["intermediates"][f"block_{i}"] for i in range(model.n_layers))
        return [found["RowDropout_0"]["__call__"][0] > 0 for found in blocks]

    scanned = masks(scan_blocks=True)
    for i, j in itertools.combinations(range(model.n_layers), 2):
        assert 0.3 < np.mean(scanned[i] != scanned[j]) < 0.7
    chex.assert_trees_all_equal(masks(scan_blocks=False), scanned)
