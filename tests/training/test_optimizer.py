"""Schedules at known steps; what each group of parameters is given."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.core import meta
from jaxtyping import TypeCheckError

from ssm_jax.config import build, from_json, spec, to_json
from ssm_jax.layers import Recurrent
from ssm_jax.models import StepHead
from ssm_jax.recurrences import DLR, ParamGroup
from ssm_jax.training.groups import (
    describe,
    groups_of,
    with_rates,
    without_vector_decay,
)
from ssm_jax.training.optimizer import OPTIMIZERS, Optimizer
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny

DEFAULT, PLAIN = ParamGroup(), ParamGroup(weight_decay=False)
SLOW = ParamGroup(weight_decay=False, lr_multiplier=0.1)


OWN = ("sqrt_decay", "phase", "w_re", "w_im")
"""The parameters of a DLR whose group is its own."""


@pytest.fixture(scope="module")
def boxed():
    """What ``init`` of a model returns; its decays and weights take SLOW."""
    config = tiny.model(StepHead(d_output=2))
    config.block.layer.recurrence.lr_multiplier = 0.1
    x = jnp.zeros((1, 8, 3))
    return jax.jit(build(config).init)(jax.random.key(0), x)["params"]


@pytest.fixture
def params(boxed):
    return meta.unbox(boxed)


def recurrence_of(tree):
    return tree["block_0"]["layer"]["recurrent"]["recurrence"]


def steps(transform, params, gradients):
    """The parameters after each of the gradients."""
    state, after = transform.init(params), []
    for gradient in gradients:
        updates, state = transform.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        after.append(params)
    return after


def gradients_like(params, n, scale=1.0):
    rng = np.random.default_rng(0)

    def draw(leaf):
        return jnp.asarray(scale * rng.standard_normal(leaf.shape), jnp.float32)

    return [jax.tree.map(draw, params) for _ in range(n)]


COSINE = {"schedule": "cosine", "schedule_steps": 110}
LINEAR = {"schedule": "linear", "schedule_steps": 110}
WSD = {"schedule": "wsd", "schedule_steps": 110}
WARM_UP = {"warmup_steps": 10, "warmup_from": 1e-7}
SCHEDULES = {
    "constant": ({}, {0: 0.02, 10**6: 0.02}),
    "warm-up": (WARM_UP, {0: 1e-7, 5: (0.02 + 1e-7) / 2, 10: 0.02, 10**6: 0.02}),
    "warm-up from zero": ({"warmup_steps": 10}, {0: 0.0, 1: 0.002, 9: 0.018}),
    "linear": (LINEAR | WARM_UP, {0: 1e-7, 10: 0.02, 60: 0.01, 110: 0.0, 500: 0.0}),
    "cosine": (
        COSINE | WARM_UP,
        {10: 0.02, 35: 0.01 * (1 + 0.5**0.5), 60: 0.01, 110: 0.0, 500: 0.0},
    ),
    "staircase": (
        {"schedule": "staircase", "staircase": 0.5},
        {0: 0.02, 999: 0.02, 1000: 0.01, 2500: 0.005},
    ),
    "wsd": (
        WSD | WARM_UP | {"decay_steps": 20},
        {0: 1e-7, 10: 0.02, 90: 0.02, 100: 0.01, 110: 0.0, 500: 0.0},
    ),
    "wsd of a tenth": (WSD, {0: 0.02, 99: 0.02, 99 + 5.5: 0.01, 110: 0.0}),
    "wsd without a stable part": (
        WSD | {"warmup_steps": 10, "decay_steps": 100},
        {5: 0.01, 10: 0.02, 60: 0.01, 110: 0.0},
    ),
    "wsd of few steps": (WSD | {"schedule_steps": 3}, {0: 0.02, 2: 0.02, 3: 0.0}),
    "no warm-up": (COSINE, {0: 0.02, 55: 0.01, 110: 0.0}),
    "of optax": (
        WARM_UP
        | {
            "schedule": "exponential_decay",
            "schedule_arguments": (
                ("init_value", 1.0),
                ("transition_steps", 100),
                ("decay_rate", 0.25),
            ),
        },
        {0: 1e-7, 10: 0.02, 60: 0.01, 110: 0.005},
    ),
    "by address": (
        {"schedule": "optax:constant_schedule", "schedule_arguments": (("value", 2),)},
        {0: 0.04, 10**6: 0.04},
    ),
    "function": (
        {"schedule": functools.partial(optax.constant_schedule, 2)},
        {0: 0.04, 10**6: 0.04},
    ),
}


@pytest.mark.parametrize(("options", "known"), SCHEDULES.values(), ids=SCHEDULES.keys())
def test_schedule_has_known_values(options, known):
    rate = Optimizer(learning_rate=0.02, **options).rate()
    measured = {step: float(rate(step)) for step in known}
    assert measured == pytest.approx(known, rel=1e-5, abs=3e-9)


@pytest.mark.parametrize("options", [{}, COSINE | WARM_UP])
def test_multiplier_scales_the_whole_schedule(options):
    optimizer = Optimizer(learning_rate=0.02, **options)
    for step in (0, 3, 10, 60, 110):
        wanted = 0.1 * float(optimizer.rate()(step))
        rate = float(optimizer.rate(0.1)(step))
        assert rate == pytest.approx(wanted, rel=1e-5, abs=3e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "cosine"},
        {"schedule": "wsd"},
        {"schedule": "linear", "schedule_steps": 10, "warmup_steps": 10},
    ],
)
def test_fall_without_an_end_is_refused(options):
    with refuses("schedule_steps"):
        Optimizer(learning_rate=0.1, **options)


def test_fall_that_begins_within_the_warmup_is_refused():
    Optimizer(learning_rate=0.1, **WSD, warmup_steps=10, decay_steps=100)
    with refuses("decay_steps", 101, rule="at most 110 - 10"):
        Optimizer(learning_rate=0.1, **WSD, warmup_steps=10, decay_steps=101)


UNREAD = {
    "adamw": ({"momentum": 0.9}, "sgd"),
    "lion": ({"kind": "lion", "eps": 1e-6}, "adamw"),
    "lion, momentum": ({"kind": "lion", "momentum": 0.9}, "sgd"),
    "sgd": ({"kind": "sgd", "b2": 0.98}, "adamw and lion"),
}


@pytest.mark.parametrize(("fields", "others"), UNREAD.values(), ids=UNREAD.keys())
def test_moment_that_the_kind_does_not_read_is_refused(fields, others):
    (name, value) = list(fields.items())[-1]
    with refuses(name, value, rule=f"it is a field of {others}."):
        Optimizer(learning_rate=0.1, **fields)


def test_each_parameter_is_in_the_group_of_its_recurrence(boxed):
    groups = groups_of(boxed)
    assert recurrence_of(groups) == dict.fromkeys(OWN, SLOW) | {"feedthrough": DEFAULT}
    recurrence_of(groups).clear()
    rest = jax.tree.leaves(groups, is_leaf=lambda leaf: isinstance(leaf, ParamGroup))
    assert set(rest) == {DEFAULT}


def test_groups_together_are_all_parameters(boxed, params):
    assert list(describe(groups_of(boxed), params)) == [
        "58 parameters with weight decay, rate x1",
        "40 parameters without weight decay, rate x0.1",
    ]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 58 + 40
    # Biases, the norm and the feedthrough are vectors.
    assert list(describe(without_vector_decay(groups_of(boxed)), params)) == [
        "22 parameters without weight decay, rate x1",
        "36 parameters with weight decay, rate x1",
        "40 parameters without weight decay, rate x0.1",
    ]


@pytest.mark.parametrize("change", [{"more": DEFAULT}, {"encoder": DEFAULT}])
def test_groups_of_another_tree_are_refused(boxed, params, change):
    with refuses("groups"):
        list(describe(groups_of(boxed) | change, params))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Misnamed(DLR):
    """A recurrence whose groups name what it does not have."""

    def groups(self):
        return {"log_dt": PLAIN}


def test_group_of_an_unknown_parameter_is_refused(key):
    with refuses("groups", "log_dt"):
        Recurrent(Misnamed(d_state=2)).init(key, jnp.zeros((4, 3)))


@pytest.mark.full
def test_one_group_is_optax_adamw(params):
    """All of it against the library's own, over steps of a schedule."""
    optimizer = Optimizer(
        learning_rate=0.01, weight_decay=0.1, b1=0.8, b2=0.95, eps=1e-6, **COSINE
    )
    ours = optimizer.transform(jax.tree.map(lambda _: DEFAULT, params))
    theirs = optax.adamw(
        optax.cosine_decay_schedule(0.01, 110),
        b1=0.8,
        b2=0.95,
        eps=1e-6,
        weight_decay=0.1,
    )
    gradients = gradients_like(params, 3)
    chex.assert_trees_all_close(
        steps(ours, params, gradients), steps(theirs, params, gradients), rtol=1e-6
    )


