"""Length extension as extrapolation, in numbers."""

import numpy as np
import pytest

from experiments.longssm.extrapolation import SEEN, errors, fitted, memory


@pytest.mark.parametrize("m", [4, 6, 8, 10, 12, 16])
def test_memory_fitted_to_windows_is_wrong_beyond_them(m):
    (within, beyond), (seen, far) = (
        errors(m, SEEN[name]) for name in ("zero", "previous")
    )
    assert max(within, seen) < 0.1
    assert beyond > 10
    assert far < beyond / 5


def test_more_decays_are_better_only_where_they_are_fitted():
    few, many = errors(4, SEEN["zero"]), errors(10, SEEN["zero"])
    assert many[0] < few[0] / 100
    assert many[1] > few[1]


def test_decays_that_make_up_the_memory_are_found():
    """Fitted to all of it there is nothing to extrapolate."""
    whole = np.arange(2048)
    np.testing.assert_allclose(fitted(16, len(whole)), memory(whole), rtol=0.02)
