"""Interrupts training at random moments and compares what it comes to in the end.

    python -m tests.training.trials --trials=10
    python -m tests.training.trials --trials=40 --processes=1,2 --output=trials.json

Small experiments, with moving averages and a checkpoint every other step, are trained
to their end by ``launch.train``, by one process or by two of two devices each:

- ``digits``: images, with dropout;
- ``stream``: a stream of text, from its beginning every 33 steps, with states carried
  from batch to batch;
- ``patience``: images, until two evaluations are no better than the best one;
- ``init_from``: images, with one layer of two from another run;
- ``sharded``: images, with parameters sharded over two or four devices.

Each trial starts the same command in a fresh folder, interrupts it up to four times by
one of ``--signals``, sent to one of the processes, and starts it again until it
finishes. A third of the signals follows a step that is drawn uniformly, a third is sent
in the save after one, a third at times drawn uniformly over the time that the quickest
start so far took, imports and compilation included. The trial passes if

- the checkpoints that are kept (parameters, averages, state of the optimizer), the
  metrics but for the times, the number of evaluations since the best and the evaluation
  are those of the run that was never interrupted, bit for bit;
- SIGTERM and SIGINT lost no step: the last one that was logged is saved, and the
  processes exit with 143, the one that received SIGINT with 130;
- the process that was not killed by SIGKILL ended by itself.

On a machine with other work, two processes may miss the 30 seconds in which Gloo
connects them; the run then ends with the advice to start it again. The trial follows it
once, and counts it.

``--output`` writes what was done after every trial; the trials of the same number of
steps that the file already holds are counted as done. Exits with 1 if a trial failed;
its folder is then kept. 48 trials, of one and of two processes and of all experiments
but ``patience`` and ``sharded``, are recorded in
``experiments/benchmarks/interruptions.json``, and 30 of ``sharded`` in
``interruptions_sharded.json``.
"""

import itertools
import json
import math
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
from absl import app, flags, logging

from ssm_jax.training.workdir import environment
from tests.training.trials.interruptions import Interrupted, draw, interrupt
from tests.training.trials.runs import (
    EXPERIMENTS,
    LONGEST_S,
    Outcome,
    check_ended_well,
    lines,
    outcome,
    prepare,
    start,
)

MOST = 4  # Interruptions of a trial.
NOT_CONNECTED = "Gloo context initialization failed: DEADLINE_EXCEEDED"
TRIALS = flags.DEFINE_integer("trials", 10, "Number of trials.", lower_bound=1)
SEED = flags.DEFINE_integer(
    "first_seed", 0, "Of the first trial; the next ones follow."
)
STEPS = flags.DEFINE_integer("steps", 100, "Steps of the run.", lower_bound=2)
RUNS = flags.DEFINE_list("experiments", ["digits"], f"Of {', '.join(EXPERIMENTS)}.")
SIGNALS = flags.DEFINE_list("signals", ["SIGKILL", "SIGTERM", "SIGINT"], "To send.")
PROCESSES = flags.DEFINE_list("processes", ["1"], "1, 2 or both, in turns.")
JOBS = flags.DEFINE_integer("jobs", 1, "Trials at a time.", lower_bound=1)
OUTPUT = flags.DEFINE_string("output", None, "JSON file of what was done.")


class Case:
    """An experiment on a number of processes, trained once without interruptions."""

    def __init__(self, folder: Path, processes: int, experiment: str):
        self._folder, self.experiment, self.processes = folder, experiment, processes
        self._quickest_s, self.not_connected = math.inf, 0
        self._wanted = found = self._finished(self._run("reference"))
        stopped = len(found.metrics) < STEPS.value and found.since_best == 2
        if stopped != (experiment == "patience") or not found.checkpoints:
            raise RuntimeError(f"the reference is not what it should be, see {folder}")

    def trial(self, seed: int) -> list[Interrupted]:
        """Trains in a new folder, interrupted on the way.

        Raises:
          RuntimeError: A process did not end as it should, or the outcome differs from
            that of the run without interruptions.
        """
        rng, run = random.Random(seed), self._run(f"seed_{seed}")
        signals = [signal.Signals[name] for name in SIGNALS.value]
        hits = []
        for _ in range(rng.randint(2, MOST)):
            moment = (len(lines(run)), len(self._wanted.metrics), self._quickest_s)
            drawn = draw(rng, signals, self.processes, *moment)
            with start(self.experiment, self.processes, run, STEPS.value) as started:
                hit = interrupt(started, run, drawn, len(self._wanted.metrics))
            hits += [hit] if hit else []
        found = self._finished(run)
        # A step that was saved at an interruption may have taken the place of the
        # last but one evaluated step.
        wanted = self._wanted.checkpoints
        there, previous = found.checkpoints, sorted(wanted, key=int)[-2]
        wanted = {n: v for n, v in wanted.items() if n != previous or n in there}
        kept = {n: v for n, v in there.items() if n in wanted}
        found = found._replace(checkpoints=kept)._asdict()
        wanted = self._wanted._replace(checkpoints=wanted)._asdict()
        wrong = [name for name, value in wanted.items() if found[name] != value]
        if wrong:
            raise RuntimeError(f"{' and '.join(wrong)} differ after {told(hits)}")
        shutil.rmtree(run.parent)
        return hits

    def _run(self, name: str) -> Path:
        return self._folder / f"{self.experiment}_{self.processes}_{name}" / "run"

    def _finished(self, run: Path) -> Outcome:
        began = time.perf_counter()
        with start(self.experiment, self.processes, run, STEPS.value) as started:
            ended = started.ended(LONGEST_S)
        if any(NOT_CONNECTED in process.text for process in ended):
            self.not_connected += 1
            with start(self.experiment, self.processes, run, STEPS.value) as started:
                ended = started.ended(LONGEST_S)
        check_ended_well(ended)
        self._quickest_s = min(self._quickest_s, time.perf_counter() - began)
        return outcome(run)


