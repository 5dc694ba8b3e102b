"""Mixture: its curves follow algorithms 1 and 2 of the paper."""

import numpy as np
import pytest

from ssm_jax.tasks import Mixture
from tests.bad_inputs import refuses


def curves(**options):
    task = Mixture(n_train=300, **options)
    return task.batch("train", 0, 300, 0)


@pytest.mark.parametrize("degree", [5, 10])
def test_polynomials_are_mixtures_of_five_without_their_offset(degree):
    """Apart from a constant, the curves span exactly five directions."""
    x = np.float64(curves(degree=degree).inputs[..., 0])
    sizes = np.linalg.svd(x - x.mean(0), compute_uv=False)
    assert sizes[5] > 1e-4 * sizes[0]
    assert sizes[6] < 1e-5 * sizes[0]
    s = 2 * np.arange(176) / 176 - 1
    basis = np.linalg.qr(s[:, None] ** np.arange(degree + 1))[0]
    np.testing.assert_allclose(x @ basis @ basis.T, x, atol=1e-5)


def test_sines_have_the_frequencies_of_the_algorithm():
    x = np.float64(curves().inputs[..., 0])
    s = 2 * np.arange(176) / 176 - 1
    angles = 2 * np.pi * 0.1 * np.arange(1, 30) * s[:, None]
    waves = np.concatenate([np.ones((176, 1)), np.sin(angles), np.cos(angles)], 1)
    fitted = waves @ np.linalg.lstsq(waves, x.T, rcond=1e-10)[0]
    np.testing.assert_allclose(fitted.T, x, atol=1e-4)


@pytest.mark.parametrize("degree", [None, 5])
def test_offsets_and_weights_have_the_standard_deviation_of_the_code(degree):
    """The default is 0.1; every curve is proportional to it."""
    x = curves(degree=degree).inputs[..., 0]
    if degree is not None:  # Polynomials are 0 in the middle: the offset alone.
        np.testing.assert_allclose(np.std(x[:, 88]), 0.1, rtol=0.1)
    as_variance = curves(degree=degree, std=np.sqrt(0.1)).inputs[..., 0]
    np.testing.assert_allclose(as_variance, np.sqrt(10) * x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("std", [0.0, -0.1, np.inf, np.nan])
def test_invalid_standard_deviation_is_an_error(std):
    with refuses("std", std, rule="positive"):
        Mixture(std=std)


def test_targets_are_the_curve_or_the_next_value():
    whole, steps = (Mixture(target=t).batch("test", 1, 8, 0) for t in ("curve", "next"))
    np.testing.assert_array_equal(whole.targets, whole.inputs[:, 1:, 0])
    np.testing.assert_array_equal(steps.targets[:, :-1], steps.inputs[:, 1:])
    np.testing.assert_array_equal(steps.targets[..., 0], whole.targets)
