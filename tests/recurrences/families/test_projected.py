"""Recurrences for linear maps of sums, compared to maps of the sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import linear_recurrence
from ssm_jax.recurrences import FRU, SRU, log_spaced
from ssm_jax.recurrences.families.projected import ProjectedSums, outer
from tests.tiers import tiered

D, ROWS, LENGTH = 2, 3, 11
DECAYS = {
    "carried": (0.5, 1.0),
    "mapped": (1.0,) * 4,
    "both": (0.0, 1.0, 0.5, 1.0, 1.0, 0.0, 1.0),
}


@pytest.mark.parametrize("decays", tiered(DECAYS, ("both",), full=("both", "carried")))
@pytest.mark.parametrize("given", tiered(["fixed", "shared", "rows"], 0))
def test_map_follows_the_recurrence_of_the_sums(decays, given, key):
    projected = ProjectedSums(decays, D, r=3)
    keys = jax.random.split(key, 4)
    k = len(decays)
    kernel = jax.random.normal(keys[0], (k * D, 3))
    s = jax.random.normal(keys[1], (ROWS, LENGTH, D))
    u0 = jax.random.normal(keys[2], (ROWS, k * D))
    shape = {"fixed": (k,), "shared": (1, LENGTH, k), "rows": (ROWS, LENGTH, k)}
    c = jax.random.normal(keys[3], shape[given])

    maps = projected.maps(kernel, c if given == "fixed" else None)
    matrices = projected.matrices(maps, c) if given == "shared" else None
    gained = projected.increment(maps, c, s, matrices)
    v, _ = linear_recurrence(projected.decay, gained, projected.project(maps, u0))
    u, _ = linear_recurrence(jnp.repeat(jnp.array(decays), D), outer(c, s), u0)
    assert v.shape[-1] <= u.shape[-1]
    np.testing.assert_allclose(
        projected.recombine(maps, v),
        np.asarray(u) @ np.asarray(kernel),
        rtol=0,
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("unit", "carried"),
    tiered(
        {
            "fru_60": (FRU(frequencies=log_spaced(60, 784.0), horizon=784), 80),
            "fru_5": (FRU(frequencies=log_spaced(5, 100.0), horizon=300), 60),
            "fru_1": (FRU(frequencies=(0.0,), horizon=300), 20),
            "sru": (SRU(), 5 * 60 + 200),
        },
        ["fru_1"],
        full=["fru_1", "fru_60", "sru"],
        unpack=True,
    ),
)
def test_published_units_carry_less_than_their_sums(unit, carried):
    """And each the statistic, which is ``d_statistic`` numbers."""
    assert len(unit.decay(unit.init(jax.random.key(0), 1))) == carried
