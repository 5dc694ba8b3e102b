r"""Trains and evaluates an experiment over a grid of values and seeds.

    ssm-jax sweep --config=FILE[:variant] --workdir=runs/sweep \
        --grid=optimizer.learning_rate=1e-3,3e-3 --grid=training.seed=0,1,2

Each ``--grid`` is a field of the config and its values; the runs are all combinations,
one after the other, in directories of their own below ``--workdir``. Overrides
``--config.FIELD=VALUE`` hold for all runs. The same command continues an interrupted
sweep: finished runs are skipped. At the end it prints a table with the mean and
the standard deviation over the values of ``training.seed``, the best in validation
first, draws it to ``sweep.png`` and ``sweep.pdf`` in ``--workdir``, and writes
``sweep.csv`` there, with a line for each run. A run that fails, as with a loss that is
not finite, is counted there, the others continue, the exit status is 1, and the next
call tries it again.

``--slurm=FILE`` trains nothing and writes the script of a Slurm job array, in which
each job is the run of one index (``--row``). A job that is preempted, or near its time
limit, saves its run and is queued again. When all have ended, the command without
``--slurm`` prints the table.
"""

import csv
import os
import re
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from absl import flags, logging
from matplotlib.figure import Figure

from ssm_jax import plots
from ssm_jax.cli import report
from ssm_jax.cli.config_file import define_config, set_data_dir
from ssm_jax.cli.errors import USER_ERRORS
from ssm_jax.cli.grid import SEED, Cell, cells
from ssm_jax.cli.run_flags import check_writable, define_data
from ssm_jax.cli.summary import Row, Summary, format_result, name_of, number
from ssm_jax.cli.tables import markdown
from ssm_jax.config import build, changed_fields, packages_of
from ssm_jax.evaluation import evaluate_run
from ssm_jax.files import atomic_file
from ssm_jax.tasks.fingerprint import fingerprint_of
from ssm_jax.training import WorkDir, train
from ssm_jax.training.setup import build_parts
from ssm_jax.training.stopping import best_step, is_finished, last_step

Result = tuple[Mapping[str, str], Row | None]
"""The values of a run, and its row with ``validation``, or None if it failed."""


def define_flags() -> None:
    """Defines the flags of this program."""
    define_config()
    flags.DEFINE_string("workdir", None, "Directory of the work dirs.", required=True)
    flags.DEFINE_multi_string("grid", [], "FIELD=VALUE,VALUE,... of the config.")
    define_data("Directory of prepared data sets.")
    flags.DEFINE_integer("row", None, "Do only the run of this index.", lower_bound=0)
    flags.DEFINE_string("slurm", None, "Write a Slurm array script to this file.")


def main(argv):
    """Does the runs of ``--grid``, or writes the script that does."""
    del argv
    values = flags.FLAGS
    if not values.grid:
        raise ValueError(
            "`--grid` must name a field and its values, got none; "
            "--grid=training.seed=0,1,2 is an example."
        )
    line = values.read_flags_from_files(sys.argv, force_gnu=False)
    runs = cells(line, values.grid, values.workdir)
    for cell in runs:
        set_data_dir(cell.config, values.data_dir)
        # All before the first, so that no value is refused after hours of training.
        build_parts(cell.config).task.n_examples("test")
    check_writable("slurm", values.slurm)
    if values.slurm:
        Path(values.workdir).mkdir(parents=True, exist_ok=True)
        script = slurm_script(line, len(runs), values.workdir)
        with atomic_file(Path(values.slurm)) as file:
            # As bytes: words of the command line need not be UTF-8.
            file.write(os.fsencode(script))
        print(f"{values.slurm}: {len(runs)} runs; `sbatch {values.slurm}` starts them")
        return
    if values.row is not None:
        if values.row >= len(runs):
            raise ValueError(
                f"`--row` must be below {len(runs)}, the number of runs, got "
                f"{values.row}; they are counted from 0."
            )
        train_and_evaluate(runs[values.row], values.allow_changed_data)
        return
    results = []
    for index, cell in enumerate(runs):
        logging.info("run %d of %d: %s", index + 1, len(runs), cell.workdir)
        try:
            row = train_and_evaluate(cell, values.allow_changed_data)
        except Exception as error:
            # The others go on after any error. One that is a bug shows where it is.
            bug = not isinstance(error, USER_ERRORS)
            logging.error("%s: %s", cell.workdir, error, exc_info=bug)
            row = None
        results.append((cell.values, row))
        # The compiled functions of a run serve no other.
        jax.clear_caches()
    print(sweep_table(results), end="")
    root = Path(values.workdir)
    root.mkdir(parents=True, exist_ok=True)  # No run may have begun.
    write_csv(root / "sweep.csv", runs, results)
    if figure := sweep_figure(results):
        print(*plots.save(figure, root / "sweep.png"), sep="\n")
    return any(row is None for _, row in results)


