"""Accuracy by length: of models with states, without, and of predictions at the end."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.evaluation import Restored, accuracy_by_length, lengths
from ssm_jax.tasks import CumMax, InductionHeads, Parity
from ssm_jax.training import TrainConfig
from tests.bad_inputs import refuses
from tests.tiers import tiered

TRAINING = TrainConfig(steps=1, batch_size=2)
PARITY = Parity(length=10)


class Counter(nn.Module):
    """Exact parity of the first ``horizon`` steps, and 0 from there on."""

    horizon: int = 10**9
    has_state: bool = True
    last_only: bool = False
    is_broken: bool = False

    def initial_state(self, batch_shape):
        return jnp.zeros((*batch_shape, 2), jnp.int32) if self.has_state else None

    @nn.compact
    def __call__(self, inputs, state=None, *, mask=None):
        if state is None:
            state = jnp.zeros((len(inputs), 2), jnp.int32)
        is_one = inputs == 2
        if mask is not None:
            is_one = is_one & mask
        ones = state[:, :1] + jnp.cumsum(is_one, axis=1)
        step = state[:, 1:] + jnp.arange(inputs.shape[1])
        odd = jnp.where(step < self.horizon, ones % 2, 0)
        state = jnp.stack([ones[:, -1], step[:, -1] + 1], axis=1)
        logits = jax.nn.one_hot(odd, 2) + (jnp.nan if self.is_broken else 0.0)
        if self.last_only:
            logits = logits[:, -1]
        return logits, state


def restored(model, task=PARITY):
    return Restored(model, {}, task, TRAINING, 1)


@pytest.mark.parametrize("has_state", tiered([True, False]))
def test_accuracy_falls_to_chance_behind_the_horizon(has_state, monkeypatch):
    # Several pieces, the last one shorter, and several batches of rows.
    monkeypatch.setattr(lengths, "PIECE", 12)
    model = Counter(horizon=20, has_state=has_state)
    short, long = accuracy_by_length(restored(model), [16, 40], n_rows=50, n_bins=4)
    assert (short["accuracy"], short["last_accuracy"], short["error"]) == (1, 1, 0)
    assert short["row_accuracy"] == 1 and short["n_targets"] == 16 * short["n_rows"]
    assert [bin["until"] for bin in short["accuracy_by_position"]] == [4, 8, 12, 16]
    assert (short["length"], short["trained"], short["chance"]) == (16, 10, 0.5)
    by_position = [bin["accuracy"] for bin in long["accuracy_by_position"]]
    assert by_position[:2] == [1, 1]
    np.testing.assert_allclose(by_position[2:], 0.5, atol=0.1)
    assert long["accuracy"] == pytest.approx(np.mean(by_position))
    assert long["n_rows"] >= 50 and 0.3 < long["last_accuracy"] < 0.7
    assert 0 < long["error"] < 0.05


@pytest.mark.full
def test_pieces_change_no_number(monkeypatch):
    task = Parity(length=10, shortest=2, last_only=True)
    whole = accuracy_by_length(restored(Counter(25), task), [30], n_rows=8)
    monkeypatch.setattr(lengths, "PIECE", 7)
    assert accuracy_by_length(restored(Counter(25), task), [30], n_rows=8) == whole
    assert whole[0]["n_targets"] == 8


@pytest.mark.full
def test_targets_of_the_last_step_need_its_prediction_only(monkeypatch):
    """Inputs of induction heads, where the parity of token 2 is the answer or not."""
    monkeypatch.setattr(lengths, "PIECE", 8)
    task = InductionHeads(length=10, vocabulary=3)
    expected = accuracy_by_length(restored(Counter(), task), [17], n_rows=16)
    for model in (Counter(last_only=True), Counter(has_state=False)):
        found = accuracy_by_length(restored(model, task), [17], n_rows=16)
        assert found == expected
    (bin,) = expected[0]["accuracy_by_position"]
    assert (bin["until"], bin["n_targets"]) == (17, 16)
    assert expected[0]["accuracy"] == expected[0]["last_accuracy"] == bin["accuracy"]


@pytest.mark.full
def test_another_task_may_be_evaluated():
    task = Parity(length=10, shortest=5, last_only=True)
    (row,) = accuracy_by_length(restored(Counter()), [12], task=task, n_rows=4)
    assert (row["accuracy"], row["n_targets"]) == (1, row["n_rows"])


def test_predictions_that_are_nan_are_an_error():
    with pytest.raises(FloatingPointError, match="NaN for 40 of 40 targets"):
        accuracy_by_length(restored(Counter(is_broken=True)), [10], n_rows=4)


BAD = {
    "lengths": (Parity(), {"lengths": []}, "none", "256"),
    "lengths_zero": (Parity(), {"lengths": [4, 0]}, "0", "1"),
    "n_rows": (Parity(), {"n_rows": 0}, "0", "1"),
    "n_bins": (Parity(), {"n_bins": 0}, "0", "1"),
    "task": (CumMax(), {}, "CumMax", "length"),
    "length": (Parity(shortest=9), {}, "8", "9"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_an_error_of_one_line(name):
    task, options, value, rule = BAD[name]
    options = {"lengths": [8], **options}
    with refuses(name.removesuffix("_zero"), value, rule=rule):
        accuracy_by_length(restored(Counter(), task), **options)


@pytest.mark.full
def test_rows_are_those_of_the_split_and_seed():
    model = restored(Counter(horizon=3))
    options = {"lengths": [9], "n_rows": 16}
    first = accuracy_by_length(model, **options)
    assert accuracy_by_length(model, **options) == first
    others = [{"split": "validation"}, {"seed": 1}]
    for other in others:
        assert accuracy_by_length(model, **options, **other) != first
    assert dataclasses.asdict(model.task)["length"] == 10
