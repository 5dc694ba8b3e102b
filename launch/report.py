"""Gathers runs into a table, draws their figures and records them.

    python -m launch.report --workdirs=runs/shift,runs/digits
    python -m launch.report --workdirs=runs/shift --record
    python -m launch.report --readme
    python -m launch.report --baselines=etsmlp/language,fru --baseline_data=data

The first prints the table and draws into ``figures`` in each work folder. ``--record``
writes a run's row to ``experiments/results``, and beside it what was measured by
length, of which ``--readme`` makes the table in README.md, the result figures in the
docstrings of experiments (see `launch.prose`), and the tables of lengths and their
picture in ``experiments/results``. Every number is written by this program. Runs that
differ in their seed alone (``--config.training.seed``) share a line: the mean and,
after ±, the standard deviation over seeds (of n - 1). Of language it is the perplexity,
and the bits per token after it. ``--baselines`` adds the trivial baseline to the
records of these experiments that lack it; their data are in ``--baseline_data``, or are
drawn.
"""

import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from experiments.longssm import lengths
from launch import baselines, cli, prose, tables
from launch.summary import name_of
from ssm_jax import plots
from ssm_jax.config import differences
from ssm_jax.evaluation.run import LENGTHS_FILE
from ssm_jax.training import WorkDir

