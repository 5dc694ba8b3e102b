"""Gathers runs into a table, draws their figures and records them.

    python -m launch.report --workdirs=runs/shift,runs/digits
    python -m launch.report --workdirs=runs/shift --record
    python -m launch.report --readme

The first prints the table and draws into ``figures`` in each work folder. ``--record``
writes a run's row to ``experiments/results``, of which ``--readme`` makes the table in
README.md. No number passes through a hand. Runs that differ in their seed alone
(``--config.training.seed``) share a line: the mean and, after ±, the deviation between
seeds (of n - 1).
"""

import datetime
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags

from launch import cli
from ssm_jax import plots
from ssm_jax.config import differences
from ssm_jax.evaluation.run import LENGTHS_FILE
from ssm_jax.training import RunFolder

WORKDIRS = flags.DEFINE_list("workdirs", [], "Folders of runs, between commas.")
FIGURES = flags.DEFINE_bool("figures", True, "Draws the figures of the runs.")
RECORD = flags.DEFINE_bool("record", False, "Writes the runs' rows to the results.")
README = flags.DEFINE_bool("readme", False, "Rewrites the table in README.md.")

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
MARKS = ("<!-- results -->\n", "<!-- /results -->\n")
COLUMNS = (
    "task", "metric", "here", "seeds", "paper", "steps", "seconds", "device", "commit",
    "date",
)  # fmt: skip


def row_of(folder: RunFolder) -> dict[str, Any]:
    """The row of a run that has been evaluated.

    Args:
      folder: Its work folder.

    Returns:
      What is recorded of it, ready for JSON.

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
    metric = "r2" if "r2" in evaluation else "accuracy"
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
        "steps": config.training.steps,
        "seconds": last["elapsed_s"],
        "date": datetime.date.fromtimestamp(written).isoformat(),
        **run,
    }


def check_published(folder: RunFolder, row: Mapping[str, Any]) -> None:
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


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table of rows, those of one experiment in one line."""
    ordered = sorted(rows, key=_name)
    lines = [_cells(list(of)) for _, of in itertools.groupby(ordered, _name)]
    cells = [COLUMNS, *lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(f"{c:{w}}" for c, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def readme_with(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The README's text with the table of these rows between its marks."""
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return before + MARKS[0] + "\n" + table(rows) + "\n" + MARKS[1] + after


def records() -> list[dict[str, Any]]:
    """All rows that were recorded, in the order of their files."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.rglob("*.json"))]


def draw(folder: RunFolder, row: Mapping[str, Any]) -> list[Path]:
    """Draws the figures of an evaluated run into its folder; returns their paths."""
    title = _name(row)
    figures = {
        "curves": plots.curves(folder.metrics(), row["metric"].split()[-1], title)
    }
    if (figure := plots.gradients(folder.metrics(), title)) is not None:
        figures["gradients"] = figure
    by_length = folder.path / LENGTHS_FILE
    if by_length.exists():
        lines = by_length.read_text().splitlines()
        figures["lengths"] = plots.lengths([json.loads(line) for line in lines], title)
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
    if not WORKDIRS.value and not README.value:
        raise ValueError(
            "`--workdirs` must name a run, got none; `--workdirs=runs/a,runs/b`, or "
            "`--readme` for the table of all records."
        )
    folders = [RunFolder(path) for path in WORKDIRS.value]
    rows = [row_of(folder) for folder in folders]
    for folder, row in zip(folders, rows, strict=True):
        if FIGURES.value:
            print(*draw(folder, row), sep="\n")
        if RECORD.value:
            check_published(folder, row)
            name = _name(row).replace(":", ".")
            path = RESULTS / f"{name}.seed{row['seed']}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(row, indent=2) + "\n")
    if README.value:
        readme = ROOT / "README.md"
        readme.write_text(readme_with(readme.read_text(), records()))
    if rows:
        print(table(rows), end="")


def _is_image(inputs):
    return inputs.shape[-1] == 1 and math.isqrt(inputs.shape[1]) ** 2 == inputs.shape[1]


def _name(row):
    return row["experiment"] + (f":{row['variant']}" if row["variant"] else "")


def _cells(rows):
    """The line of an experiment, from the runs of all its seeds; the last dates it."""
    row = max(rows, key=lambda row: row["date"])
    values = [row["value"] for row in rows]
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    cpus = f" ({row['cpus']} cores)" if row["platform"] == "cpu" else ""
    return (
        _name(row),
        row["metric"],
        f"{statistics.mean(values):.4f}{spread}",
        str(len(rows)),
        "" if row["paper"] is None else f"{row['paper']:.4g}",
        str(row["steps"]),
        f"{statistics.mean(row['seconds'] for row in rows):.0f}",
        f"{row['n_devices']} x {row['device']}{cpus}",
        row["commit"] or "",
        row["date"],
    )


if __name__ == "__main__":
    cli.run(main)
