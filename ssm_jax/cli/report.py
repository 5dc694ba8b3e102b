"""Prints tables of runs and draws their figures.

    ssm-jax report --workdirs=runs/shift,runs/digits

Figures are written to ``figures`` in each work dir that is not read-only, as PNG and
PDF, at the width of a column or a page of a paper. Several language models that were
measured by length are drawn in one figure, too, ``lengths_of_runs``: one trained from
zero states beside one with carried states, for example. Runs that differ only in their
seed (``--config.training.seed``) share a row: the mean and, after ±, the sample
standard deviation over seeds; other runs of one experiment and variant are refused. The
metric of a language model is the perplexity, followed by the bits per token; that of a
forecast is the mean absolute error in the units of its file, beside the best of its
baselines. ``--json`` prints what is known of each run instead, one a line.

``--page=FILE.html`` writes a page of the runs side by side in place of tables and
figures: data, metrics beside baselines, forecasts to zoom, errors by step and by
series, learning curves, the configuration with the fields that differ, and the command
that repeats each run. It is one file, which opens without a network; the extra
``[page]`` draws it. Runs of a page may differ in any field.
"""

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from matplotlib.figure import Figure

from ssm_jax import plots
from ssm_jax.cli import page, tables
from ssm_jax.cli.grid import SEED
from ssm_jax.cli.run_flags import check_writable
from ssm_jax.cli.summary import (
    METRICS,
    Row,
    common_choices,
    distinct_choices,
    in_units,
    name_of,
)
from ssm_jax.config import changed_fields
from ssm_jax.evaluation.forecast import panels_of_arrays
from ssm_jax.evaluation.run import (
    ACCURACY_FILE,
    FORECAST_FILE,
    LENGTHS_FILE,
    MEMORY_FILE,
)
from ssm_jax.files import parse_json
from ssm_jax.tasks.fingerprint import describe, same
from ssm_jax.training import WorkDir
from ssm_jax.training.stopping import is_finished, last_step

_FURTHER = ("corpus", "forecast", "changed_data")  # of some evaluations
_IMAGES = 3  # Images with masks in a figure, of the lowest and of the highest loss.


def row_of(folder: WorkDir) -> dict[str, Any]:
    """Returns the row of an evaluated run.

    Args:
      folder: Work dir of the run.

    Returns:
      The row, ready for JSON. A config need not have ``experiment``, ``variant`` and
      ``paper``: the name is then that of the directory. ``corpus`` describes the text
      that a language model was evaluated on; ``lengths`` are the rows of its
      ``length_extension.jsonl``, empty if it was not measured by length.

    Raises:
      ValueError: The run is neither finished nor stopped early, or it is not evaluated,
        or not since its last step, or a file of it is damaged.
      FileNotFoundError: The directory holds no run.
    """
    config, evaluation = folder.config(), folder.read("evaluation.json")
    lines, lengths = folder.metrics(), lines_of(folder.path / LENGTHS_FILE)
    # A table must not compare unfinished runs with finished ones.
    if not is_finished(lines, config.training):
        raise ValueError(
            f"`workdirs` must be trained to the end, got {folder.path} at step "
            f"{last_step(lines)} of {config.training.steps}; `ssm-jax train` continues "
            "it."
        )
    if evaluation is None:
        raise ValueError(
            f"`workdirs` must be evaluated, got {folder.path} without evaluation.json; "
            f"run `ssm-jax evaluate --workdir={folder.path}`."
        )
    for measured, options in (
        (evaluation, ""),
        *((line, " --mode=length_extension") for line in lengths),
    ):
        if is_outdated(measured, lines):
            raise ValueError(
                "`workdirs` must be evaluated after their last step, got "
                f"{folder.path} evaluated at step {measured['logged_step']} of "
                f"{last_step(lines)}; run again `ssm-jax evaluate "
                f"--workdir={folder.path}{options}`."
            )
    metric = next((name for name in METRICS if name in evaluation), None)
    if metric is None or not {"split", "step"} <= evaluation.keys():
        raise ValueError(
            f"`{folder.path / 'evaluation.json'}` must hold split, step and one of "
            f"{', '.join(METRICS)}, got {', '.join(evaluation) or 'none'}; run again "
            f"`ssm-jax evaluate --workdir={folder.path}`."
        )
    if evaluation[metric] is None:
        raise ValueError(
            f"`{folder.path / 'evaluation.json'}` must hold a number as {metric}, got "
            "null, which is what is not defined or not finite; leave the run out."
        )
    run = folder.read("run.json") or {}
    # The date of the evaluation: a run may have been trained days before.
    evaluation_time = (folder.path / "evaluation.json").stat().st_mtime
    return {
        "experiment": config.get("experiment") or folder.path.name,
        "variant": config.get("variant") or "",
        "seed": config.training.seed,
        "metric": f"{evaluation['split']} {metric}",
        "value": evaluation[metric],
        # The paper on DLR reports this one of a regression.
        **{name: evaluation[name] for name in ("r2_batch",) if name in evaluation},
        "paper": config.get("paper"),
        "best_step": evaluation["step"],
        "baseline": evaluation.get("baseline"),
        "steps": config.training.steps,
        "seconds": lines[-1]["elapsed_s"],
        "date": datetime.date.fromtimestamp(evaluation_time).isoformat(),
        **run,
        **{name: evaluation[name] for name in _FURTHER if name in evaluation},
        "lengths": lengths,
    }