@pytest.mark.parametrize("kind", ["adamw", "lion", "sgd"])
def test_only_groups_that_take_weight_decay_shrink(boxed, params, kind):
    optimizer = Optimizer(learning_rate=0.1, weight_decay=0.5, kind=kind)
    transform = optimizer.transform(groups_of(boxed))
    (after,) = steps(transform, params, [jax.tree.map(jnp.zeros_like, params)])
    wanted = jax.tree.map(lambda p: p * (1 - 0.1 * 0.5), params)
    for name in OWN:
        recurrence_of(wanted)[name] = recurrence_of(params)[name]
    chex.assert_trees_all_close(after, wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "lion", "sgd"])
def test_steps_of_a_group_are_as_long_as_its_multiplier(boxed, params, kind):
    """Each takes a step of the learning rate where the gradient is plus or minus 1."""
    transform = Optimizer(learning_rate=0.01, kind=kind).transform(groups_of(boxed))
    gradient = jax.tree.map(jnp.ones_like, params)
    (after,) = steps(transform, params, [gradient])
    moved = jax.tree.map(lambda a, b: float(jnp.mean(b - a)), after, params)
    for name in OWN:
        assert recurrence_of(moved).pop(name) == pytest.approx(0.001, rel=1e-3)
    for length in jax.tree.leaves(moved):
        assert length == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_follows_its_formula(params, momentum):
    optimizer = Optimizer(learning_rate=0.5, kind="sgd", momentum=momentum)
    transform = optimizer.transform(jax.tree.map(lambda _: DEFAULT, params))
    gradients = gradients_like(params, 2)
    _, after = steps(transform, params, gradients)
    wanted = jax.tree.map(
        lambda p, g, h: p - 0.5 * (g + h + momentum * g), params, *gradients
    )
    chex.assert_trees_all_close(after, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("length", "kept"), [(10.0, 0.2), (0.5, 1.0)])
