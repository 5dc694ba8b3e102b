"""Kills training at random moments and compares what it comes to in the end.

    python -m tests.training.kill_trials --trials=10
    python -m tests.training.kill_trials --trials=10 --experiment=stream

A small experiment, with moving averages and a checkpoint every other step, is trained
to its end by ``launch.train``:

- ``digits``: images, with dropout;
- ``stream``: a stream of text, three times from its beginning, with states carried from
  batch to batch;
- ``patience``: images, until two evaluations are no better than the best one;
- ``init_from``: images, with one layer of two from another run.

Each trial starts the same command in a fresh folder, ends the process by SIGKILL once
or twice, and starts it again until it finishes. One half of the kills follow a step
that is drawn uniformly; the other half are at times drawn uniformly over the time that
the whole run took, imports and compilation included. The trial passes if the
checkpoints that are kept (parameters, averages, state of the optimizer), the metrics
but for the times, the number of evaluations since the best and the evaluation are those
of the run that was never killed, bit for bit.

Exits with 1 if a trial failed; its folder is then kept.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import app, flags

from ssm_jax.config import build
from ssm_jax.training import WorkDir
from ssm_jax.training.stopping import evaluations_since_best

TRIALS = flags.DEFINE_integer("trials", 10, "Number of trials.", lower_bound=1)
SEED = flags.DEFINE_integer(
    "first_seed", 0, "Of the first trial; the next ones follow."
)
STEPS = flags.DEFINE_integer("steps", 100, "Steps of the run.", lower_bound=2)
EXPERIMENT = flags.DEFINE_enum(
    "experiment",
    "digits",
    ["digits", "stream", "patience", "init_from"],
    "What is trained.",
)

ROOT = Path(__file__).parents[2]
DIGITS = "experiments/dlr/digits.py"
STREAM = "experiments/longssm/text.py:model=gru,length=16,state_init=carry,size=small"
DELAY_S = 0.2  # At most, from a step to its kill.
OVERRIDES = {
    "model.n_layers": 1,
    "optimizer.warmup_steps": 1,
    "training.batch_size": 16,
    "training.log_every": 1,
    "training.evaluate_every": 2,
    "training.evaluation_batches": 1,
    "training.ema": 0.9,
    "training.accumulate": 2,
    "training.patience": 1000,
}
OF_DIGITS = {"model.encoder.d_model": 4, "model.block.layer.recurrence.d_state": 4}
OF_SOURCE = OVERRIDES | OF_DIGITS | {"training.steps": 10, "training.seed": 1}


class Outcome(NamedTuple):
    """All that a run leaves and that a kill must not change."""

    checkpoints: dict[str, dict[str, bytes]]
    metrics: list[dict[str, float]]
    since_best: int
    evaluation: dict[str, float]


class Kill(NamedTuple):
    """When a process was killed, and what it was about to do."""

    steps_logged: int
    in_save: bool


def start(program: str, run: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", f"launch.{program}", f"--workdir={run}"]
    return subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def train(run: Path) -> subprocess.Popen:
    """Starts the run of the experiment."""
    experiment = EXPERIMENT.value
    values = OVERRIDES | {"training.steps": STEPS.value}
    if experiment == "stream":
        return train_with(run, STREAM, values | {"task.data_dir": run.parent / "texts"})
    values |= OF_DIGITS
    if experiment == "patience":
        values |= {"training.patience": 2}
    if experiment == "init_from":
        values |= {"training.init_from": run.parent / "source", "model.n_layers": 2}
    return train_with(run, DIGITS, values)


def train_with(run: Path, config: str, values: dict[str, Any]) -> subprocess.Popen:
    """Starts a run of a config with overrides."""
    overrides = [f"--config.{name}={value}" for name, value in values.items()]
    return start("train", run, f"--config={config}", *overrides)


def write_texts(folder: Path) -> None:
    """Texts of random letters, so that a stream begins anew every 33 batches."""
    rng = random.Random(0)
    for split, n_bytes in (("train", 33 * 16 * 16), ("validation", 600), ("test", 600)):
        (folder / split).mkdir(parents=True)
        text = "".join(rng.choices("abcdefgh ", k=n_bytes))
        (folder / split / "a.txt").write_text(text)


def finish(process: subprocess.Popen) -> str:
    """Waits for a process and gives what it prints; it must end well."""
    printed, log = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"status {process.returncode}: {log[-2000:]}")
    return printed


def kill(
    process: subprocess.Popen, run: Path, steps: int, delay_s: float
) -> Kill | None:
    """Kills a process some time after a step; None if it has ended by itself before."""
    while len(lines(run)) < steps:
        if ended(process, 0.005):
            return None
    if ended(process, delay_s):
        return None
    process.kill()
    process.communicate()
    return Kill(len(lines(run)), bool(unfinished(run)))


def ended(process: subprocess.Popen, within_s: float) -> bool:
    """Whether a process ends well within a time."""
    try:
        # Unlike `wait` it reads what the process prints, which would else block it.
        process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        return False
    finish(process)
    return True


def lines(run: Path) -> list[str]:
    file = run / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def unfinished(run: Path) -> list[Path]:
    """Folders of saves that have begun and not ended."""
    folders = [
        f for f in run.glob("checkpoints/*") if not f.name.endswith("unreadable")
    ]
    return [folder for folder in folders if not (folder / "integrity.json").exists()]


def outcome(run: Path) -> Outcome:
    """Reads a finished run; its model is evaluated by `launch.evaluate`."""
    steps = run.glob("checkpoints/*[0-9]")
    metrics = [json.loads(line) for line in lines(run)]
    task = build(WorkDir(run).config().task)
    return Outcome(
        checkpoints={step.name: arrays(step / "state") for step in steps},
        metrics=[{k: v for k, v in m.items() if k != "elapsed_s"} for m in metrics],
        since_best=evaluations_since_best(metrics, task.spec),
        evaluation=json.loads(finish(start("evaluate", run))),
    )


def arrays(state: Path) -> dict[str, bytes]:
    """Reads what a checkpoint holds; names and sizes of its files differ by run."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(
        ocp.PyTreeCheckpointer().restore(state)
    ):
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        values = jax.random.key_data(leaf) if is_key else leaf
        found[jax.tree_util.keystr(path)] = np.asarray(values).tobytes()
    return found