def train_and_evaluate(cell: Cell, allow_changed_data: bool = False) -> Row:
    """Trains and evaluates a run, unless that is done.

    Args:
      cell: The run.
      allow_changed_data: Whether it may have been trained, or evaluated, on other data
        than there are now.

    Returns:
      Its row in tables, with the metric in validation at the evaluated step as
      ``validation``.

    Raises:
      ValueError: The work dir is that of another config, or in use, or the data
        changed.
      FloatingPointError: The loss is not finite.
    """
    work = WorkDir(cell.workdir)
    if is_done(cell):
        logging.info("finished before: %s", cell.workdir)
        # Runs on other data are not compared with the further ones.
        data = fingerprint_of(build(cell.config.task, "config.task"))
        step = last_step(work.metrics())
        work.check_data(data, step, allow_changed=allow_changed_data)
    else:
        train(cell.config, str(cell.workdir), allow_changed_data=allow_changed_data)
        evaluate_run(
            cell.workdir,
            # The experiment names its classes itself, so that they may be run.
            packages=packages_of(cell.config),
            allow_changed_data=allow_changed_data,
        )
    row = report.row_of(work)
    name = f"validation/{row['metric'].split()[-1]}"
    lines = {line["step"]: line for line in work.metrics() if name in line}
    validation = lines[row["best_step"]][name]
    if validation is None:
        raise ValueError(
            f"`{name}` of {cell.workdir} must be a number, got null at step "
            f"{row['best_step']}; leave out the values of that run."
        )
    return {**row, "validation": validation}


def sweep_figure(results: Sequence[Result]) -> Figure | None:
    """Draws a sweep against its first field, a line for each of the other values.

    Args:
      results: As `sweep_table` takes them.

    Returns:
      The figure. None if only seeds vary, or no run has a result.
    """
    finished = [(values, row) for values, row in results if row is not None]
    varied = [name for name in results[0][0] if name != SEED]
    if not (varied and finished):
        return None
    first, *others = varied
    lines: dict[str, dict[str, list[float]]] = {}
    for values, row in finished:
        label = ", ".join(f"{name.split('.')[-1]} {values[name]}" for name in others)
        line = lines.setdefault(label, {})
        line.setdefault(values[first], []).append(row["value"])
    _, row = finished[0]
    return plots.sweep(
        lines,
        field=first,
        metric=row["metric"],
        baseline=Summary((row,)).baseline,
        title=name_of(row),
    )


def is_done(cell: Cell) -> bool:
    """Whether a run of this config is trained to its end and evaluated on test."""
    work = WorkDir(cell.workdir)
    evaluation = work.read("evaluation.json")
    if evaluation is None:
        return False
    if changes := changed_fields(work.config(), cell.config):
        raise ValueError(
            f"`workdir` must be new or of the same config, got {work.path}, where "
            f"{changes}; give another --workdir."
        )
    lines = work.metrics()
    return (
        is_finished(lines, cell.config.training)
        # It may have been continued since, or evaluated on another split or step.
        and not report.is_outdated(evaluation, lines)
        and (evaluation["split"], evaluation["step"]) == ("test", best_step(lines))
    )


