"""The runs that are interrupted, and all that they leave."""

import contextlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from ssm_jax.config import build
from ssm_jax.evaluation import evaluate_run
from ssm_jax.training import WorkDir
from ssm_jax.training.stopping import evaluations_since_best
from tests.training.processes import Ended, Processes

EXPERIMENTS = ("digits", "stream", "patience", "init_from", "sharded")
HEARTBEAT_S, CONNECT_S = 10, 60
LONGEST_S = 1200  # From a start to the end of the run, on a machine with other work.
DIGITS = "experiments/dlr/digits.py"
STREAM = "experiments/longssm/text.py:model=gru,length=16,state_init=carry,size=small"
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
    """All that a run leaves and that an interruption must not change."""

    checkpoints: dict[str, dict[str, bytes]]
    metrics: list[dict[str, float]]
    since_best: int
    evaluation: dict[str, float]


def start(experiment: str, processes: int, run: Path, steps: int) -> Processes:
    """Starts the run of an experiment, or starts it again."""
    values = OVERRIDES | {"training.steps": steps}
    shared = run.parents[1]
    if experiment == "stream":
        values |= {"task.data_dir": shared / "texts"}
        return _start(STREAM, processes, run, values)
    values |= OF_DIGITS
    if experiment == "patience":
        values |= {"training.patience": 2}
    if experiment == "init_from":
        values |= {"training.init_from": shared / "source/run", "model.n_layers": 2}
    if experiment == "sharded":
        mesh = f"data=1,model={2 * processes}"
        values |= {"training.parallel": "shard_map", "training.mesh": mesh}
        # From 64 KiB on an array is sharded.
        values |= {"model.encoder.d_model": 128}
        return _start(DIGITS, processes, run, values, devices=2)
    return _start(DIGITS, processes, run, values)


def _start(
    config: str,
    processes: int,
    run: Path,
    values: dict[str, Any],
    devices: int | None = None,
) -> Processes:
    arguments = [f"--config.{name}={value}" for name, value in values.items()]
    arguments += [f"--compile_cache={run.parents[1] / 'compiled'}"]
    arguments += [
        f"--heartbeat_timeout={HEARTBEAT_S}",
        f"--connect_timeout={CONNECT_S}",
    ]
    devices = devices or (1 if processes == 1 else 2)
    return Processes(*(config, run, *arguments), count=processes, devices=devices)


def check_ended_well(ended: list[Ended]) -> None:
    """Checks that processes ended by themselves, with their work done."""
    for process in ended:
        if process.status != 0:
            raise RuntimeError(f"status {process.status}: {process.text[-2000:]}")


def prepare(folder: Path, experiments: Sequence[str]) -> None:
    """Writes what the experiments read: texts, and the run that another starts from.

    The texts are random letters, so that a stream begins anew every 33 batches.
    """
    if "init_from" in experiments:
        with _start(DIGITS, 1, folder / "source/run", OF_SOURCE) as started:
            check_ended_well(started.ended(LONGEST_S))
    rng = random.Random(0)
    for split, n_bytes in (("train", 33 * 16 * 16), ("validation", 600), ("test", 600)):
        texts = folder / "texts" / split
        texts.mkdir(parents=True)
        text = "".join(rng.choices("abcdefgh ", k=n_bytes))
        (texts / "a.txt").write_text(text)


def lines(run: Path) -> list[str]:
    """The lines of metrics that a run has logged."""
    file = run / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def saving(run: Path, since: float) -> bool:
    """Whether a save that began after a time has not ended."""
    for folder in run.glob("checkpoints/*"):
        with contextlib.suppress(FileNotFoundError):  # renamed or deleted
            begun = folder.stat().st_mtime > since
            if begun and not (folder / "integrity.json").exists():
                return not folder.name.endswith("unreadable")
    return False


def outcome(run: Path) -> Outcome:
    """Reads a finished run, and evaluates its model in this process."""
    steps = run.glob("checkpoints/*[0-9]")
    metrics = [json.loads(line) for line in lines(run)]
    task = build(WorkDir(run).config().task)
    return Outcome(
        checkpoints={step.name: _arrays(step / "state") for step in steps},
        metrics=[{k: v for k, v in m.items() if k != "elapsed_s"} for m in metrics],
        since_best=evaluations_since_best(metrics, task.spec),
        evaluation=evaluate_run(str(run)),
    )


def _arrays(state: Path) -> dict[str, bytes]:
    """Reads what a checkpoint holds; names and sizes of its files differ by run."""
    found = {}
    checkpointer = ocp.PyTreeCheckpointer()
    # Whole arrays, also of what was sharded.
    whole = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
        checkpointer.metadata(state).item_metadata.tree,
    )
    tree = checkpointer.restore(state, restore_args=whole)
    for path, leaf in jax.tree.leaves_with_path(tree):
        found[jax.tree_util.keystr(path)] = np.asarray(leaf).tobytes()
    return found
