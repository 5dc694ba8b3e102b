"""Each optimizer of optax trains what its paper trains, or is refused by its name."""

import dataclasses
import functools
import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.core import meta
from optax import contrib

from ssm_jax.config import build
from ssm_jax.layers import ExpertChoiceMLP, LabelledParam, Mamba, RotaryAttention
from ssm_jax.models import (
    Block,
    PooledHead,
    PositionalEmbedding,
    RecurrentNetwork,
    SequenceModel,
    StepHead,
    TokenEncoder,
)
from ssm_jax.recurrences import GRU, ParamGroup
from ssm_jax.sharding import parameters
from ssm_jax.tasks import Shift
from ssm_jax.training import Optimizer, create
from ssm_jax.training.groups import groups_of, is_group
from ssm_jax.training.losses import mean_square
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import TrainState
from ssm_jax.training.transforms import averaged_params
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny

TOKENS = jax.ShapeDtypeStruct((1, 8), "int32")
MAMBA = SequenceModel(
    TokenEncoder(d_model=8, vocabulary=16),
    Block(Mamba(), norm="rms", prenorm=True),
    n_layers=1,
    head=None,
)
EXPERTS = SequenceModel(
    TokenEncoder(d_model=8, vocabulary=16, d_embedding=4),
    Block(RotaryAttention(2), feedforward=ExpertChoiceMLP(d_hidden=6, n_experts=3)),
    n_layers=1,
    head=PooledHead(d_output=3),
    positions=PositionalEmbedding(8),
)
NETWORK = RecurrentNetwork(
    GRU(d_state=4), StepHead(d_output=3), TokenEncoder(d_model=8, vocabulary=16)
)
MATRICES = {
    "mamba": (
        MAMBA,
        {
            "block_0/layer/in/dense/kernel",
            "block_0/layer/out/dense/kernel",
            "block_0/layer/recurrent/recurrence/input_kernel",
            "block_0/layer/recurrent/recurrence/step_kernel",
        },
    ),
    "experts": (
        EXPERTS,
        {
            "block_0/feedforward/experts/in/dense/kernel",
            "block_0/feedforward/experts/out/dense/kernel",
            "block_0/feedforward/router/dense/kernel",
            "block_0/layer/in/dense/kernel",
            "block_0/layer/mixed/dense/kernel",
            "block_0/layer/out/dense/kernel",
        },
    ),
    "network": (
        NETWORK,
        {
            "recurrent/recurrence/input_kernel",
            "recurrent/recurrence/recurrent_kernel",
        },
    ),
}


def named(tree, is_leaf=None):
    """The leaves of a tree by their paths."""
    leaves = jax.tree.leaves_with_path(tree, is_leaf=is_leaf)
    return {jax.tree_util.keystr(p, simple=True, separator="/"): x for p, x in leaves}


def of_type(tree, cls):
    """The nodes of a tree of one class."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, cls))
    return [leaf for leaf in leaves if isinstance(leaf, cls)]


@pytest.mark.parametrize(("model", "wanted"), MATRICES.values(), ids=MATRICES.keys())
def test_muon_orthogonalizes_hidden_matrices_alone(model, wanted):
    boxed = jax.eval_shape(model.init, jax.random.key(0), TOKENS)["params"]
    muon = Optimizer(learning_rate=0.01, kind="optax.contrib:muon")
    state = jax.eval_shape(muon.transform(groups_of(boxed)).init, meta.unbox(boxed))
    found = [set(named(muon.mu)) for muon in of_type(state, contrib.MuonState)]
    assert set().union(*found) == wanted


def test_each_parameter_has_its_kind():
    kinds = {}
    for model in (MAMBA, EXPERTS, NETWORK):
        boxed = jax.eval_shape(model.init, jax.random.key(0), TOKENS)["params"]
        for name, group in named(groups_of(boxed), is_group).items():
            kinds.setdefault(group.kind, set()).add(name)
    assert kinds.pop("matrix") == set().union(
        *(names for _, names in MATRICES.values())
    )
    assert kinds["convolution"] == {"block_0/layer/convolution/kernel"}
    assert kinds["embedding"] == {
        "encoder/table/embedding",
        "encoder/from_table/dense/kernel",
        "positions/table",
    }
    assert kinds["head"] == {"head/linear/dense/kernel"}
    assert "block_0/layer/recurrent/recurrence/log_rate" in kinds["recurrence"]
    ends = {name.split("/")[-1] for name in kinds["vector"]}
    assert ends == {"bias", "scale", "recurrent_bias"}


def test_kind_of_a_label_and_of_other_modules():
    """A label decides; flax's names do for modules that this library does not have."""

    def shape(*sizes):
        return jax.ShapeDtypeStruct(sizes, "float32")

    matrix = LabelledParam(shape(2, 3), ParamGroup(kind="matrix"))
    groups = groups_of(
        {
            "block_0": {
                "Conv_0": {"kernel": shape(3, 4, 4), "bias": shape(4)},
                "Embed_0": {"embedding": shape(5, 4)},
                "gate": {"kernel": shape(4, 4)},
                "labelled": matrix,
                "recurrence": {"W": shape(4, 4), "b": shape(4)},
            },
        }
    )
    assert {name: g.kind for name, g in named(groups, is_group).items()} == {
        "block_0/Conv_0/kernel": "convolution",
        "block_0/Conv_0/bias": "vector",
        "block_0/Embed_0/embedding": "embedding",
        "block_0/gate/kernel": "matrix",
        "block_0/labelled": "matrix",
        "block_0/recurrence/W": "recurrence",
        "block_0/recurrence/b": "vector",
    }