def slurm_script(argv: list[str], n_runs: int, root: str) -> str:
    """Returns the script of a Slurm job array that does one run in each job.

    Args:
      argv: The command line of the sweep.
      n_runs: Number of runs.
      root: Directory of the work dirs, where Slurm writes the output of jobs too.

    Raises:
      ValueError: The path of ``root`` has a line break, after which the line of an
        option would be a command.
    """
    folder = str(Path(root).absolute())
    if not folder.isprintable():
        raise ValueError(
            "`--workdir` must be a path of printable characters for a script, got "
            f"{folder!r}; give another."
        )
    # Slurm replaces what follows a percent sign.
    output = shlex.quote(folder.replace("%", "%%") + "/slurm-%A_%a.out")
    words = []
    for word, previous in zip(argv[1:], ["", *argv[1:]], strict=False):
        # `--slurm FILE` may be two words.
        if previous not in ("--slurm", "-slurm") and not re.fullmatch(
            r"--?slurm(=.*)?", word
        ):
            words.append(shlex.quote(word))
    command = " \\\n    ".join(
        ["srun ssm-jax sweep", *words, "--row=$SLURM_ARRAY_TASK_ID"]
    )
    return f"""#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-{n_runs - 1}
#SBATCH --output={output}
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@120
# Options of the cluster, as --partition and --gpus, are given to sbatch or added here.
# Two minutes before its time limit, or when it is preempted, a run finishes its step
# and saves it, and its job is queued again.

set -e
cd {shlex.quote(str(Path.cwd()))}
export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH
status=0
{command} \\
    || status=$?
# 143: a signal to end; the same command continues after the step that was saved.
if [[ $status == 143 ]]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
"""


def sweep_table(results: Sequence[Result]) -> str:
    """Returns a Markdown table of a sweep, the best in validation first.

    Args:
      results: The values of each run and its row, as `ssm_jax.cli.report.row_of`
        returns it, with the same metric in validation as ``validation``; None in place
        of a row for a run that failed.

    Returns:
      The table. Runs that differ only in ``training.seed`` share a line: the mean and,
      after ±, the sample standard deviation over seeds.
    """
    groups: dict[tuple[str, ...], list[Row | None]] = {}
    fields = [name for name in results[0][0] if name != SEED]
    for values, row in results:
        groups.setdefault(tuple(values[name] for name in fields), []).append(row)
    finished = [row for _, row in results if row is not None]
    metric = finished[0]["metric"] if finished else "metric"
    name = metric.split()[-1]
    lines = []
    for words, rows in groups.items():
        succeeded = [row for row in rows if row is not None]
        cells = (
            *words,
            *_cells(succeeded, name),
            str(len(succeeded)),
            str(len(rows) - len(succeeded)),
        )
        lines.append((_rank(succeeded, name), cells))
    measured = f"validation {name}", metric, "baseline"
    head = (*fields, *measured, "seconds", "seeds", "failed")
    # By validation, because a choice by the test split would be part of the training.
    ordered = [cells for _, cells in sorted(lines, key=lambda line: line[0])]
    return markdown([head, *ordered])


def write_csv(path: Path, cells: Sequence[Cell], results: Sequence[Result]) -> None:
    """Writes a line for each run of a sweep.

    Args:
      path: The file.
      cells: The runs.
      results: Their values and rows, as for `sweep_table`. Those of a run that failed
        are left empty.
    """
    columns = "validation", "metric", "value", "best_step", "seconds"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*cells[0].values, *columns, "baseline", "workdir"])
        for cell, (values, row) in zip(cells, results, strict=True):
            measured = [(row or {}).get(name) for name in columns]
            measured.append(Summary((row,)).baseline if row else None)
            writer.writerow([*values.values(), *measured, cell.workdir])


def _cells(rows: Sequence[Row], name: str) -> tuple[str, str, str, str]:
    """The metric in validation, in the evaluated split, its baseline, mean seconds."""
    if not rows:
        return "", "", "", ""
    validated = [
        {**row, "value": row["validation"], "metric": f"validation {name}"}
        for row in rows
    ]
    seconds = statistics.mean(row["seconds"] for row in rows)
    summary = Summary((*rows,))
    return (
        format_result(Summary((*validated,))),
        format_result(summary),
        number(summary.baseline),
        f"{seconds:.0f}",
    )


def _rank(rows: Sequence[Row], name: str) -> Any:
    """A sort key: the best mean first, runs without a result last."""
    if not rows:
        return 1, 0.0
    mean = statistics.mean(row["validation"] for row in rows)
    return 0, mean if name == "perplexity" else -mean
