"""Merged sums of numbers that are not finite."""

import math

import numpy as np
import pytest

from ssm_jax.metrics import R2, Mean, add_up
from ssm_jax.training.measure import total

INF, NAN = math.inf, math.nan
SUMS = {
    "exact": ([1e16, 1.0, -1e16], 1.0),
    "infinite": ([INF, 1.0], INF),
    "of both signs": ([INF, -INF], NAN),
    "NaN": ([NAN, 1.0, INF], NAN),
    "overflow": ([1e308, 1e308], INF),
}


@pytest.mark.parametrize(("values", "wanted"), SUMS.values(), ids=SUMS.keys())
def test_means_of_batches_are_merged_whatever_they_are(values, wanted):
    assert add_up(values) == pytest.approx(wanted, nan_ok=True)
    first, *others = (Mean(value, 1.0) for value in values)
    found = first.merge(*others).compute()
    assert found == pytest.approx(wanted / len(values), nan_ok=True)


def test_r2_of_targets_whose_squares_overflow_is_not_defined():
    """1 would be that of a perfect prediction."""
    parts = [{"r2": R2(1e30, 8.0, mean, np.float32(INF))} for mean in (1e25, -1e25)]
    merged = total(parts)
    assert math.isnan(merged["r2"].compute())
    assert math.isnan(merged["r2_batch"].compute())
