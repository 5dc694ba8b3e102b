"""Losses by window length against the model evaluated on each window."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from ssm_jax.evaluation import (
    LossAtLength,
    classify_extension,
    loss_interval,
    losses_by_length,
    spread_spans,
)
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, TokenEncoder
from ssm_jax.recurrences import DLR
from tests.bad_inputs import refuses
from tests.tiers import tiered

TEXT = np.random.default_rng(0).integers(0, 7, 150)


@pytest.fixture(scope="module")
def model():
    model = SequenceModel(
        encoder=TokenEncoder(d_model=8, vocabulary=7, std=1.0),
        block=Block(RecurrentLayer(DLR(d_state=8), ChannelMixing())),
        n_layers=1,
        head=StepHead(d_output=7),
    )
    return model, jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 4), jnp.int32))


@functools.cache
def compiled(module):
    return jax.jit(module.apply)


def losses(model, inputs, state=None):
    module, variables = model
    logits, state = compiled(module)(variables, jnp.asarray(inputs[None, :-1]), state)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits[0], inputs[1:])
    return float(jnp.mean(loss)), state


@pytest.mark.parametrize("order", tiered(["text", "shuffled"], 0))
def test_windows_from_zero_states(model, order, monkeypatch):
    monkeypatch.setattr("ssm_jax.evaluation.length_extension.PIECE", 8)
    results = list(losses_by_length(*model, TEXT, [4, 36], order=order))
    assert [measured.length for measured in results] == [4, 36]
    for measured in results:
        expected = [
            losses(model, TEXT[first : first + measured.length + 1])[0]
            for first in range(0, 144, measured.length)
        ]
        np.testing.assert_allclose(measured.windows, expected, rtol=1e-5)


@pytest.mark.full
def test_carried_states_match_one_pass_over_the_text(model, monkeypatch):
    monkeypatch.setattr("ssm_jax.evaluation.length_extension.ROWS", 2)
    for measured in losses_by_length(*model, TEXT, [6, 72], window_state="carry"):
        expected, state = [], None
        for first in range(0, 144, measured.length):
            state = None if first == 72 else state  # the second row
            loss, state = losses(
                model, TEXT[first : first + measured.length + 1], state
            )
            expected.append(loss)
        np.testing.assert_allclose(measured.windows, expected, rtol=1e-5)


@pytest.mark.full
def test_states_carried_through_shuffled_windows_differ(model, monkeypatch):
    monkeypatch.setattr("ssm_jax.evaluation.length_extension.ROWS", 2)
    options = {"window_state": "carry", "seed": 1}
    (text,) = losses_by_length(*model, TEXT, [8], **options)
    (mixed,) = losses_by_length(*model, TEXT, [8], order="shuffled", **options)
    assert np.abs(text.windows - mixed.windows).max() > 1e-3


def at(*means, std=0.01):
    noise = std * np.random.default_rng(0).normal(size=(len(means), 64))
    return [
        LossAtLength(
            16 * 2**i, np.repeat(mean + noise[i], 2 ** (len(means) - 1 - i)), 64
        )
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
def test_classify_extension_follows_the_definition(means, wanted):
    assert classify_extension(at(*means), beyond=16) == wanted


def test_rounding_errors_are_no_change():
    assert classify_extension(at(2.0, 2.000001, 2.000002, std=0.0), beyond=16) == "weak"


def test_lengths_below_the_training_length_are_ignored():
    assert classify_extension(at(1.0, 2.0, 1.5, 1.4), beyond=32) == "strong"


def test_spans_are_equal_shares_of_every_document():
    edges = np.array([0, 1000, 1130, 5000])
    spans = spread_spans(edges, 32, 12 * 32)
    assert spans.length == 32 and spans.n_tokens == 12 * 32
    for start, end, first in zip(edges[:-1], edges[1:], spans.starts, strict=True):
        assert first[0] == start and np.all(first + 32 <= end)
    # The spans reach the last quarter of each document.
    assert np.all(spans.starts[:, -1] >= edges[:-1] + (3 * np.diff(edges) // 4) - 32)
    assert np.all(np.diff(spans.starts.reshape(-1)) >= 32)


@pytest.mark.parametrize("n_documents", [3, 40])
def test_spans_depend_on_max_tokens_not_on_the_text_length(n_documents):
    edges = 900 * np.arange(n_documents + 1)
    spans = spread_spans(edges, 100, 1200)
    assert spans.n_tokens == 1200
    assert len(spans.starts) == min(n_documents, 12)
    assert spans.starts[-1, 0] >= edges[-1] * 0.6
    whole = spread_spans(edges, 100)
    assert 0.8 * edges[-1] <= whole.n_tokens <= edges[-1]


def test_short_documents_are_merged():
    edges = np.array([0, 30, 50, 55, 160, 170])
    assert spread_spans(edges, 50).starts.tolist() == [[0], [50]]


def test_all_lengths_use_the_same_tokens_of_all_documents(monkeypatch):
    """The loss of a token is its index, so means show which tokens were read."""
    monkeypatch.setattr(
        "ssm_jax.evaluation.length_extension._step",
        lambda model, variables, inputs, targets, state: (inputs.sum(-1), state),
    )
    edges = np.array([0, 300, 420, 2000])
    options = {"edges": edges, "max_tokens": 192}
    for start, order in (("zero", "text"), ("carry", "shuffled")):
        losses = list(
            losses_by_length(
                _Stateless(), {}, np.arange(2001), [8, 16, 32], window_state=start,
                order=order, **options,
            )
        )  # fmt: skip
        assert {loss.n_documents for loss in losses} == {3}
        for loss in losses:
            starts = loss.windows - (loss.length - 1) / 2
            assert len(starts) * loss.length == 192
            document = np.searchsorted(edges, starts, "right") - 1
            assert document.tolist() == np.repeat([0, 1, 2], len(starts) // 3).tolist()
            np.testing.assert_allclose(loss.documents, losses[0].documents)


class _Stateless(nn.Module):
    def initial_state(self, shape):
        return ()


@pytest.mark.parametrize("order", ["text", "shuffled"])
def test_nan_losses_are_refused_by_count(monkeypatch, order):
    """As NaN increases nothing, the verdict would be that the loss does not."""

    def step(model, variables, inputs, targets, state):
        loss = np.sum(inputs, -1, dtype=np.float64)
        return np.where(np.any(inputs == 5, -1), np.nan, loss), state

    monkeypatch.setattr("ssm_jax.evaluation.length_extension._step", step)
    losses = losses_by_length(_Stateless(), {}, np.arange(65), [4, 8], order=order)
    with refuses("loss", "1 of 16 windows of 4 tokens", error=FloatingPointError):
        next(losses)


def test_standard_error_is_over_documents():
    """Similar windows of two documents do not reduce the standard error."""
    few, many = (LossAtLength(4, np.repeat([1.0, 2.0], n), 2) for n in (1, 500))
    assert few.error == many.error == pytest.approx(0.5)
    assert few.loss == many.loss == 1.5
    assert LossAtLength(4, np.array([1.0, 2.0])).error is None


def test_interval_is_students_t():
    low, high = loss_interval(np.array([1.0, 2.0, 3.0, 4.0]))
    # The 97.5 % quantile with 3 degrees of freedom is 3.182446.
    half = 3.182446 * np.std([1, 2, 3, 4], ddof=1) / 2
    np.testing.assert_allclose([low, high], [2.5 - half, 2.5 + half], rtol=1e-6)
    assert loss_interval([1.0]) is None


def test_classify_extension_needs_two_documents():
    losses = [LossAtLength(n, np.array([1.0])) for n in (4, 8)]
    with refuses("measured", 1, rule="at least 2"):
        classify_extension(losses, beyond=4)


def test_a_change_in_one_document_is_not_significant():
    changes = np.array([0.0, 0.0, 0.0, 0.4])
    losses = [LossAtLength(4, np.ones(4), 4), LossAtLength(8, 1 + changes, 4)]
    assert classify_extension(losses, beyond=4) == "weak"


@pytest.mark.parametrize("token", [-1, 7])
def test_text_beyond_the_vocabulary_is_refused(model, token):
    text = TEXT.copy()
    text[100] = token
    with refuses("text", token, rule="from 0 to 6"):
        next(losses_by_length(*model, text, [4]))


@pytest.mark.parametrize("lengths", [[0, 4], [4, 6], [4, 256]])
def test_lengths_that_do_not_fit_are_rejected(model, lengths):
    with refuses("lengths"):
        next(losses_by_length(*model, TEXT, lengths))
