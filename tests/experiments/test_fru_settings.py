"""The experiments on the FRU: what the authors' code and configurations have."""

import re
from pathlib import Path

import jax
import pytest
from flax.core import meta

from experiments.fru import imdb, mixture, pixel_mnist
from ssm_jax.config import build
from ssm_jax.recurrences import log_spaced


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