WORKDIRS = flags.DEFINE_list("workdirs", [], "Folders of runs, between commas.")
FIGURES = flags.DEFINE_bool("figures", True, "Draws the figures of the runs.")
RECORD = flags.DEFINE_bool("record", False, "Writes the runs' rows to the results.")
README = flags.DEFINE_bool(
    "readme", False, "Rewrites result figures in the READMEs and in docstrings."
)
BASELINES = flags.DEFINE_list(
    "baselines",
    [],
    "Experiments, or folders of them, to whose records the trivial baseline is added.",
)
BASELINE_DATA = flags.DEFINE_string(
    "baseline_data", None, "Folder of prepared data sets, or of texts, for --baselines."
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
METRICS = ("r2", "perplexity", "accuracy")
"""What a table shows of an evaluation: the first of these that it has."""


def row_of(folder: WorkDir) -> dict[str, Any]:
    """The row of a run that has been evaluated.

    Args:
      folder: Its work folder.

    Returns:
      What is recorded of it, ready for JSON. ``corpus`` is the text that a language
      model was evaluated on; ``lengths`` are the lines of its
      ``length_extension.jsonl``, none where it has not been measured by length.

    Raises:
      ValueError: It has not been evaluated yet.
      FileNotFoundError: It is not the folder of a run.
    """
    config, evaluation = folder.config(), folder.read("evaluation.json")
    last = folder.metrics()[-1] if folder.metrics() else {"step": 0}
    if last["step"] != config.training.steps:
        raise ValueError(
            f"`workdirs` must be trained to the end, got {folder.path} at step "
            f"{last['step']} of {config.training.steps}; `launch.train` continues it."
        )
    if evaluation is None:
        raise ValueError(
            f"`workdirs` must be evaluated, got {folder.path} without evaluation.json; "
            f"run `python -m launch.evaluate --workdir={folder.path}`."
        )
    metric = next(name for name in METRICS if name in evaluation)
    run = folder.read("run.json") or {}
    written = (folder.path / "evaluation.json").stat().st_mtime
    return {
        "experiment": config.experiment,
        "variant": config.variant,
        "seed": config.training.seed,
        "metric": f"{evaluation['split']} {metric}",
        "value": evaluation[metric],
        "paper": config.paper,
        "best_step": evaluation["step"],
        "baseline": evaluation.get("baseline"),
        "steps": config.training.steps,
        "seconds": last["elapsed_s"],
        "date": datetime.date.fromtimestamp(written).isoformat(),
        **run,
        **({"corpus": evaluation["corpus"]} if "corpus" in evaluation else {}),
        "lengths": _lines(folder.path / LENGTHS_FILE),
    }


def check_published(folder: WorkDir, row: Mapping[str, Any]) -> None:
    """Checks that a run is what the experiment's file says, but for seed and folder.

    Raises:
      ValueError: It was overridden, so its row would pass for what it is not.
    """
    variant = f":{row['variant']}" if row["variant"] else ""
    file = ROOT / "experiments" / f"{row['experiment']}.py"
    different = [
        line
        for line in differences(cli.load(f"{file}{variant}"), folder.config())
        if not line.startswith(("task.data_dir", "training.seed"))
    ]
    if different:
        raise ValueError(
            f"`--record` must be of an experiment as it stands, got {folder.path} with "
            f"{'; '.join(different[:3])}; make that a variant of {file.name}."
        )


def record(row: Mapping[str, Any], results: Path = RESULTS) -> None:
    """Writes a row to a folder of results, and its lines by length to a file beside."""
    path = results / f"{name_of(row).replace(':', '.')}.seed{row['seed']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {name: value for name, value in row.items() if name != "lengths"}
    path.write_text(json.dumps(stored, indent=2) + "\n")
    beside = path.with_suffix(".jsonl")
    beside.unlink(missing_ok=True)
    if row["lengths"]:
        beside.write_text("".join(json.dumps(line) + "\n" for line in row["lengths"]))


def records(results: Path = RESULTS) -> list[dict[str, Any]]:
    """All rows that were recorded, in the order of their files."""
    return [
        json.loads(path.read_text()) | {"lengths": _lines(path.with_suffix(".jsonl"))}
        for path in sorted(results.rglob("*.json"))
    ]


def draw(folder: WorkDir, row: Mapping[str, Any]) -> list[Path]:
    """Draws the figures of an evaluated run into its folder; returns their paths."""
    title = name_of(row)
    figures = {
        "curves": plots.curves(folder.metrics(), row["metric"].split()[-1], title)
    }
    if (figure := plots.gradients(folder.metrics(), title)) is not None:
        figures["gradients"] = figure
    if row["lengths"]:
        figures["lengths"] = plots.lengths(row["lengths"], title)
    with np.load(folder.path / "inspection.npz") as found:
        if "kernels" in found:
            figures["kernels"] = plots.convolution_kernels(
                found["kernels"], found["lags"], title
            )
            figures["eigenvalues"] = plots.eigenvalues(
                found["log_abs"],
                found["phase"],
                found["initial_log_abs"],
                found["initial_phase"],
                title,
            )
        inputs, targets, predictions = (
            found[name] for name in ("inputs", "targets", "predictions")
        )
        if targets.ndim == 1 and inputs.ndim == 3 and _is_image(inputs):
            figures["predictions"] = plots.images(inputs, targets, predictions, title)
        if targets.ndim == 3:
            figures["predictions"] = plots.sequences(targets[0], predictions[0], title)
    where = folder.path / "figures"
    where.mkdir(exist_ok=True)
    for name, figure in figures.items():
        figure.savefig(where / f"{name}.png")
    return [where / f"{name}.png" for name in figures]


def main(argv):
    """Reports."""
    del argv
    if not (WORKDIRS.value or README.value or BASELINES.value):
        raise ValueError(
            "`--workdirs` must name a run, got none; `--workdirs=runs/a,runs/b`, or "
            "`--readme` for the table of all records."
        )
    folders = [WorkDir(path) for path in WORKDIRS.value]
    rows = [row_of(folder) for folder in folders]
    for folder, row in zip(folders, rows, strict=True):
        if FIGURES.value:
            print(*draw(folder, row), sep="\n")
        if RECORD.value:
            check_published(folder, row)
            record(row)
    if BASELINES.value:
        baselines.add(BASELINES.value, BASELINE_DATA.value, RESULTS)
    if README.value:
        recorded = records()
        for path in prose.files(ROOT):
            path.write_text(prose.with_results(path.read_text(), recorded))
        (RESULTS / "README.md").write_text(tables.by_length_page(recorded))
        lengths.draw().savefig(RESULTS / tables.PICTURE)
    if rows:
        print(tables.results(rows), tables.by_length(rows), sep="\n", end="")


def _lines(path):
    """The lines of a JSONL file, none where it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _is_image(inputs):
    return inputs.shape[-1] == 1 and math.isqrt(inputs.shape[1]) ** 2 == inputs.shape[1]


if __name__ == "__main__":
    cli.run(main)