def is_outdated(
    measured: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether a run was continued after it was evaluated.

    Args:
      measured: The evaluation, or a line of one by length. Those of earlier versions,
        which do not have the step that the run had logged, are taken as they are.
      lines: Lines of metrics of the run.

    Example:
      >>> is_outdated({"logged_step": 10}, [{"step": 10}, {"step": 20}])
      True
    """
    return measured.get("logged_step", math.inf) < last_step(lines)


def check_seeds(folders: Sequence[WorkDir], rows: Sequence[Row]) -> None:
    """Checks that runs that share a line of a table differ in their seed alone.

    Args:
      folders: Work dirs of the runs.
      rows: The row of each.

    Raises:
      ValueError: Two runs of one experiment and variant differ in another field than
        ``training.seed`` and ``task.data_dir``, or in their data, or have the same
        seed.
    """
    first: dict[tuple[str, str], WorkDir] = {}
    first_by_seed: dict[tuple[str, str, int], WorkDir] = {}
    for folder, row in zip(folders, rows, strict=True):
        line = name_of(row), row["metric"]
        other = first.setdefault(line, folder)
        may_change = (SEED, "task.data_dir")
        if changes := changed_fields(
            other.config(), folder.config(), may_change=may_change
        ):
            raise ValueError(
                f"`workdirs` of {line[0]} must differ only in `{SEED}`, got "
                f"{other.path} and {folder.path}, where {changes}; report them one by "
                "one."
            )
        ours, theirs = folder.data()[-1:], other.data()[-1:]
        if ours and theirs and not same(*ours, *theirs):
            raise ValueError(
                f"`workdirs` of {line[0]} must be trained on the same data, got "
                f"{other.path} on {describe(*theirs)}, and {folder.path} on "
                f"{describe(*ours)}; report them one by one."
            )
        other = first_by_seed.setdefault((*line, row["seed"]), folder)
        if other is not folder:
            raise ValueError(
                f"`workdirs` of {line[0]} must have a `{SEED}` each, got {row['seed']} "
                f"of {other.path} and of {folder.path}; leave one out."
            )


def draw(folder: WorkDir, row: Mapping[str, Any]) -> list[Path]:
    """Draws the figures of an evaluated run into its work dir; returns their paths."""
    figures_dir = folder.path / "figures"
    figures_dir.mkdir(exist_ok=True)
    return [
        path
        for name, figure in figures(folder, row).items()
        for path in plots.save(figure, figures_dir / f"{name}.png")
    ]


def figures(folder: WorkDir, row: Mapping[str, Any]) -> dict[str, Figure]:
    """Returns the figures of an evaluated run by name."""
    title, lines = name_of(row), folder.metrics()
    drawn = {"curves": plots.curves(lines, row["metric"].split()[-1], title)}
    if (figure := plots.gradients(lines, title)) is not None:
        drawn["gradients"] = figure
    if row["lengths"]:
        drawn["lengths"] = plots.lengths(row["lengths"], title)
    for name, file, plot in (
        ("accuracy_by_length", ACCURACY_FILE, plots.accuracy_by_length),
        ("memory", MEMORY_FILE, lambda rows, title: plots.memory(rows[0], title)),
    ):
        rows = lines_of(folder.path / file)
        if rows and not is_outdated(rows[0], lines):
            drawn[name] = plot(rows, title)
    arrays = folder.read_arrays("inspection.npz")
    if "kernels" in arrays:
        drawn["kernels"] = plots.convolution_kernels(
            arrays["kernels"],
            arrays["lags"],
            title,
            channels=arrays["channels"],
            energies=arrays["energies"],
        )
        drawn["eigenvalues"] = plots.eigenvalues(
            arrays["log_abs"],
            arrays["phase"],
            arrays["initial_log_abs"],
            arrays["initial_phase"],
            title,
        )
    inputs, targets, predictions = (
        arrays[name] for name in ("inputs", "targets", "predictions")
    )
    # Those of earlier versions are of the test split, and do not say so.
    examples = f"{arrays['n_candidates']} {arrays.get('split', 'test')} examples"
    selection = f"lowest and highest losses of {examples}"
    if targets.ndim == 1 and inputs.ndim == 3 and plots.is_image(inputs):
        drawn["predictions"] = plots.images(
            inputs, targets, predictions, title, examples=selection
        )
    # Targets of a forecast are two-dimensional too, but no classes of pixels.
    classes = np.issubdtype(targets.dtype, np.integer)
    if classes and targets.ndim == 2 and inputs.ndim == 3 and plots.is_image(inputs):
        indices = range(len(inputs))  # A split may have fewer.
        few = sorted({*indices[:_IMAGES], *indices[-_IMAGES:]})
        shown = {"predicted": predictions[few].argmax(-1)}
        drawn["predictions"] = plots.masks(
            inputs[few], targets[few], shown, f"{title}\n{selection}"
        )
    if targets.ndim == 3:
        ends, names = [0, -1], ("lowest loss", "highest loss")
        drawn["predictions"] = plots.sequences(
            targets[ends], predictions[ends], f"{title}\n{selection}", names=names
        )
    if "forecast" in row:
        panels = panels_of_arrays(folder.read_arrays(FORECAST_FILE))
        for number, (name, panel) in enumerate(panels.items(), 1):
            which = "forecast" if number == 1 else f"forecast-{number}"
            drawn[which] = plots.forecasts(
                panel["series"],
                panel,
                row["forecast"],
                name=folder.config().task.target,
                title=f"{title}, {name}" if name else title,
                times=panel.get("times"),
            )
    return drawn


def draw_comparison(folders: Sequence[WorkDir], rows: Sequence[Row]) -> list[Path]:
    """Draws runs that were measured by length beside each other, in each work dir.

    Args:
      folders: Work dirs of the runs.
      rows: The row of each.

    Returns:
      Paths of the figures; none if there are fewer than two such runs.
    """
    runs = [
        (folder, row)
        for folder, row in zip(folders, rows, strict=True)
        if row["lengths"]
    ]
    if len(runs) < 2:
        return []
    common = common_choices(name_of(row) for _, row in runs)
    lines = [
        (distinct_choices(name_of(row), common), row["lengths"]) for _, row in runs
    ]
    drawing = plots.lengths_of_runs(lines, common or "perplexity by length")
    return [
        path
        for folder, _ in runs
        if folder.may_write()
        for path in plots.save(drawing, folder.path / "figures/lengths_of_runs.png")
    ]


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_list("workdirs", [], "Work dirs of the runs, separated by commas.")
    flags.DEFINE_bool("figures", True, "Whether to draw the figures of the runs.")
    flags.DEFINE_bool("json", False, "Print JSON in place of tables.")
    flags.DEFINE_string("page", None, "HTML file of a page of the runs, side by side.")


def main(argv):
    """Prints the tables of the runs in ``--workdirs`` and draws their figures."""
    del argv
    if not flags.FLAGS.workdirs:
        raise ValueError(
            "`--workdirs` must name a run, got none; `--workdirs=runs/a,runs/b` is an "
            "example."
        )
    check_writable("page", flags.FLAGS.page, ("html", "htm"))
    if flags.FLAGS.page:
        page.check_plotly()
    folders = [WorkDir(path) for path in flags.FLAGS.workdirs]
    rows = [row_of(folder) for folder in folders]
    if flags.FLAGS.page:
        runs = [
            page.Run(folder, row, _further_figures(folder, row))
            for folder, row in zip(folders, rows, strict=True)
        ]
        page.write_page(Path(flags.FLAGS.page), runs)
        n = f"{len(runs)} run{'s' * (len(runs) != 1)}"
        print(f"page of {n} written to {flags.FLAGS.page}")
        return
    check_seeds(folders, rows)
    # After all rows, so that an unfinished run is reported before anything is drawn.
    if flags.FLAGS.figures:
        for paths in _draw_all(folders, rows):
            if paths and not flags.FLAGS.json:
                print(*paths, sep="\n")
    if flags.FLAGS.json:
        print(*map(json.dumps, rows), sep="\n")
        return
    results = tables.results([in_units(row) for row in rows])
    print(results, tables.by_length(rows), sep="\n", end="")
    print(tables.forecast_table(rows), end="")


def _draw_all(folders, rows):
    """Yields the paths of the figures of each run, and of those of several."""
    for folder, row in zip(folders, rows, strict=True):
        if folder.may_write():
            yield draw(folder, row)
    yield draw_comparison(folders, rows)


def _further_figures(folder, row):
    """The figures of a run without a counterpart on its page."""
    if not flags.FLAGS.figures:
        return {}
    drawn = figures(folder, row)
    return {name: x for name, x in drawn.items() if not name.startswith(page.DRAWN)}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a JSONL file, or none if it does not exist.

    Raises:
      ValueError: A line is no JSON object; the error says which.
    """
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            values = parse_json(line.decode())
        except ValueError as error:
            values = error
        if not isinstance(values, dict):
            got = " ".join(str(values).split())[:80]
            raise ValueError(
                f"`{path}` must hold a JSON object in each line, got in line {number}: "
                f"{got}; remove it, and run again what writes it."
            )
        rows.append(values)
    return rows