def told(hits: list[Interrupted]) -> str:
    """Says what the interruptions were."""
    return ", ".join(map(str, hits)) or "no interruption"


def attempt(case: Case, seed: int) -> tuple[Case, list[Interrupted]] | None:
    """Carries out a trial and prints what came of it; None if it failed."""
    name = f"seed {seed}, {case.experiment}, processes: {case.processes}"
    try:
        hits = case.trial(seed)
    except (RuntimeError, OSError, ValueError) as error:
        print(f"{name}: FAILED, {error}", flush=True)
        return None
    print(f"{name}: passed, {told(hits)}", flush=True)
    return case, hits


def earlier() -> dict[str, Any]:
    """What ``--output`` holds of trials with the same number of steps."""
    file = Path(OUTPUT.value) if OUTPUT.value else None
    found = json.loads(file.read_text()) if file and file.exists() else {}
    return found if found.get("steps") == STEPS.value else {}


def record(
    done: list[tuple[Case, list[Interrupted]]], failed: int, before: dict[str, Any]
) -> dict[str, Any]:
    """What was done, counted by experiment, number of processes and signal."""
    rows, old = [], {_key(row): row for row in before.get("rows", [])}
    for case, name in itertools.product({case for case, _ in done}, SIGNALS.value):
        hits = [
            hit
            for one, hits in done
            for hit in hits
            if one is case and hit.drawn.signal.name == name
        ]
        row = {
            "experiment": case.experiment,
            "processes": case.processes,
            "signal": name,
            "interruptions": len(hits),
            "in_save": sum(hit.in_save for hit in hits),
            "before_first_step": sum(not hit.taking_steps for hit in hits),
            "seconds_max": round(max((hit.seconds for hit in hits), default=0), 1),
        }
        was = old.pop(_key(row), {})
        for count in ("interruptions", "in_save", "before_first_step"):
            row[count] += was.get(count, 0)
        row["seconds_max"] = max(row["seconds_max"], was.get("seconds_max", 0))
        rows.append(row)
    rows = sorted([*rows, *old.values()], key=_key)
    passed, failed = (
        len(done) + before.get("passed", 0),
        failed + before.get("failed", 0),
    )
    not_connected = sum(case.not_connected for case in {case for case, _ in done})
    return {
        **environment(),
        "suite": "interruptions",
        "steps": STEPS.value,
        "trials": passed + failed,
        "passed": passed,
        "failed": failed,
        "not_connected": not_connected + before.get("not_connected", 0),
        "interruptions": sum(row["interruptions"] for row in rows),
        "in_save": sum(row["in_save"] for row in rows),
        "rows": rows,
    }


def _key(row: dict[str, Any]) -> tuple[int, str, str]:
    return row["processes"], row["experiment"], row["signal"]


def main(argv):
    """Runs the trials."""
    del argv
    logging.set_verbosity(logging.WARNING)
    jax.config.update("jax_platforms", "cpu")
    folder = Path(tempfile.mkdtemp(prefix="trials_"))
    prepare(folder, RUNS.value)
    failed, done, before = 0, [], earlier()
    first = SEED.value + before.get("trials", 0)
    with ThreadPoolExecutor(JOBS.value) as pool:
        drawn = itertools.product(map(int, PROCESSES.value), RUNS.value)
        cases = list(pool.map(lambda one: Case(folder, *one), drawn))
        for result in pool.map(
            lambda seed: attempt(cases[seed % len(cases)], seed),
            range(first, SEED.value + TRIALS.value),
        ):
            failed += result is None
            done += [result] if result else []
            if OUTPUT.value:
                text = json.dumps(record(done, failed, before), indent=1)
                Path(OUTPUT.value).write_text(text + "\n")
    found = record(done, failed, before)
    print(
        f"{found['passed']} passed, {found['failed']} failed; {found['interruptions']} "
        f"interruptions, {found['in_save']} of them in a save"
    )
    if failed:
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    app.run(main)
