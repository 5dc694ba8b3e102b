"""Signals, and checkpoints by time: no step is lost, and no number changes."""

import os
import queue
import signal
import threading
import time

import numpy as np
import pytest

from ssm_jax.training import interruption, train
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.profile import Profile
from tests.tiers import tiered
from tests.training import tiny
from tests.training.test_loop import arrays, lines

CONFIGS = {
    "digits": (tiny.digits, {}),
    "noise": (tiny.noise, {}),  # The scores of AUC are arrays.
    "carried": (tiny.shift, {"initial_state": "carry"}),
}


def signalled(monkeypatch, step, number):
    """Sends a signal to this process before a step."""
    before = Profile.before

    def sending(trace, next_step):
        if next_step == step:
            os.kill(os.getpid(), number)
        return before(trace, next_step)

    monkeypatch.setattr(Profile, "before", sending)


@pytest.mark.parametrize(
    ("make", "fields"), tiered(CONFIGS, 0, full=["noise"], unpack=True)
)
# Between lines of metrics, and at one.
@pytest.mark.parametrize("step", tiered([5, 6], 0, full=1))
def test_signal_loses_no_step_and_changes_no_number(
    tmp_path, monkeypatch, make, fields, step
):
    config = make(**fields)
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(config, str(whole))
    with monkeypatch.context() as patch:
        signalled(patch, step, signal.SIGTERM)
        with pytest.raises(SystemExit) as exit:
            train(config, str(run))
    assert exit.value.code == 143
    assert Checkpoints(run / "checkpoints").latest_step == step
    train(config, str(run))
    assert lines(run) == lines(whole)
    assert arrays(run, 7) == arrays(whole, 7)


@pytest.mark.nightly
def test_checkpoints_by_time_change_no_number(tmp_path, monkeypatch):
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(tiny.digits(), str(whole))
    config = tiny.digits(checkpoint_minutes=1e-9)
    with monkeypatch.context() as patch:
        signalled(patch, 2, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            train(config, str(run))
    assert Checkpoints(run / "checkpoints").latest_step == 2
    train(config, str(run))
    assert lines(run) == lines(whole)
    assert arrays(run, 7) == arrays(whole, 7)


@pytest.mark.full
def test_state_that_is_not_finite_is_not_saved_by_a_signal(tmp_path, monkeypatch):
    config = tiny.shift(log_every=7, evaluate_every=7)
    config.optimizer.update(kind="sgd", learning_rate=1e20)
    signalled(monkeypatch, 3, signal.SIGTERM)
    with pytest.raises(FloatingPointError, match="step 2"):
        train(config, str(tmp_path))
    assert Checkpoints(tmp_path / "checkpoints").latest_step is None


def test_second_signal_exits_at_once(monkeypatch, capfd):
    statuses = queue.SimpleQueue()
    monkeypatch.setattr(interruption.os, "_exit", statuses.put)
    before = signal.getsignal(signal.SIGTERM)
    with interruption.Interruption() as stop:
        assert not stop.requested_after(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested_after(1) and statuses.empty()
        os.kill(os.getpid(), signal.SIGINT)
        assert statuses.get(timeout=60) == 130
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert "a second signal exits at once" in capfd.readouterr().err


@pytest.mark.full
def test_second_signal_does_not_wait_for_the_main_thread(monkeypatch):
    """It computes in C for seconds, as in a compilation, without Python's handlers."""
    computing, found = threading.Event(), queue.SimpleQueue()
    monkeypatch.setattr(
        interruption.os, "_exit", lambda status: found.put((status, computing.is_set()))
    )

    def send():
        for number in (signal.SIGINT, signal.SIGTERM):
            time.sleep(0.1)
            os.kill(os.getpid(), number)

    with interruption.Interruption():
        sender = threading.Thread(target=send)
        computing.set()
        sender.start()
        np.linalg.svd(np.random.default_rng(0).normal(size=(900, 900)))
        computing.clear()
        sender.join()
        assert found.get(timeout=60) == (143, True)


def test_other_threads_receive_no_signals():
    found = []

    def enter():
        with interruption.Interruption() as stop:
            found.append(stop.requested_after(1))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [False]
