"""Metrics of a run in TensorBoard's files and in a run of Weights & Biases."""

import io
import json
import re
import struct
import sys
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from ssm_jax.training import train
from ssm_jax.training.profile import Profile
from ssm_jax.training.writers import open_writers, show_time
from tests.bad_inputs import refuses
from tests.training import tiny


def events(directory):
    """Values by tag and step, as TensorBoard shows them, from all files in order."""
    values = {}
    for file in sorted(directory.glob("events.*"), key=lambda file: file.name):
        content, at = file.read_bytes(), 0
        while at < len(content):
            (size,) = struct.unpack_from("<Q", content, at)
            event = event_pb2.Event.FromString(content[at + 12 : at + 12 + size])
            at += 12 + size + 4  # The length and the content each have a checksum.
            if event.session_log.status == event_pb2.SessionLog.START and event.step:
                values = {key: v for key, v in values.items() if key[1] < event.step}
            for value in event.summary.value:
                values[value.tag, event.step] = value.simple_value
    return values


def logged(run):
    """The same from the file of the run."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {
        (name, line["step"]): value
        for line in lines
        for name, value in line.items()
        if name != "step"
    }


class FakeWandb:
    """What `wandb` is asked for, and the metrics of its one run."""

    def __init__(self):
        self.inits, self.values, self.finished = [], {}, 0

    def init(self, **kwargs):
        self.inits.append(kwargs)
        return SimpleNamespace(id="an-id", log=self._log, finish=self._finish)

    def _log(self, scalars, step):
        self.values |= {(name, step): value for name, value in scalars.items()}

    def _finish(self):
        self.finished += 1


@pytest.mark.full
def test_writers_have_the_metrics_of_the_run_also_after_a_restart(
    tmp_path, monkeypatch
):
    wandb, run = FakeWandb(), tmp_path / "run"
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for steps in 4, 6:
        config = tiny.digits(steps=steps, log_every=1, evaluate_every=2)
        train(config, str(run), writers=["tensorboard", "wandb"])
    assert wandb.values == logged(run)
    found = events(run / "tensorboard")
    assert found.keys() == wandb.values.keys()
    for key, value in found.items():
        np.testing.assert_allclose(value, wandb.values[key], rtol=1e-6)
    first, second = wandb.inits
    assert (first["id"], second["id"], wandb.finished) == (None, "an-id", 2)
    assert second["resume"] == "allow"
    assert second["config"] == json.loads((run / "config.json").read_text())


def test_steps_after_the_checkpoint_are_replaced(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for start, value in (0, 1.0), (2, 2.0):
        with open_writers(["tensorboard"], tmp_path, start) as (writer,):
            for step in range(start + 1, start + 4 - start // 2):
                writer.write_scalars(step, {"loss": value})
    assert events(tmp_path / "tensorboard") == {
        ("loss", 1): 1.0,
        ("loss", 2): 1.0,
        ("loss", 3): 2.0,
        ("loss", 4): 2.0,
    }


@pytest.mark.parametrize("installed", [True, False])
def test_writer_that_cannot_be_opened_leaves_no_folder(
    tmp_path, monkeypatch, installed
):
    run = tmp_path / "run"
    if not installed:
        monkeypatch.setitem(sys.modules, "wandb", None)
    name, rule = ("wadnb", "among") if installed else ("wandb", "installed")
    with refuses("writers", name, rule=rule):
        train(tiny.digits(), str(run), writers=[name])
    assert not run.exists()


@pytest.mark.parametrize("steps", [(0, 2), (3, 2), (7, 8)])
def test_steps_that_are_not_taken_cannot_be_profiled(tmp_path, steps):
    run = tmp_path / "run"
    with refuses("profile_steps", ",".join(map(str, steps)), rule="steps 1 to 7"):
        train(tiny.digits(), str(run), profile_steps=steps)
    assert not run.exists()


@pytest.mark.full
def test_trace_of_steps_is_written(tmp_path):
    run = tmp_path / "run"
    train(tiny.digits(steps=3), str(run), profile_steps=(2, 3))
    (trace,) = (run / "profile").rglob("*.xplane.pb")
    assert b"train_step" in trace.read_bytes()
    # The same command of a finished run, as of a job that is queued again.
    train(tiny.digits(steps=3), str(run), profile_steps=(2, 3))
    assert [*(run / "profile").rglob("*.xplane.pb")] == [trace]


@pytest.mark.parametrize(
    ("start", "traced"), [(0, [3, 5]), (2, [3, 5]), (3, [4, 5]), (4, [5, 5]), (5, [])]
)
def test_steps_that_were_taken_before_are_not_traced(
    tmp_path, monkeypatch, start, traced
):
    seen, now = [], 0
    for name in ("start_trace", "stop_trace"):
        monkeypatch.setattr(jax.profiler, name, lambda *_: seen.append(now))
    with Profile((3, 5), tmp_path, start, end=7) as trace:
        for now in range(start + 1, 8):
            trace.before(now)
            trace.after(now, {})
    assert seen == traced


def test_what_takes_long_is_in_the_log_with_its_seconds(caplog):
    with caplog.at_level("INFO"), show_time("compiling the step"):
        assert caplog.messages == ["compiling the step"]
    assert re.fullmatch(r"compiling the step took \d+\.\d s", caplog.messages[1])


def test_what_takes_long_is_on_the_terminal_until_it_ends(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with show_time("compiling the step"):
        time.sleep(1.5)
    assert "compiling the step, 1 s" in stream.getvalue()
    assert stream.getvalue().split("\r")[-1].strip() == ""


@pytest.mark.full
def test_compilation_is_in_the_log_and_not_among_the_metrics(tmp_path, caplog):
    with caplog.at_level("INFO"):
        train(tiny.digits(steps=2, evaluate_every=2), str(tmp_path / "run"))
    said = [text for text in caplog.messages if "compiling the training step" in text]
    assert len(said) == 2 and "took" in said[1]
    assert "compiling" not in (tmp_path / "run" / "metrics.jsonl").read_text()