def test_gradient_is_clipped_by_its_norm_over_all_groups(boxed, params, length, kept):
    optimizer = Optimizer(learning_rate=1.0, kind="sgd", clip_norm=2.0)
    transform = optimizer.transform(groups_of(boxed))
    (gradient,) = gradients_like(params, 1)
    scale = length / optax.tree.norm(gradient)
    gradient = jax.tree.map(lambda g: scale * g, gradient)
    (after,) = steps(transform, params, [gradient])
    moved = jax.tree.map(jnp.subtract, params, after)
    for name in OWN:  # their multiplier comes after the clipping
        recurrence_of(moved)[name] /= 0.1
    wanted = jax.tree.map(lambda g: kept * g, gradient)
    chex.assert_trees_all_close(moved, wanted, rtol=1e-4, atol=1e-5)


OTHERS = {
    "by name": ("rmsprop", {"eps": 1e-3}, optax.rmsprop),
    "by address": ("optax:rmsprop", {"eps": 1e-3}, optax.rmsprop),
    "function": (optax.rmsprop, {"eps": 1e-3}, optax.rmsprop),
    "weight decay": ("optax:nadamw", {"b1": 0.8, "weight_decay": 0.1}, optax.nadamw),
}


@pytest.mark.parametrize(
    ("kind", "fields", "theirs"), tiered(OTHERS, fast=(), full=1, unpack=True)
)
def test_other_optimizer_is_that_of_optax(params, kind, fields, theirs):
    """Fields that are not the default and further arguments reach the constructor."""
    arguments = {"nesterov": True} if theirs is optax.rmsprop else {"eps_root": 1e-4}
    if callable(kind):
        config = spec(
            Optimizer, learning_rate=0.01, kind=spec(kind, **arguments), **fields
        )
        optimizer = build(from_json(to_json(config)))
    else:
        named = {"kind": kind, "arguments": tuple(arguments.items())}
        optimizer = Optimizer(learning_rate=0.01, **named, **fields)
    ours = optimizer.transform(jax.tree.map(lambda _: DEFAULT, params))
    theirs = theirs(0.01, **arguments, **fields)
    gradients = gradients_like(params, 3)
    chex.assert_trees_all_close(
        steps(ours, params, gradients), steps(theirs, params, gradients), rtol=1e-6
    )