# A model of six parameters, of which one does not move.
PLAIN = ParamGroup(weight_decay=False, kind="recurrence")
GROUPS = {
    "matrix": ParamGroup(kind="matrix"),
    "experts": ParamGroup(kind="matrix"),
    "embedding": ParamGroup(kind="embedding"),
    "scale": ParamGroup(kind="vector"),
    "rate": ParamGroup(weight_decay=False, lr_multiplier=0.5, kind="recurrence"),
    "frozen": ParamGroup(lr_multiplier=0.0, kind="matrix"),
}
SHAPES = {
    "matrix": (4, 5),
    "experts": (2, 4, 3),
    "embedding": (6, 4),
    "scale": (4,),
    "rate": (3, 2),
    "frozen": (3, 3),
}


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(rng.normal(size=s), jnp.float32) for name, s in SHAPES.items()
    }


GOALS = drawn(1)


def loss(params):
    """A mean of squares that differ in curvature."""
    scaled = [(i + 1) * (params[n] - GOALS[n]) for i, n in enumerate(sorted(params))]
    return sum(jnp.mean(jnp.square(x)) for x in scaled)


def descend(transform, params, n_steps):
    """The states and losses of steps, as a run takes them."""
    update = optax.with_extra_args_support(transform).update

    def step(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = update(gradient, state, params, value=value)
        return (optax.apply_updates(params, updates), state), (params, value)

    @jax.jit
    def run(params):
        # Refused by `scan` if a step changes a type.
        first = params, transform.init(params)
        return jax.lax.scan(step, first, length=n_steps)

    (after, state), (params, losses) = run(params)
    return after, state, params, losses


def optimizers():
    """The addresses of all functions of optax that may be an optimizer."""
    for module in (optax, contrib):
        for name in sorted(dir(module)):
            function = getattr(module, name)
            # Some are partial functions; the aliases of types have no signature.
            if name.startswith("_") or inspect.isclass(function):
                continue
            try:
                signature = inspect.signature(function)
            except (TypeError, ValueError):
                continue
            made = "GradientTransformation" in str(signature.return_annotation)
            if made or "learning_rate" in signature.parameters:
                yield f"{module.__name__}:{name}"


# All of these train; all others are refused.
ELEMENTWISE = (
    *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw"),
    *("adamw", "adan", "amsgrad", "fromage", "lamb", "lars", "lion", "nadam", "nadamw"),
    *("novograd", "optimistic_adam_v2", "optimistic_gradient_descent", "radam"),
    *("rmsprop", "sgd", "sign_sgd", "signum", "yogi"),
)
OF_CONTRIB = ("acprop", "ademamix", "adopt", "cocob", "madgrad", "simplified_ademamix")
OTHERS = ("galore", "muon", "schedule_free_adamw", "schedule_free_sgd")
# Called once for all parameters, and the learning rate of those that estimate it.
WHOLE = {
    "optax.contrib:dadapt_adamw": 1.0,
    "optax.contrib:dog": 1.0,
    "optax.contrib:dowg": 1.0,
    "optax.contrib:momo": 1.0,
    "optax.contrib:momo_adam": 0.1,
    "optax.contrib:prodigy": 1.0,
    "optax:noisy_sgd": 0.01,
}
TRAINED = {
    *(f"optax:{name}" for name in ELEMENTWISE),
    *(f"optax.contrib:{name}" for name in (*OF_CONTRIB, *OTHERS)),
    *WHOLE,
}
# These begin with tiny steps.
SLOW = ("optax.contrib:dog", "optax:adadelta", "optax:lars")


@pytest.mark.parametrize(
    "kind",
    tiered(
        sorted(TRAINED & set(optimizers())),
        fast=["optax.contrib:prodigy", "optax.contrib:momo"],
        full=[
            *("optax:adafactor", "optax:adamw", "optax:lamb"),
            *("optax.contrib:momo", "optax.contrib:muon", "optax.contrib:prodigy"),
            "optax.contrib:schedule_free_adamw",
        ],
    ),
)
def test_optimizer_by_address_trains_all_but_the_frozen(kind):
    """A hundredth of the loss at least in 200 steps, the first three a warmup."""
    optimizer = Optimizer(
        kind=kind, learning_rate=WHOLE.get(kind, 0.02), warmup_steps=3
    )
    params = drawn()
    after, _, _, losses = descend(optimizer.transform(GROUPS), params, 200)
    assert np.all(np.isfinite(losses)), losses
    assert losses[-1] < (1 if kind in SLOW else 0.99) * losses[0], losses
    np.testing.assert_array_equal(after["frozen"], params["frozen"])
    for name in set(params) - {"frozen"}:
        assert np.any(after[name] != params[name]), name


def test_every_optimizer_of_optax_is_known():
    """A new one is trained, or is refused by the rules."""
    assert TRAINED <= set(optimizers())


@pytest.mark.parametrize("kind", sorted(set(optimizers()) - TRAINED))
def test_other_function_of_optax_is_refused_by_name(kind):
    optimizer = Optimizer(kind=kind, learning_rate=0.1)
    with refuses("kind", rule=f"got {kind}, ") as error:
        optimizer.transform(GROUPS)
    instead = str(error.value).partition("; use ")[2].removesuffix(".").split(" or ")
    for name in instead:
        assert name in TRAINED or f"optax:{name}" in TRAINED, error.value


@pytest.mark.parametrize(
    "kind",
    tiered(list(WHOLE), fast=(), full=("optax.contrib:momo", "optax.contrib:prodigy")),
)
def test_step_size_of_a_whole_model_is_one(kind):
    """One call has all parameters, of whatever group."""
    groups = GROUPS | {"rate": PLAIN, "frozen": PLAIN}
    transform = Optimizer(kind=kind, learning_rate=0.3).transform(groups)
    module, name = kind.split(":")
    more = {"key": 0} if name == "noisy_sgd" else {}
    theirs = {"optax": optax, "optax.contrib": contrib}[module]
    theirs = getattr(theirs, name)(learning_rate=0.3, **more)
    found, wanted = (descend(tx, drawn(), 4)[0] for tx in (transform, theirs))
    chex.assert_trees_all_close(found, wanted, rtol=1e-6)


def test_updates_of_a_whole_model_are_multiplied_by_the_factors_of_groups():
    groups = jax.tree.map(lambda _: ParamGroup(), GROUPS, is_leaf=is_group)
    momo = Optimizer(kind="optax.contrib:momo", learning_rate=0.3)
    found, wanted = (
        descend(momo.transform(g), drawn(), 1)[0]
        for g in (groups | {"rate": GROUPS["rate"]}, groups)
    )
    moved, whole = (jax.tree.map(jnp.subtract, x, drawn()) for x in (found, wanted))
    chex.assert_trees_all_close(moved.pop("rate"), 0.5 * whole.pop("rate"), rtol=1e-3)
    chex.assert_trees_all_equal(moved, whole)


@pytest.mark.full
def test_muon_is_that_of_optax_for_matrices_and_adam_for_others():
    """With the learning rate of Adam, which may be another, on the same schedule."""
    dimensions = contrib.MuonDimensionNumbers(-2, -1)
    names = {"matrix": dimensions, "experts": dimensions}
    rate = optax.linear_schedule(0.0, 0.1, 2)
    theirs = contrib.muon(
        rate,
        consistent_rms=0.2,
        weight_decay=0.1,
        adam_weight_decay=0.1,
        adam_learning_rate=lambda step: 0.3 * rate(step),
        muon_weight_dimension_numbers={name: names.get(name) for name in GROUPS},
    )
    ours = Optimizer(
        kind="optax.contrib:muon",
        learning_rate=0.1,
        warmup_steps=2,
        weight_decay=0.1,
        arguments=(("adam_learning_rate", 0.03),),
    )
    found, wanted = (
        descend(tx, drawn(), 4)[0]
        for tx in (
            ours.transform(
                jax.tree.map(
                    lambda g: ParamGroup(
                        kind=g.kind if g.lr_multiplier == 1 else "head"
                    ),
                    GROUPS,
                    is_leaf=is_group,
                )
            ),
            theirs,
        )
    )
    chex.assert_trees_all_close(found, wanted, rtol=1e-5)
    # Each expert by itself: all singular values of its first step are about one.
    first = Optimizer(kind="optax.contrib:muon", learning_rate=1.0).transform(GROUPS)
    moved = descend(first, drawn(), 1)[0]["experts"] - drawn()["experts"]
    values = np.linalg.svd(np.asarray(moved), compute_uv=False) / (0.2 * np.sqrt(4))
    assert np.all((values > 0.6) & (values < 1.3)), values


DECAYED = {
    "all": ({}, {"matrix", "experts", "embedding", "scale"}),
    "no vectors": ({"decay_vectors": False}, {"matrix", "experts", "embedding"}),
}


@pytest.mark.parametrize(("fields", "wanted"), DECAYED.values(), ids=DECAYED.keys())
@pytest.mark.parametrize(
    "kind",
    tiered(
        [
            *("adamw", "optax.contrib:muon", "optax.contrib:dowg"),
            *("sgd", "lion", "optax.contrib:schedule_free_adamw"),
        ],
        fast=3,
    ),
)
def test_weight_decay_is_that_of_the_kind(kind, fields, wanted):
    optimizer = Optimizer(kind=kind, learning_rate=0.1, weight_decay=0.5, **fields)
    transform, params = optimizer.transform(GROUPS), drawn()

    @jax.jit
    def update(params):
        zero = jax.tree.map(jnp.zeros_like, params)
        return transform.update(zero, transform.init(params), params)[0]

    updates = update(params)
    # Averaging leaves rounding.
    moved = {name for name, u in updates.items() if np.any(np.abs(u) > 1e-6)}
    assert moved == wanted
    for name in moved:
        assert np.all(np.sign(updates[name]) == -np.sign(params[name]))


REFUSED = {
    "no mask": ({"kind": "optax.contrib:prodigy", "weight_decay": 0.1}, "dog"),
    "clipped loss": ({"kind": "optax.contrib:momo", "clip_norm": 1.0}, "None"),
    "no average": (
        {"kind": "optax.contrib:schedule_free_sgd", "arguments": (("b1", 0.0),)},
        "0.9",
    ),
    "no rate of Adam": (
        {"kind": "optax.contrib:muon", "arguments": (("adam_learning_rate", "1"),)},
        "adam_learning_rate",
    ),
}


@pytest.mark.parametrize(("fields", "hint"), REFUSED.values(), ids=REFUSED.keys())
def test_setting_that_an_optimizer_cannot_have_is_refused(fields, hint):
    optimizer = Optimizer(learning_rate=0.1, **fields)
    with pytest.raises(ValueError, match="^`[a-z_0-9]+` must ") as error:
        optimizer.transform(GROUPS)
    assert hint in str(error.value)


def line_search(learning_rate):
    """An optimizer of somebody else that evaluates the loss."""
    del learning_rate
    return optax.scale_by_zoom_linesearch(max_linesearch_steps=3)


def by_loss(learning_rate):
    """Moves each parameter by the loss."""
    del learning_rate

    def update(updates, state, params, *, value, **_):
        del params
        return jax.tree.map(lambda x: jnp.full_like(x, value), updates), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def created(kind, **fields):
    optimizer = Optimizer(kind=f"{__name__}:{kind}", learning_rate=0.1, **fields)
    model = build(tiny.model(StepHead(d_output=2)))
    return create(model, Shift(length=16, n_shifts=2), optimizer, seed=0)


def test_update_that_needs_more_than_the_loss_is_refused_before_it_is_compiled():
    with refuses("optimizer", rule="value_fn"):
        created("line_search")


def test_average_is_that_of_optax_in_each_group():
    optimizer = Optimizer(kind="optax.contrib:schedule_free_adamw", learning_rate=0.1)
    clipped = dataclasses.replace(optimizer, clip_norm=1e6)
    groups = GROUPS | {"frozen": PLAIN}
    after, state, params, _ = descend(clipped.transform(groups), drawn(), 5)
    now = TrainState(step=5, params=after, model_state={}, opt_state=state, key=None)
    found = dict(now.evaluated_params)
    one = contrib.schedule_free_adamw(0.1)
    after, state, *_ = descend(one, drawn(), 5)
    wanted = contrib.schedule_free_eval_params(state, after)
    del found["rate"], wanted["rate"]  # of another learning rate
    chex.assert_trees_all_close(found, wanted, rtol=1e-5)
    assert np.any(np.abs(found["matrix"] - params["matrix"][-1]) > 1e-3)


def test_average_of_other_optimizers_is_what_they_train():
    params = drawn()
    state = Optimizer(learning_rate=0.1).transform(GROUPS).init(params)
    assert averaged_params(state, params) is params


VALUES = {
    "one": ({}, "jit", 1),
    "parts": ({"accumulate": 2}, "jit", 1),
    "pmap": ({"accumulate": 2}, "pmap", 4),
    "shard_map": ({"accumulate": 2}, "shard_map", 4),
}


@pytest.mark.parametrize(
    ("fields", "kind", "n_devices"),
    tiered(VALUES, fast=(), full=["shard_map"], unpack=True),
)
def test_value_is_the_loss_that_is_minimized(fields, kind, n_devices):
    """Over all rows and devices, with the penalty of the states."""
    run, state = created("by_loss")
    run = dataclasses.replace(run, state_penalty=0.5, **fields)
    parallel = DataParallel(kind, jax.devices()[:n_devices])
    batch = Shift(length=16, n_shifts=2).batch("train", 0, 16, 0)

    @jax.jit
    def minimized(params):
        predictions, states = run.model.apply({"params": params}, batch.inputs)
        error = jnp.square(predictions - batch.targets)[batch.loss_mask]
        return jnp.mean(error) + 0.5 * mean_square(states)

    before = jax.tree.map(np.asarray, state.params)
    step = parallel.train_step(run)
    after, _ = step(parallel.place(state), parallel.split(batch))
    kernel = ("head", "linear", "dense", "kernel")
    moved = functools.reduce(lambda tree, key: tree[key], kernel, after.params)
    moved = np.asarray(moved) - functools.reduce(lambda t, k: t[k], kernel, before)
    np.testing.assert_allclose(moved, float(minimized(before)), rtol=1e-5)


RATES = (("/phase$", 0.5), ("/w_re$", 0.0))
MAPPED = (
    ("optax.contrib:muon", "shard_map"),
    ("optax.contrib:muon", "model"),
    ("adafactor", "model"),
    ("lamb", "model"),
    ("adamw", "model"),
    ("optax.contrib:schedule_free_adamw", "pmap"),
    ("optax.contrib:momo", "shard_map"),
    ("optax.contrib:prodigy", "pmap"),
    ("optax:noisy_sgd", "shard_map"),
)


@pytest.mark.parametrize(
    ("kind", "mapped"), tiered(MAPPED, fast=(), full=3, unpack=True)
)
def test_devices_take_the_steps_of_one(kind, mapped, monkeypatch):
    """On parameters that are replicated, of which `shard_map` checks it, or sharded."""
    monkeypatch.setattr(parameters, "SMALLEST", 16)
    on = {"kind": mapped}
    if mapped == "model":
        on = {"kind": "shard_map", "shards": 4}
    task = Shift(length=16, n_shifts=2)
    model = build(tiny.model(StepHead(d_output=2)))
    optimizer = Optimizer(kind=kind, learning_rate=WHOLE.get(kind, 0.02), rates=RATES)
    run, state = create(model, task, optimizer, seed=0)
    found = []
    four = jax.devices()[:4]
    for parallel in (DataParallel("jit"), DataParallel(devices=four, **on)):
        step, now = parallel.train_step(run), parallel.place(state)
        for index in range(3):
            now, _ = step(now, parallel.split(task.batch("train", index, 8, 0)))
        found.append(jax.device_get(parallel.gather(now).params))
    chex.assert_trees_all_close(*found, rtol=1e-4, atol=1e-5)
