"""The experiments on the FRU: the settings, the theory, and a measured series."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from flax.core import meta
from scipy.optimize import linprog

from experiments.fru import imdb, mixture, pixel_mnist
from experiments.fru.figures import expressive, temperatures
from ssm_jax.config import build
from ssm_jax.recurrences import log_spaced

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


def test_rnn_has_a_sigmoid_on_imdb_alone():
    def activation(file, variant):
        return file.get_config(f"{variant}model=rnn").model.recurrence.activation

    assert activation(imdb, "") == "sigmoid"
    assert activation(mixture, "curves=sines,") == "tanh"
    assert activation(pixel_mnist, "inputs=rows,") == "tanh"


def test_output_layer_is_initialized_as_the_authors_do():
    kernel_init = "truncated_normal"
    assert (
        mixture.get_config("curves=sines,model=lstm").model.head.kernel_init
        == kernel_init
    )
    assert (
        pixel_mnist.get_config("inputs=permuted,model=sru").model.head.kernel_init
        == kernel_init
    )
    assert imdb.get_config("model=fru").model.head.kernel_init == "normal"


def test_mixtures_have_the_standard_deviation_of_the_code():
    task = build(mixture.get_config("curves=poly5,model=fru").task)
    assert task.std == 0.1


def test_fru_of_40_frequencies_is_that_of_table_1():
    config = pixel_mnist.get_config("inputs=pixels,model=fru40")
    assert config.paper == 0.9688
    assert config.model.recurrence.frequencies == log_spaced(40, 784.0)
    optimizer = config.optimizer
    assert (optimizer.learning_rate, optimizer.staircase) == (0.001, 1.0)
    assert optimizer.clip_norm is None
    rate = build(optimizer).rate()
    assert rate(0) == rate(20_000) == 0.001
    inputs = jax.ShapeDtypeStruct((1, 8, 1), "float32")
    init = build(config.model).init
    variables = meta.unbox(jax.eval_shape(init, jax.random.key(0), inputs))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == 106_930


def test_fru_of_40_frequencies_is_of_pixels_alone():
    with pytest.raises(ValueError, match=r"`variant: inputs` must be 'pixels' for"):
        pixel_mnist.get_config("inputs=permuted,model=fru40")


def test_number_of_frequencies_is_of_the_fru_alone():
    with pytest.raises(ValueError, match=r"`variant: n_frequencies` must be left out"):
        imdb.get_config("model=sru,n_frequencies=1")


@pytest.mark.parametrize(
    ("file", "variant", "n_published"),
    [
        (pixel_mnist, "inputs=pixels,model=fru", 60_000),
        (pixel_mnist, "inputs=permuted,model=lstm", 60_000),
        (pixel_mnist, "inputs=rows,model=sru", 60_000),
        (imdb, "model=fru", 25_000),
    ],
)
def test_page_has_the_examples_and_epochs_of_training(file, variant, n_published):
    config = file.get_config(variant)
    n_train = n_published - build(config.task).n_validation
    epochs = config.training.steps * config.training.batch_size / n_train
    page = (Path(__file__).parents[2] / "docs/papers/fru.md").read_text()
    paragraph = page[page.index("A part of the training images") :]
    assert re.search(rf"\b{n_train:,} of\s+{n_published:,}\b", paragraph)
    assert re.search(rf"\b{epochs:.1f}\b", paragraph)


def test_mixtures_train_for_the_epochs_of_the_paper():
    config = mixture.get_config("curves=sines,model=fru")
    task, training = build(config.task), config.training
    assert training.steps * training.batch_size == 100 * task.n_train