@pytest.mark.parametrize("kind", tiered(OPTIMIZERS, fast=(), full=()))
def test_every_named_optimizer_takes_a_step_down(kind):
    params = {"w": jnp.ones((4, 3)), "b": jnp.ones(3)}
    groups = {"w": DEFAULT, "b": PLAIN}
    transform = Optimizer(learning_rate=0.1, kind=kind).transform(groups)
    *_, after = steps(transform, params, [params, params])
    assert all(bool(jnp.all(leaf < 1)) for leaf in after.values())


def test_rates_multiply_those_of_recurrences(boxed):
    """The first pattern that matches a path counts."""
    rates = (("/phase$", 0.5), ("recurrence/", 3.0), ("^encoder", 0.0))
    groups = with_rates(groups_of(boxed), rates)
    found = recurrence_of(groups)
    assert found["phase"].lr_multiplier == pytest.approx(0.05)
    assert found["w_re"].lr_multiplier == pytest.approx(0.3)
    assert found["feedthrough"] == ParamGroup(lr_multiplier=3.0)
    assert groups["encoder"]["linear"]["dense"]["bias"].lr_multiplier == 0
    assert groups["head"]["linear"]["dense"]["bias"] == DEFAULT


@pytest.mark.parametrize("pattern", ["encodre", "(", "^encoder/linear"])
def test_pattern_that_counts_for_nothing_is_refused(boxed, pattern):
    rates = (("^encoder", 0.5), (pattern, 0.5))
    with refuses("rates", pattern):
        Optimizer(learning_rate=0.1, rates=rates)
        with_rates(groups_of(boxed), rates)


UNKNOWN = {
    "optimizer": ({"kind": "adamm"}, "adam"),
    "schedule": ({"schedule": "cosin"}, "cosine"),
    "module": ({"kind": "no.module:adam"}, "no.module"),
    "function": ({"kind": "optax:adamm"}, "optax:adamm"),
    "argument": ({"kind": "adam", "arguments": (("epss", 1.0),)}, "eps"),
    "momentum of another": ({"kind": "adam", "momentum": 0.5}, "momentum"),
    "no decay": ({"kind": "adam", "weight_decay": 0.5}, "adamw"),
    "given twice": ({"arguments": (("b1", 0.5),)}, "b1"),
    "none lacks": ({"schedule": "linear_schedule"}, "init_value"),
    "function with arguments": (
        {"kind": optax.adam, "arguments": (("eps", 1.0),)},
        "spec(function",
    ),
    "own schedule": ({"schedule_arguments": (("value", 1.0),)}, "empty"),
}


@pytest.mark.parametrize(("fields", "hint"), tiered(UNKNOWN, fast=UNKNOWN, unpack=True))
def test_unknown_name_or_argument_is_refused(fields, hint):
    with pytest.raises(ValueError, match="^`[a-z_.]+` must ") as error:
        Optimizer(learning_rate=0.1, **fields).transform({"w": DEFAULT})
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"), [("kind", "adamm"), ("schedule", "exponential")]
)
def test_unknown_choice_is_refused_when_built(field, value):
    config = tiny.shift().optimizer
    config[field] = value
    with pytest.raises((ValueError, TypeCheckError), match=field):
        build(config, "config.optimizer")
