"""The theory of the FRU's paper as numbers, and the series of its figure 2."""

import numpy as np
import pytest
from scipy.optimize import linprog

from experiments.fru.figures import expressive, temperatures

PART = np.linspace(0, 1, 301)


@pytest.mark.parametrize("degree", [1, 3, 5, 7])
def test_waves_interpolate_polynomials(degree):
    """Lemma 4.2: the error falls with the square of the frequency, below any bound."""
    coefficients = np.random.default_rng(degree).normal(size=degree + 1)
    values = np.polynomial.polynomial.polyval(PART, coefficients)
    errors = []
    for f in (0.04, 0.02, 0.01):
        weights = expressive.interpolation(coefficients, f)
        errors.append(np.abs(expressive.waves(*weights, f, PART) - values).max())
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def minimum_missed(terms, values):
    """The least mean size of what any weights miss, as a part; a linear programme."""
    n, t = terms.shape[1], len(values)
    cost = np.concatenate([np.zeros(n), np.ones(t)])
    above = np.block([[terms, -np.eye(t)], [-terms, -np.eye(t)]])
    bounds = [(None, None)] * n + [(0, None)] * t
    solution = linprog(cost, above, np.concatenate([values, -values]), bounds=bounds)
    assert solution.success
    return solution.fun / np.abs(values).sum()


def test_figure_9_is_the_polynomial_of_the_proof():
    beta_1 = 0.1828
    zeros = expressive.polynomial(np.array([0, beta_1, 0.5, 1 - beta_1, 1]))
    np.testing.assert_allclose(zeros, 0, atol=1e-3)
    fine = np.linspace(0, 1, 100_001)
    values = expressive.polynomial(fine)
    np.testing.assert_allclose(np.mean(np.abs(values)), 0.5727, atol=2e-4)
    np.testing.assert_allclose(values[fine < beta_1].sum() / 1e5, 0.0847, atol=2e-4)


@pytest.mark.parametrize("seed", range(5))
def test_three_decays_miss_a_polynomial(seed):
    """Theorem 4.4 as far as its proof goes: up to two changes of sign."""
    rates = np.random.default_rng(seed).uniform(0.1, 30, 3)
    terms = np.exp(-np.outer(PART, rates))
    missed = minimum_missed(terms, expressive.polynomial(PART))
    assert missed > expressive.LEAST_MISSED


def test_many_decays_do_not_miss_it():
    """Theorem 4.4 beyond its proof does not hold: fourteen decays miss a percent."""
    values = expressive.polynomial(PART)
    missed_by_8, _ = expressive.fit(expressive.decays(8, PART), values)
    assert missed_by_8 < expressive.LEAST_MISSED
    missed, largest = expressive.fit(expressive.decays(14, PART), values)
    assert missed < 0.012
    assert largest > 1e4
    missed_by_waves, weight = expressive.fit(expressive.harmonics(14, PART), values)
    assert missed_by_waves < missed / 20
    assert weight < 20


def series_file(folder, *rows):
    path = folder / "series.csv"
    path.write_text("\n".join(["No,year,TEMP", *rows]) + "\n")
    return str(path)


def test_temperatures_are_those_of_the_three_years(tmp_path):
    path = series_file(tmp_path, "1,2009,5", "2,2010,-11", "3,2012,7", "4,2013,1")
    assert temperatures.temperatures(path).tolist() == [-11, 7]


@pytest.mark.parametrize(
    ("row", "match"),
    [("1,2010,cold", "'cold' in line 2"), ("1,2019,3", "got none in")],
)
def test_file_that_is_another_is_refused(tmp_path, row, match):
    with pytest.raises(ValueError, match=match):
        temperatures.temperatures(series_file(tmp_path, row))


@pytest.mark.parametrize("length", [96, 97])
def test_largest_waves_leave_the_least_error(length):
    values = np.random.default_rng(0).normal(size=length)
    spectrum = np.fft.rfft(values)
    energy = np.abs(spectrum) ** 2 * np.where(np.arange(len(spectrum)) > 0, 2, 1)
    if length % 2 == 0:
        energy[-1] /= 2
    error = np.sort(energy)[:-10].sum() / length
    approximation = temperatures.sparse(values, 10)
    np.testing.assert_allclose(np.sum((values - approximation) ** 2), error, rtol=1e-9)
