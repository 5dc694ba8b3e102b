"""Models whose sequences are sharded over devices take the step of one device."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

from ssm_jax.layers import (
    ETSMLP,
    Attention,
    ChannelMixing,
    ExpertChoiceMLP,
    Mamba,
    RecurrentLayer,
    RotaryAttention,
)
from ssm_jax.models import (
    Block,
    LastHead,
    PairHead,
    PooledHead,
    PositionalEmbedding,
    RecurrentNetwork,
    SequenceModel,
    StepHead,
    TokenEncoder,
    VectorEncoder,
)
from ssm_jax.recurrences import CES, DLR, GRU, S5, SelectiveSSM
from ssm_jax.sharding import parameters
from ssm_jax.tasks.base import Batch, Split, TaskSpec
from ssm_jax.training import (
    DataParallel,
    Optimizer,
    create,
    evaluation_step,
    train_step,
)
from ssm_jax.training.initial import StateInit
from ssm_jax.training.parallel import check_sharded_length, mesh_shape
from ssm_jax.training.state import abstract_state
from ssm_jax.training.step import prediction_step
from tests.bad_inputs import refuses
from tests.tiers import tiered

# Devices are eight in the full tier only.
pytestmark = pytest.mark.full

BATCH, LENGTH, TOKENS = 8, 24, 11
SGD = Optimizer(learning_rate=0.1, kind="sgd")
VECTORS = {"inputs": "vector", "d_input": 3}
WORDS = {"inputs": "token", "d_input": TOKENS}
VALUES = {"targets": "regression", "d_output": 2}
CLASSES = {"targets": "classification", "d_output": 3}


class Drawn(NamedTuple):
    """A task with one batch of random numbers."""

    spec: TaskSpec
    padded: bool
    resets: bool

    def n_examples(self, split: Split) -> int | None:
        """Returns None, for an endless task."""
        del split

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        """Returns the batch, also with rows and pieces without a valid step."""
        del split, index, batch_size
        rng, spec = np.random.default_rng(seed), self.spec
        steps = (BATCH, 2, LENGTH) if spec.pair else (BATCH, LENGTH)
        inputs = rng.integers(0, spec.d_input, steps).astype(np.int32)
        if spec.inputs == "vector":
            inputs = rng.normal(size=(*steps, spec.d_input)).astype(np.float32)
        predicted = (BATCH,) if spec.l_output is None else (BATCH, LENGTH)
        targets = rng.integers(0, spec.d_output, predicted).astype(np.int32)
        if spec.targets == "regression":
            targets = rng.normal(size=(*predicted, spec.d_output)).astype(np.float32)
        mask = reset = None
        if self.padded:
            mask = rng.random(steps) < 0.7
            mask[0], mask[1, ..., 9:], mask[2, ..., :14] = False, False, False
        if self.resets:
            reset = rng.random(steps) < 0.15
            reset[..., LENGTH // 2] = True
        loss_mask, dt = rng.random(predicted) < 0.8, None
        if spec.irregular:
            dt = rng.uniform(0.2, 3, steps).astype(np.float32)
        return Batch(inputs, targets, loss_mask, mask, reset, dt)


class Case(NamedTuple):
    """A model, its task, and whether states are carried."""

    model: Any
    task: Drawn
    carried: bool = False


def case(model, *fields, padded=False, resets=False, carried=False, **more):
    spec: Any = {name: value for of in fields for name, value in of.items()} | more
    task = Drawn(TaskSpec(length=LENGTH, **spec), padded, resets)
    return Case(model, task, carried)


def layer(recurrence):
    return RecurrentLayer(recurrence, ChannelMixing(dropout=0.2))


mamba = Block(Mamba(SelectiveSSM(d_state=4), n_layers=2), norm="rms", prenorm=True)
CASES = {
    "batch norm": case(
        SequenceModel(
            encoder=VectorEncoder(8),
            block=Block(layer(DLR(d_state=4)), norm="batch", dropout=0.1),
            n_layers=2,
            head=StepHead(2),
            encoder_dropout=0.1,
            remat=True,
        ),
        *(VECTORS, VALUES),
        l_output=LENGTH,
        padded=True,
        resets=True,
        carried=True,
    ),
    "positions": case(
        SequenceModel(
            encoder=TokenEncoder(8, TOKENS),
            block=Block(layer(S5(d_state=4, blocks=1)), prenorm=True),
            n_layers=2,
            head=PooledHead(3, d_hidden=5, dropout=0.2),
            positions=PositionalEmbedding(LENGTH),
        ),
        *(WORDS, CLASSES),
        l_output=None,
        padded=True,
        resets=True,
    ),
    "irregular": case(
        SequenceModel(
            encoder=VectorEncoder(8),
            block=Block(layer(S5(d_state=4, blocks=1)), prenorm=True),
            n_layers=2,
            head=StepHead(2),
        ),
        *(VECTORS, VALUES),
        l_output=LENGTH,
        irregular=True,
        padded=True,
        resets=True,
        carried=True,
    ),
    "bidirectional": case(
        SequenceModel(
            encoder=VectorEncoder(8),
            block=Block(layer(DLR(d_state=4, bidirectional=True))),
            n_layers=1,
            head=PooledHead(3),
            positions=PositionalEmbedding(LENGTH),
        ),
        *(VECTORS, CLASSES),
        l_output=None,
    ),
    "nonlinear": case(
        RecurrentNetwork(
            GRU(d_state=5), LastHead(3), encoder=VectorEncoder(4), dropout=0.2
        ),
        *(VECTORS, CLASSES),
        l_output=None,
        padded=True,
        carried=True,
    ),
    "mamba": case(
        SequenceModel(
            encoder=TokenEncoder(8, TOKENS), block=mamba, n_layers=2, head=None
        ),
        *(WORDS, CLASSES | {"d_output": TOKENS}),
        l_output=LENGTH,
        language=True,
        resets=True,
        carried=True,
    ),
    "last step": case(
        SequenceModel(
            encoder=TokenEncoder(8, TOKENS), block=mamba, n_layers=2, head=LastHead(3)
        ),
        *(WORDS, CLASSES),
        l_output=None,
        padded=True,
        resets=True,
        carried=True,
    ),
    "pairs": case(
        SequenceModel(
            encoder=TokenEncoder(8, TOKENS),
            block=Block(ETSMLP(CES(), 6, gate=True, dropout=0.1)),
            n_layers=1,
            head=PairHead(3, 5, dropout=0.1),
        ),
        *(WORDS, CLASSES),
        l_output=None,
        pair=True,
        padded=True,
    ),
}


def begun(case):
    """The run of a case, its state before a step, and its batch."""
    run, state = create(case.model, case.task, SGD, seed=0)
    if case.carried:
        run = dataclasses.replace(run, state_init=StateInit(), state_penalty=0.1)
        rng = np.random.default_rng(1)
        zeros = case.model.initial_state((BATCH,))
        drawn = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), zeros)
        state = state.replace(carry=drawn)
    return run, state, case.task.batch("train", 0, BATCH, seed=0)


def numbers(reductions):
    # The iterations of a solver are those of its pieces; they are not measured.
    return {
        name: reduction.compute()
        for name, reduction in reductions.items()
        if not name.startswith("solver")
    }


# Pieces of sequences and shards of parameters, on eight devices.
MESHES = {
    "data=4,seq=2": (2, 1),
    "data=2,seq=4": (4, 1),
    "data=1,seq=8": (8, 1),
    "data=2,model=2,seq=2": (2, 2),
    "data=4,model=2": (1, 2),
    "data=1,model=8": (1, 8),
}


@pytest.mark.parametrize("mesh", tiered(MESHES, 0, full=("data=2,model=2,seq=2",)))
@pytest.mark.parametrize("case", tiered(CASES, 0, full=0))
def test_sharded_sequences_take_the_step_of_whole_ones(case, mesh, monkeypatch):
    # Of these models all arrays are small.
    monkeypatch.setattr(parameters, "SMALLEST", 64)
    run, state, batch = begun(case)
    wanted, wanted_sums = jax.jit(partial(train_step, run))(state, batch)
    parallel = DataParallel("shard_map", None, *mesh)
    there = parallel.split(batch, run.spec)
    placed = parallel.place(state)
    found, sums = parallel.train_step(run)(placed, there)
    found = parallel.gather(found)

    def off(one, other, scale):
        difference = jax.tree.map(
            lambda a, b: np.asarray(a) - np.asarray(b), one, other
        )
        return float(optax.tree.norm(difference) / (1e-6 + optax.tree.norm(scale)))

    # Differences are relative to the update, which is the gradient times the rate.
    update = jax.tree.map(lambda a, b: a - b, wanted.params, state.params)
    assert optax.tree.norm(update) > 1e-3
    assert off(found.params, wanted.params, update) < 1e-5
    assert off(found.model_state, wanted.model_state, wanted.model_state) < 1e-5
    assert off(found.carry, wanted.carry, wanted.carry) < 1e-5
    sums, wanted_sums = numbers(sums), numbers(wanted_sums)
    assert sums == pytest.approx(wanted_sums, rel=1e-5)

    variables = state.params, state.model_state
    measured, carry = parallel.evaluation_step(run)(
        *variables, there, parallel.split(state.carry)
    )
    expected, last = jax.jit(partial(evaluation_step, run))(
        *variables, batch, state.carry
    )
    assert numbers(measured) == pytest.approx(numbers(expected), rel=1e-5)
    if case.carried:
        assert off(carry, last, last) < 1e-5
    predict = parallel.prediction_step(run)
    predicted, _ = predict(*variables, there, parallel.split(state.carry))
    expected, _ = jax.jit(partial(prediction_step, run))(*variables, batch, state.carry)
    if run.spec.language:
        predicted, expected = predicted[0], expected[0]
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=1e-5)


@pytest.mark.nightly
def test_gathered_blocks_are_not_kept():
    """Of each further block a device has two shards: of its gradient, and stacked.

    Arrays that are too small to be sharded it has whole, twice as well, and the input.
    """
    vocabulary = 512
    spec = TaskSpec(
        length=16,
        inputs="token",
        d_input=vocabulary,
        targets="classification",
        d_output=vocabulary,
        l_output=16,
        language=True,
    )
    task = Drawn(spec, padded=False, resets=False)
    temporary = {}
    for n_layers in (4, 12):
        model = SequenceModel(
            encoder=TokenEncoder(512, vocabulary),
            block=Block(layer(S5(d_state=16, blocks=1)), prenorm=True),
            n_layers=n_layers,
            head=None,
            scan_blocks=True,
        )
        run, state = abstract_state(partial(create, model, task, SGD, seed=0))
        parallel = DataParallel("shard_map", shards=8)
        placed = jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=sharding
            ),
            state,
            parallel.shardings(state),
        )
        batch = task.batch("train", 0, BATCH, seed=0)
        step: Any = parallel.compiled_train_step(run, placed, batch)
        temporary[n_layers] = step.memory_analysis().temp_size_in_bytes
    sizes = [4 * leaf.size for leaf in jax.tree.leaves(state.params["block_0"])]
    sharded = sum(size for size in sizes if size >= parameters.SMALLEST)
    inputs = 4 * BATCH // 8 * 16 * 512
    kept = 2 * sharded / 8 + 2 * (sum(sizes) - sharded) + inputs
    assert sharded > 0.9 * sum(sizes)
    assert (temporary[12] - temporary[4]) / 8 < 1.1 * kept < sharded / 2


@pytest.mark.parametrize(
    "of_block",
    tiered(
        {
            "attention": {"layer": Attention(n_heads=2)},
            "rotary": {"layer": RotaryAttention(n_heads=2)},
            "experts": {
                "layer": layer(DLR(d_state=4)),
                "feedforward": ExpertChoiceMLP(8, n_experts=2),
            },
        },
        full=2,
    ),
)
def test_layers_of_whole_sequences_are_refused(of_block):
    model = SequenceModel(
        encoder=VectorEncoder(8), block=Block(**of_block), n_layers=1, head=StepHead(2)
    )
    run, state, batch = begun(case(model, VECTORS, VALUES, l_output=LENGTH))
    parallel = DataParallel("shard_map", pieces=2)
    step = parallel.train_step(run)
    with refuses("layer", rule="must not need whole sequences"):
        step(parallel.place(state), parallel.split(batch, run.spec))


def rows_of_six():
    DataParallel("shard_map", pieces=2).check(6)


@pytest.mark.parametrize(
    ("name", "rule", "call"),
    [
        ("mesh", "of the form", lambda: mesh_shape("length=2", 8)),
        ("mesh", "of the form", lambda: mesh_shape("data=0", 8)),
        ("mesh", "of the form", lambda: mesh_shape("", 8)),
        ("mesh", "of the form", lambda: mesh_shape("model=2,model=4", 8)),
        ("mesh", "must have 8 devices", lambda: mesh_shape("seq=3", 8)),
        ("mesh", "of the form", lambda: mesh_shape("data=2,seq=2,model=2", 8)),
        ("mesh", "must have 8 devices", lambda: mesh_shape("data=8,model=2", 8)),
        ("parallel", "must be 'shard_map'", lambda: DataParallel("pmap", shards=2)),
        ("model", "must divide 4", lambda: DataParallel("shard_map", None, 2, 8)),
        ("mesh", "must have 8 devices", lambda: mesh_shape("data=2,seq=2", 8)),
        ("parallel", "must be 'shard_map'", lambda: DataParallel("pmap", pieces=2)),
        ("batch_size", "multiple of 4, the number of shards of its rows", rows_of_six),
        ("seq", "must divide 8", lambda: DataParallel("shard_map", pieces=3)),
        ("seq", "must divide 24", lambda: check_sharded_length(spec_of(), 5)),
        ("seq", "must be 1", lambda: check_sharded_length(spec_of(l_output=3), 2)),
        ("gradient_windows", "1", lambda: check_sharded_length(spec_of(), 2, 3)),
    ],
)
def test_meshes_that_do_not_fit_are_refused(name, rule, call):
    with refuses(name, rule=rule):
        call()


def spec_of(l_output=None):
    return TaskSpec(length=LENGTH, l_output=l_output, **VECTORS, **VALUES)