def trial(
    run: Path, rng: random.Random, duration_s: float, wanted: Outcome
) -> list[Kill]:
    """Trains in a new folder, killed once or twice on the way.

    Raises:
      RuntimeError: A process did not end well, or the outcome is not the wanted one.
    """
    kills: list[Kill] = []
    for _ in range(rng.choice((1, 2))):
        step = rng.randint(len(lines(run)), len(wanted.metrics))
        # Imports and compilation take most of the time, steps little of it.
        after = rng.choice(
            ((step, rng.uniform(0, DELAY_S)), (0, rng.uniform(0, duration_s)))
        )
        if hit := kill(train(run), run, *after):
            kills.append(hit)
    if not kills:  # it ended before
        shutil.rmtree(run)
        return trial(run, rng, duration_s, wanted)
    finish(train(run))
    found = outcome(run)
    wrong = [n for n in Outcome._fields if getattr(found, n) != getattr(wanted, n)]
    if wrong:
        raise RuntimeError(f"{' and '.join(wrong)} differ after {told(kills)}")
    return kills


def told(kills: list[Kill]) -> str:
    """Says when the kills were."""
    return " and ".join(
        f"{k.steps_logged} steps{' while saving' * k.in_save}" for k in kills
    )


def reference(folder: Path) -> tuple[float, Outcome]:
    """Trains without a kill, and checks that the run does what is to be shown."""
    if EXPERIMENT.value == "init_from":
        finish(train_with(folder / "source", DIGITS, OF_SOURCE))
    began = time.perf_counter()
    finish(train(folder / "reference"))
    duration_s = time.perf_counter() - began
    found = outcome(folder / "reference")
    stopped = len(found.metrics) < STEPS.value and found.since_best == 2
    if stopped != (EXPERIMENT.value == "patience") or not found.checkpoints:
        raise RuntimeError(f"the reference is not what it should be, see {folder}")
    return duration_s, found


def main(argv):
    """Runs the trials."""
    del argv
    folder = Path(tempfile.mkdtemp(prefix="kill_trials_"))
    write_texts(folder / "texts")
    duration_s, wanted = reference(folder)
    print(f"reference: {len(wanted.metrics)} steps in {duration_s:.1f} s", flush=True)

    failed, kills = 0, []
    for seed in range(SEED.value, SEED.value + TRIALS.value):
        run = folder / f"seed_{seed}"
        try:
            hits = trial(run, random.Random(seed), duration_s, wanted)
            print(f"seed {seed}: killed after {told(hits)}: passed", flush=True)
            kills += hits
        except RuntimeError as error:
            print(f"seed {seed}: FAILED, {error}; see {run}", flush=True)
            failed += 1
    saving = sum(k.in_save for k in kills)
    print(
        f"{TRIALS.value - failed} passed, {failed} failed; "
        f"{len(kills)} kills, {saving} of them in a save"
    )
    if failed:
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    app.run(main)
