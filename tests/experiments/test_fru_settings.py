"""The experiments on the FRU: what the authors' code and configurations have."""

import jax
import pytest
from flax.core import meta

from experiments.fru import imdb, mixture, pixel_mnist
from ssm_jax.config import build
from ssm_jax.recurrences import log_spaced


def test_rnn_has_a_sigmoid_on_imdb_alone():
    def activation(file, task):
        return file.get_config(f"{task}+rnn").model.recurrence.activation

    assert activation(imdb, "words") == "sigmoid"
    assert activation(mixture, "sines") == activation(pixel_mnist, "rows") == "tanh"


def test_output_layer_is_initialized_as_the_authors_do():
    start = "truncated_normal"
    assert mixture.get_config("sines+lstm").model.head.kernel_init == start
    assert pixel_mnist.get_config("permuted+sru").model.head.kernel_init == start
    assert imdb.get_config("words+fru").model.head.kernel_init == "normal"


def test_mixtures_have_the_standard_deviation_of_the_code():
    task = build(mixture.get_config("poly5+fru").task)
    assert task.std == 0.1


def test_fru_of_40_frequencies_is_that_of_table_1():
    config = pixel_mnist.get_config("pixels+fru40")
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
    with pytest.raises(ValueError, match=r"the variant must be .*'permuted\+fru40'"):
        pixel_mnist.get_config("permuted+fru40")
