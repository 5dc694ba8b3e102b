"""Experts that choose their steps, against a definition by loops in float64."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from ssm_jax.layers import MLP, ExpertChoiceMLP, Recurrent
from ssm_jax.metrics import METRICS_COLLECTION, sown_metrics
from ssm_jax.models import Block
from tests.bad_inputs import refuses
from tests.layers.cases import MASK, PLAIN
from tests.tiers import tiered

LENGTH, D, HIDDEN = 10, 4, 6


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X = drawn(3, LENGTH, D)


@functools.cache
def initialized(layer):
    variables = jax.jit(layer.init)(jax.random.key(0), X)
    # Initial biases are 0 and initial probabilities nearly equal.
    leaves, tree = jax.tree.flatten(variables)
    drawn_leaves = [drawn(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, drawn_leaves)


@functools.cache
def compiled(layer):
    """``(y, of_x, of_params)`` with weights of a sum of ``y``."""

    @functools.partial(jax.jit, static_argnames="train")
    def run(variables, x, weights, mask, train):
        def apply(variables, x):
            return layer.apply(variables, x, mask=mask, train=train)

        y, pull = jax.vjp(apply, variables, x)
        of_variables, of_x = pull(weights)
        return y, of_x, of_variables

    return run


def definition(layer, variables, x, mask, factor):
    """One row ``(l, d)``, expert by expert; returns ``(y, chosen)``."""
    params = jax.tree.map(np.float64, variables["params"])
    router = params["router"]["dense"]["kernel"]
    into, out = (params["experts"][name]["dense"] for name in ("in", "out"))
    y, chosen = np.zeros(x.shape), np.zeros(len(x), bool)
    steps = np.flatnonzero(mask)
    probability = special.softmax(np.float64(x[steps]) @ router, -1)
    capacity = min(len(steps), math.ceil(factor * len(steps) / layer.n_experts))
    for e in range(layer.n_experts):
        for i in np.argsort(-probability[:, e], kind="stable")[:capacity]:
            hidden = x[steps[i]] @ into["kernel"][e] + into["bias"][e]
            hidden = hidden * special.ndtr(hidden)
            of_expert = hidden @ out["kernel"][e] + out["bias"][e]
            y[steps[i]] += probability[i, e] * of_expert
            chosen[steps[i]] = True
    return y, chosen


# Experts, capacity factors in training and outside, mask.
CASES = {
    "three_experts": (3, 1.0, 2.0, None),
    "padded": (3, 1.0, 2.0, MASK),
    "one_expert": (1, 1.0, 2.0, MASK),
    "few_steps": (4, 0.25, 0.3, MASK),
    "more_experts_than_steps": (16, 1.0, 2.0, None),
    "all_steps": (3, 3.0, 100.0, MASK),
}


@pytest.mark.parametrize("train", tiered([False, True]))
@pytest.mark.parametrize(
    ("n_experts", "factor", "eval_factor", "mask"),
    tiered(CASES, ["padded"], full=["padded", "few_steps", "all_steps"], unpack=True),
)
def test_layer_matches_its_definition(n_experts, factor, eval_factor, mask, train):
    layer = ExpertChoiceMLP(HIDDEN, n_experts, factor, eval_factor)
    mask = np.ones(X.shape[:2], bool) if mask is None else mask
    weights, direction = drawn(*X.shape, seed=1), np.float64(drawn(*X.shape, seed=2))
    variables = initialized(layer)
    x = np.where(mask[..., None], X, np.float32(np.nan))
    y, of_x, _ = compiled(layer)(variables, x, weights, mask, train=train)

    def of_rows(x):
        factor_here = factor if train else eval_factor
        rows = zip(x, mask, strict=True)
        rows = [definition(layer, variables, *row, factor_here) for row in rows]
        return np.stack([row[0] for row in rows])

    np.testing.assert_allclose(y, of_rows(X), rtol=0, atol=2e-5)
    np.testing.assert_array_equal(of_x[~mask], 0)
    ahead, behind = (
        np.sum(weights * of_rows(X + step * direction)) for step in (1e-6, -1e-6)
    )
    slope = np.sum(of_x * direction)
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-3)


@pytest.mark.full
def test_one_expert_is_an_mlp_times_the_probability_one():
    layer, mlp = ExpertChoiceMLP(HIDDEN, 1), MLP(HIDDEN)
    variables = initialized(layer)
    of_expert = jax.tree.map(lambda leaf: leaf[0], variables["params"]["experts"])
    given = compiled(layer)(variables, X, X, MASK, train=True)[0]
    expected = jax.jit(mlp.apply)({"params": of_expert}, X)
    np.testing.assert_allclose(given[MASK], expected[MASK], rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    ("factor", "causal"), [(1.0, False), (2.5, False), (3.0, True)]
)
def test_outputs_depend_on_the_future_unless_every_expert_takes_every_step(
    factor, causal
):
    layer = ExpertChoiceMLP(HIDDEN, 3, eval_capacity_factor=factor)
    apply, variables = jax.jit(layer.apply), initialized(layer)
    x = drawn(20, LENGTH, D)
    changed = x.copy()
    changed[:, LENGTH // 2 :] *= -3
    before, after = (apply(variables, x)[:, : LENGTH // 2] for x in (x, changed))
    assert np.allclose(before, after, rtol=0, atol=1e-5) == causal


@pytest.mark.full
def test_every_expert_starts_as_an_mlp_of_its_own():
    params = jax.jit(ExpertChoiceMLP(HIDDEN, 3).init)(jax.random.key(0), X)["params"]
    alone = jax.eval_shape(MLP(HIDDEN).init, jax.random.key(0), X)["params"]
    stacked = jax.tree.map(lambda leaf: (3, *leaf.shape), alone)
    assert jax.tree.map(jnp.shape, params["experts"]) == stacked
    first, second, third = params["experts"]["in"]["dense"]["kernel"]
    bound = np.sqrt(6 / (D + HIDDEN))
    for one, other in ((first, second), (second, third)):
        assert not np.allclose(one, other)
        assert 0.5 * bound < np.abs(one).max() <= bound


@pytest.mark.full
@pytest.mark.parametrize("size", [0.0, 1e6])
def test_gradients_are_finite_where_probabilities_tie_or_vanish(size):
    layer = ExpertChoiceMLP(HIDDEN, 3)
    given = compiled(layer)(initialized(layer), size * X, X, MASK, train=True)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(given))


@pytest.mark.full
def test_fraction_of_steps_chosen_by_no_expert_is_measured():
    layer = ExpertChoiceMLP(HIDDEN, 3)
    variables = initialized(layer)
    apply = jax.jit(functools.partial(layer.apply, mutable=METRICS_COLLECTION))
    _, sown = apply(variables, X, mask=MASK)
    measured = sown_metrics(sown[METRICS_COLLECTION])["unchosen_steps"]
    rows = zip(X, MASK, strict=True)
    chosen = np.stack([definition(layer, variables, *row, 2.0)[1] for row in rows])
    assert (measured.total, measured.count) == (np.sum(MASK & ~chosen), MASK.sum())


@pytest.mark.full
def test_block_tells_the_experts_about_padding():
    block = Block(Recurrent(PLAIN), prenorm=True, feedforward=ExpertChoiceMLP(8, 2))
    variables = jax.jit(block.init)(jax.random.key(0), X)
    apply = jax.jit(block.apply)
    x = np.where(MASK[..., None], X, np.float32(1e3))
    y, _ = apply(variables, x, mask=MASK)
    alone, _ = apply(variables, X[MASK].reshape(3, LENGTH // 2, D))
    np.testing.assert_allclose(
        np.asarray(y)[MASK].reshape(alone.shape), alone, rtol=0, atol=2e-5
    )


@pytest.mark.full
def test_any_number_of_batch_axes():
    layer = ExpertChoiceMLP(HIDDEN, 3)
    apply, variables = jax.jit(layer.apply), initialized(layer)
    x, mask = drawn(2, 3, 5, D), MASK[:, :5]
    many = apply(variables, x, mask=np.stack([mask, ~mask]))
    one = apply(variables, x[0, 1], mask=mask[1])
    np.testing.assert_allclose(many[0, 1], one, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "flags", "name", "rule"),
    [
        (X[:, :0], {}, "x", "l > 0"),
        (X[0, 0], {}, "x", "(*b, l, d)"),
        (X, {"mask": MASK[:, :4]}, "mask", "(3, 10)"),
    ],
)
def test_bad_shape_is_rejected(x, flags, name, rule, unchecked):
    wrong = flags.get("mask", x).shape
    with refuses(name, wrong, rule=rule):
        ExpertChoiceMLP(HIDDEN, 2).init(jax.random.key(0), x, **flags)
