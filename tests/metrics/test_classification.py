"""AUC against its definition, and targets that are no classes."""

import math
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

from ssm_jax.metrics import AUC
from tests.bad_inputs import refuses
from tests.metrics.references import auc
from tests.tiers import tiered

RNG = np.random.default_rng(0)


def noise(n=400):
    targets = RNG.integers(0, 2, n)
    return RNG.standard_normal(n) + 2 * targets, targets


SCORES = {
    "noise": lambda x: x,
    "shifted": lambda x: 0.01 * x - 4.6,
    "shifted far": lambda x: 1e3 * x + 1e7,
    "small": lambda x: 1e-8 * x,
    "smallest": lambda x: 1e-30 * x,
    "large": lambda x: 1e5 * x,
    "largest": lambda x: 1e37 * x,
    "negative": lambda x: -np.exp(x),
    "tied": np.round,
    "two values": lambda x: np.where(x > 1, 1.0, -1.0),
    "constant": lambda x: 0 * x + 3,
    "zeros of both signs": lambda x: np.copysign(0, x),
    "some infinite": lambda x: np.where(np.abs(x) > 2, np.inf * x, x),
}


@pytest.mark.parametrize("change", SCORES.values(), ids=SCORES.keys())
def test_auc_is_that_of_all_pairs(change):
    scores, targets = noise()
    scores = change(scores).astype(np.float32)
    mask = RNG.random(len(scores)) < 0.8
    spoilt = np.where(mask, scores, np.nan)
    parts = np.split(np.arange(len(scores)), [10, 11, 300])
    first, *others = (AUC.of(spoilt[i], targets[i], mask[i]) for i in parts)
    found = first.merge(*others)
    assert found.compute() == pytest.approx(auc(scores[mask], targets[mask]))
    assert found.merge().compute() == found.compute()
    assert len(found.scores) == mask.sum()


def test_auc_of_the_issue():
    """Shifted by -4.6 with a deviation of 0.01, fixed bins found 0.527."""
    scores, targets = noise(2_000)
    shifted = (0.01 * scores - 4.6).astype(np.float32)
    found = AUC.of(shifted, targets, np.ones(2_000, bool)).compute()
    assert found == pytest.approx(auc(scores, targets), abs=1e-6)
    assert found > 0.9


@pytest.mark.parametrize("only", [0, 1, None])
def test_auc_without_both_classes_is_not_defined(only):
    mask = np.ones(4, bool) if only is not None else np.zeros(4, bool)
    found = AUC.of(np.arange(4.0), np.full(4, only or 0), mask)
    assert math.isnan(found.compute())


def test_auc_of_nan_is_not_defined():
    scores, targets = np.array([0.0, np.nan, 1.0]), np.array([0, 1, 1])
    assert math.isnan(AUC.of(scores, targets, np.ones(3, bool)).compute())
    assert AUC.of(scores, targets, ~np.isnan(scores)).compute() == 1.0


@pytest.mark.parametrize("kind", tiered(["accumulated", "pmap", "shard_map"]))
def test_auc_of_parts_is_that_of_the_whole(kind):
    scores, targets = noise(64)
    scores = np.round(0.01 * scores - 4.6, 3).astype(np.float32)
    mask = RNG.random(64) < 0.8
    arrays = [x.reshape(8, 8) for x in (scores, targets, mask)]
    if kind == "accumulated":
        found = jax.lax.map(lambda part: AUC.of(*part), tuple(arrays)).combined()
    else:

        def step(*part):
            return AUC.of(*part).over_devices(("data",))

        if kind == "pmap":
            mapped = jax.pmap(step, "data", out_axes=None)
        else:
            mesh = Mesh(np.array(jax.devices()), ("data",))
            specs = {"in_specs": P("data"), "out_specs": P(), "check_vma": True}
            mapped = jax.jit(jax.shard_map(step, mesh=mesh, **specs))
        found = jax.device_get(mapped(*arrays))
    assert found.compute() == pytest.approx(auc(scores[mask], targets[mask]))


@pytest.mark.parametrize("wrong", [-1, 2, 256, 2**31 - 1])
def test_auc_of_a_target_that_is_no_class_is_refused(wrong):
    """Also one that is known to a device alone, and one that is a class in int8."""
    of = jax.jit(partial(AUC.of, mask=np.ones(3, bool)))
    with refuses("targets", "at index 2", rule="0 or 1"):
        of(np.zeros(3), np.array([0, 1, wrong], np.int32)).compute()
