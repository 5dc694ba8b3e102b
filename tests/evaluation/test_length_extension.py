"""Losses at many lengths are those of the model on each window by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ssm_jax.evaluation import Measured, losses_by_length, verdict
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, TokenEncoder
from ssm_jax.recurrences import DLR

TEXT = np.random.default_rng(0).integers(0, 7, 150)


@pytest.fixture(scope="module")
def model():
    model = SequenceModel(
        encoder=TokenEncoder(d_model=8, vocabulary=7, deviation=1.0),
        block=Block(RecurrentLayer(DLR(d_state=8), ChannelMixing())),
        n_layers=1,
        head=StepHead(d_output=7),
    )
    return model, model.init(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))


def losses(model, inputs, state=None):
    module, variables = model
    logits, state = module.apply(variables, jnp.asarray(inputs[None, :-1]), state)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits[0], inputs[1:])
    return float(jnp.mean(loss)), state


@pytest.mark.parametrize("order", ["text", "shuffled"])
def test_windows_that_start_afresh(model, order, monkeypatch):
    monkeypatch.setattr("ssm_jax.evaluation.length_extension.PIECE", 8)
    found = list(losses_by_length(*model, TEXT, [4, 12, 36], order=order))
    assert [each.length for each in found] == [4, 12, 36]
    for each in found:
        wanted = [
            losses(model, TEXT[first : first + each.length + 1])[0]
            for first in range(0, 144, each.length)
        ]
        np.testing.assert_allclose(each.windows, wanted, rtol=1e-5)


def test_windows_that_go_on_read_the_text_as_one(model, monkeypatch):
    monkeypatch.setattr("ssm_jax.evaluation.length_extension.ROWS", 2)
    for each in losses_by_length(*model, TEXT, [6, 72], start="previous"):
        wanted, state = [], None
        for first in range(0, 144, each.length):
            state = None if first == 72 else state  # the second row
            loss, state = losses(model, TEXT[first : first + each.length + 1], state)
            wanted.append(loss)
        np.testing.assert_allclose(each.windows, wanted, rtol=1e-5)


def test_states_that_go_on_through_mixed_windows_are_others(model, monkeypatch):
    monkeypatch.setattr("ssm_jax.evaluation.length_extension.ROWS", 2)
    options = {"start": "previous", "seed": 1}
    (text,) = losses_by_length(*model, TEXT, [8], **options)
    (mixed,) = losses_by_length(*model, TEXT, [8], order="shuffled", **options)
    assert np.abs(text.windows - mixed.windows).max() > 1e-3


def at(*means, spread=0.01):
    noise = spread * np.random.default_rng(0).normal(size=(len(means), 64))
    return [
        Measured(16 * 2**i, np.repeat(mean + noise[i], 2 ** (len(means) - 1 - i)))
        for i, mean in enumerate(means)
    ]


@pytest.mark.parametrize(
    ("means", "wanted"),
    [
        ((3.0, 2.0, 1.5, 1.4), "strong"),
        ((3.0, 2.0, 2.0001, 2.0), "weak"),
        ((3.0, 2.0, 2.1, 1.4), "none"),
    ],
)
def test_verdict_is_that_of_the_definition(means, wanted):
    assert verdict(at(*means), beyond=16) == wanted


def test_rounding_is_no_change():
    assert verdict(at(2.0, 2.000001, 2.000002, spread=0.0), beyond=16) == "weak"


def test_lengths_up_to_the_trained_one_do_not_count():
    assert verdict(at(1.0, 2.0, 1.5, 1.4), beyond=32) == "strong"


@pytest.mark.parametrize("lengths", [[0, 4], [4, 6], [4, 256]])
def test_lengths_that_do_not_fit_are_errors(model, lengths):
    with pytest.raises(ValueError, match="^`lengths` must be"):
        next(losses_by_length(*model, TEXT, lengths))
