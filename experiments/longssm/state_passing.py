r"""Which initial states extend a model, and do they if they come late in training?

    python -m experiments.longssm.state_passing --data_dir=FOLDER --workdir=runs/passing

``FOLDER`` contains text files. An S5 and a Mamba of the size ``tiny`` of
``experiments/longssm/text.py`` are trained on windows of 16 bytes:

- ``zero``: each window from zero states;
- ``carry``: from the final states of the window before;
- ``others``: from the final states of an unrelated window;
- ``noise``: from normal noise;
- ``passing``: a quarter of the steps more after ``zero``, each window as in ``others``;
- ``control``: as many steps more after ``zero``, from zero states again.

Each is measured by its perplexity on windows of several lengths from zero states, by
how much the first bytes of a text still change the prediction after 64, and by the norm
of its states after long texts beside that at the length of the training. The same
command continues an interrupted one; runs in the record,
``experiments/benchmarks/state_passing.json``, are not repeated.

Source: Buitrago and Gu, arXiv 2507.02782, 2025, whose models are larger and trained on
2,048 tokens.
"""

import json
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from absl import flags

from experiments.page import PartWithoutRuns
from experiments.records import BENCHMARKS, experiment_config, machine, record_runs
from ssm_jax.cli import app, tables
from ssm_jax.cli.summary import Row
from ssm_jax.config import Config
from ssm_jax.evaluation import evaluate_lengths, evaluate_memory
from ssm_jax.training import train

RECORD = BENCHMARKS / "state_passing.json"
EXPERIMENT = "longssm/text:model={model},length=16,state_init={state_init},size=tiny"
MODELS, SEEDS = ("s5", "mamba"), 3
STATE_INITS = {
    "zero": "zero",
    "carry": "carry",
    "others": "state_passing",
    "noise": "noise",
    "passing": "state_passing",
    "control": "zero",
}
"""The initial states of each run."""
CONTINUED = ("passing", "control")
"""Runs that continue from ``zero``."""
LENGTHS = (16, 128, 1024, 32_768)


def runs() -> Iterator[dict[str, Any]]:
    """Yields the model, the seed and the name of each run."""
    for model in MODELS:
        for seed in range(SEEDS):
            for name in STATE_INITS:
                yield {"model": model, "seed": seed, "run": name}


def run_config(run: Mapping[str, Any], data_dir: str, zero: Path) -> Config:
    """Returns the config of a run.

    Args:
      run: One of `runs`.
      data_dir: Directory of the texts.
      zero: Work dir of the run ``zero`` of the same model and seed.
    """
    choices = {"model": run["model"], "state_init": STATE_INITS[run["run"]]}
    config = experiment_config(EXPERIMENT.format(**choices))
    config.task.data_dir = data_dir
    config.training.seed = run["seed"]
    if run["run"] in CONTINUED:
        steps = config.training.steps // 4
        config.training.update(
            steps=steps, evaluate_every=steps, init_from=str(zero.resolve())
        )
        config.optimizer.update(schedule_steps=steps, warmup_steps=steps // 10)
    return config


def measure(data_dir: str, folder: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Trains a run, or continues it, and measures it.

    Args:
      data_dir: Directory of the texts.
      folder: Directory of all work dirs.
      run: One of `runs`.

    Returns:
      The run with its ``steps``; the perplexities by length from zero states, and how
      it ``extends``; ``remembrance``, the change of the prediction without the first
      eighth of 64 bytes; and ``growth``, the norm of the states after the longest text
      by that at the length of the training, the largest of all layers.
    """
    names = {
        name: folder / f"{run['model']}-{name}-{run['seed']}" for name in STATE_INITS
    }
    workdir, config = names[run["run"]], run_config(run, data_dir, names["zero"])
    train(config, str(workdir))
    rows = [
        row
        for row in evaluate_lengths(workdir, LENGTHS, split="test", data_dir=data_dir)
        if row["window_state"] == "zero"
    ]
    memory = evaluate_memory(workdir, LENGTHS, split="test", data_dir=data_dir)
    at = memory["starts"].index(memory["length"] // 8)
    return {
        **run,
        "steps": config.training.steps,
        "perplexity": {str(row["length"]): row["perplexity"] for row in rows},
        "extends": rows[0]["extends"],
        "remembrance": memory["effective_remembrance"][at],
        "growth": max(
            state["norm"][-1] / state["norm"][0] for state in memory["states"]
        ),
    }


class StatePassing(PartWithoutRuns):
    """The record, as a section of the page of results."""

    title = "Other initial states, and late ones"

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns the means over seeds; empty without a record."""
        del rows
        if not RECORD.exists():
            return ""
        record = json.loads(RECORD.read_text())
        groups = {
            (model, run): found
            for model in MODELS
            for run in STATE_INITS
            if (
                found := [
                    row
                    for row in record["rows"]
                    if (row["model"], row["run"]) == (model, run)
                ]
            )
        }
        lines = [
            (
                model,
                run,
                *(
                    _mean([row["perplexity"][str(length)] for row in found], ".2f")
                    for length in (LENGTHS[0], LENGTHS[-1])
                ),
                ", ".join(row["extends"] for row in found),
                _mean([row["remembrance"] for row in found], ".3f"),
                _mean([row["growth"] for row in found], ".2f"),
            )
            for (model, run), found in groups.items()
        ]
        columns = (
            "model",
            "run",
            "perplexity at 16",
            "at 32,768",
            "extends",
            "remembrance",
            "growth",
        )
        text = _TEXT.format(machine=machine(record))
        text = textwrap.fill(text, 88, break_on_hyphens=False)
        return f"{text}\n\n{tables.markdown([columns, *lines])}"


_TEXT = """\
S5 and Mamba of the size `tiny`, trained on windows of 16 bytes from zero states
(`zero`), from carried ones (`carry`), from final states of unrelated windows (`others`)
and from normal noise (`noise`), and for a quarter of the steps more after `zero`: as
`others` (`passing`), or from zero states again (`control`). Perplexities per byte from
zero states by the length of the window, mean and standard deviation over seeds (that
of the unigram model is the `baseline` of the tables above); whether
each seed `extends`, as in the tables by length; `remembrance`, half the L1 distance of
the prediction after 64 bytes from that without the first eight; `growth`, the norm of
the states after 32,768 bytes by that after 16, the largest of all layers. Measured by
`python -m experiments.longssm.state_passing` on {machine}.
"""


def _mean(values, digits):
    mean = format(statistics.mean(values), digits)
    if len(values) == 1:
        return mean
    return f"{mean} ± {format(statistics.stdev(values), digits)}"


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("data_dir", None, "Directory of the texts.", required=True)
    flags.DEFINE_string("workdir", None, "Directory of the work dirs.", required=True)


def main(argv):
    """Does the runs that the record lacks, and prints the means of all of them."""
    del argv
    values = flags.FLAGS
    folder = Path(values.workdir)
    record_runs(RECORD, runs(), partial(measure, values.data_dir, folder))
    print(StatePassing().markdown([]))


if __name__ == "__main__":
    app.run(main, define_flags)
