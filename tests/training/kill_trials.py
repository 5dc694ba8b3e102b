"""Kills training at random moments and compares what it comes to in the end.

    python -m tests.training.kill_trials --trials=10
    python -m tests.training.kill_trials --trials=10 --experiment=stream

A small experiment, with a checkpoint every other step, is trained to its end by
``launch.train``: on digits with dropout, or on a stream of text, three times from its
beginning, with states carried from batch to batch. Each trial starts the same command
in a fresh folder, ends the process by SIGKILL once or twice, at moments drawn uniformly
over the time that the whole run took (imports, compilation and saves are in it), and
starts it again until it finishes. The trial passes if the checkpoints that are kept,
the metrics but for the times, and the evaluation are those of the run that was never
killed, bit for bit.

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
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import app, flags

TRIALS = flags.DEFINE_integer("trials", 10, "Number of trials.", lower_bound=1)
SEED = flags.DEFINE_integer(
    "first_seed", 0, "Of the first trial; the next ones follow."
)
STEPS = flags.DEFINE_integer("steps", 100, "Steps of the run.", lower_bound=2)
EXPERIMENT = flags.DEFINE_enum(
    "experiment", "digits", ["digits", "stream"], "What is trained."
)

ROOT = Path(__file__).parents[2]
CONFIGS = {
    "digits": "experiments/dlr/digits.py",
    "stream": "experiments/longssm/text.py"
    ":model=gru,length=16,state_init=carry,size=small",
}
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


class Outcome(NamedTuple):
    """All that a run leaves and that a kill must not change."""

    checkpoints: dict[str, dict[str, bytes]]
    metrics: list[dict[str, float]]
    evaluation: dict[str, float]


class Kill(NamedTuple):
    """When a process was killed, and what it was about to do."""

    after_s: float
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
    experiment = EXPERIMENT.value
    values = OVERRIDES | {"training.steps": STEPS.value}
    if experiment == "digits":
        values |= OF_DIGITS
    else:
        values |= {"task.data_dir": run.parent / "texts"}
    overrides = [f"--config.{name}={value}" for name, value in values.items()]
    return start("train", run, f"--config={CONFIGS[experiment]}", *overrides)


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


def kill(process: subprocess.Popen, run: Path, after_s: float) -> Kill | None:
    """Kills a process after a time; None if it has ended by itself before."""
    try:
        process.communicate(timeout=after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Kill(after_s, len(lines(run)), bool(unfinished(run)))
    finish(process)
    return None


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
    return Outcome(
        checkpoints={step.name: arrays(step / "state") for step in steps},
        metrics=[{k: v for k, v in m.items() if k != "elapsed_s"} for m in metrics],
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


def trial(run: Path, seed: int, duration_s: float, wanted: Outcome) -> list[Kill]:
    """Trains in a new folder, killed once or twice on the way.

    Raises:
      RuntimeError: A process did not end well, or the outcome is not the wanted one.
    """
    rng, kills = random.Random(seed), []
    for _ in range(rng.choice((1, 2))):
        if hit := kill(train(run), run, rng.uniform(0, duration_s)):
            kills.append(hit)
    if not kills:  # the machine was slower when the reference was trained
        shutil.rmtree(run)
        return trial(run, seed, duration_s / 2, wanted)
    finish(train(run))
    found = outcome(run)
    wrong = [n for n in Outcome._fields if getattr(found, n) != getattr(wanted, n)]
    if wrong:
        raise RuntimeError(f"{' and '.join(wrong)} differ after {told(kills)}")
    return kills


def told(kills: list[Kill]) -> str:
    """Says when the kills were."""
    return " and ".join(
        f"{k.after_s:.1f} s ({k.steps_logged} steps{', saving' * k.in_save})"
        for k in kills
    )


def main(argv):
    """Runs the trials."""
    del argv
    folder = Path(tempfile.mkdtemp(prefix="kill_trials_"))
    write_texts(folder / "texts")
    began = time.perf_counter()
    finish(train(folder / "reference"))
    duration_s = time.perf_counter() - began
    wanted = outcome(folder / "reference")
    if len(wanted.metrics) != STEPS.value or not wanted.checkpoints:
        raise RuntimeError(f"the reference is not what it should be, see {folder}")
    print(f"reference: {STEPS.value} steps in {duration_s:.1f} s", flush=True)

    failed, kills = 0, []
    for seed in range(SEED.value, SEED.value + TRIALS.value):
        run = folder / f"seed_{seed}"
        try:
            hits = trial(run, seed, duration_s, wanted)
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
