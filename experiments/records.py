"""Records of runs in ``experiments/results``, one JSON file per run."""

import functools
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ssm_jax.cli.config_file import load
from ssm_jax.cli.report import lines_of
from ssm_jax.cli.summary import name_of
from ssm_jax.config import Config, build, differences
from ssm_jax.evaluation import trivial_baseline
from ssm_jax.files import write_text
from ssm_jax.plots.gradients import points
from ssm_jax.training import WorkDir, environment

EXPERIMENTS = Path(__file__).parent
RESULTS = EXPERIMENTS / "results"
BENCHMARKS = EXPERIMENTS / "benchmarks"


def machine(record: Mapping[str, Any]) -> str:
    """Returns the devices, the cores and the commit of a benchmark."""
    devices = f"{record['n_devices']} x {record['device']}"
    return f"{devices} ({record['cpus']} cores), commit {record['commit']}"


def row_config(row: Mapping[str, Any]) -> Config:
    """Returns the config of the experiment and variant of a row."""
    return experiment_config(f"{row['experiment']}:{row['variant']}".rstrip(":"))


def experiment_config(name: str) -> Config:
    """Returns the config of an experiment.

    Args:
      name: The experiment and its variant, ``PAPER/TASK:variant``.
    """
    return _load_config(name).copy_and_resolve_references()


def check_name(name: str) -> str:
    """Returns the name of an experiment and its variant, which becomes a path.

    A row may be of a run from elsewhere, and the file of the experiment is run.

    Raises:
      ValueError: It is not made of words.
    """
    if not re.fullmatch(r"\w+(/\w+)*(:[\w.,=+-]+)?", name):
        raise ValueError(
            f"`experiment` must be words joined by slashes, PAPER/TASK, got {name!r}; "
            "name it as the file in experiments/."
        )
    return name


# A page needs the configs of all its cells and runs several times.
@functools.cache
def _load_config(name: str) -> Config:
    experiment, colon, variant = check_name(name).partition(":")
    return load(f"{EXPERIMENTS / experiment}.py{colon}{variant}")


def check_published(folder: WorkDir, row: Mapping[str, Any]) -> None:
    """Checks that the config of a run is that of its experiment and variant.

    The seed and the data directory may differ.

    Args:
      folder: Work dir of the run.
      row: Row of the run.

    Raises:
      ValueError: A field was overridden, so that the name of the row would not describe
        the run.
    """
    different = [
        line
        for line in differences(row_config(row), folder.config())
        if not line.startswith(("task.data_dir", "training.seed"))
    ]
    if different:
        raise ValueError(
            f"`--record` must be of an experiment as it stands, got {folder.path} with "
            f"{'; '.join(different[:3])}; make that a variant."
        )


def record_path(row: Mapping[str, Any], results: Path = RESULTS) -> Path:
    """Returns the path of the record of a row."""
    name = check_name(name_of(row)).replace(":", ".")
    return results / f"{name}.seed{int(row['seed'])}.json"


def validation_curve(folder: WorkDir, metric: str) -> dict[str, float]:
    """Returns a metric of the validation split by step; empty if it is not logged.

    Steps at which it is not defined are left out.

    Args:
      folder: Work dir of the run.
      metric: The metric of its row, as ``"test accuracy"``.
    """
    name = f"validation/{metric.split()[-1]}"
    return {
        str(line["step"]): value
        for line in folder.metrics()
        if (value := line.get(name)) is not None
    }


def last_gradients(folder: WorkDir) -> dict[str, float]:
    """Returns the last norms of the gradient by the initial state; empty without any.

    They are L2 norms of the gradient of the loss at step ``t``, by ``t``.

    Args:
      folder: Work dir of the run.
    """
    measured = (points(line, "gradient", "l2") for line in reversed(folder.metrics()))
    return {str(step): norm for step, norm in next(filter(None, measured), [])}


def record(row: Mapping[str, Any], results: Path = RESULTS) -> None:
    """Writes a row to a JSON file, and its rows by length to a JSONL file."""
    path = record_path(row, results)
    path.parent.mkdir(parents=True, exist_ok=True)
    summary = {name: value for name, value in row.items() if name != "lengths"}
    path.write_text(json.dumps(summary, indent=2) + "\n")
    lengths_path = path.with_suffix(".jsonl")
    lengths_path.unlink(missing_ok=True)
    if row["lengths"]:
        lengths_path.write_text(
            "".join(json.dumps(line) + "\n" for line in row["lengths"])
        )


def record_runs(
    path: Path,
    runs: Iterable[Mapping[str, Any]],
    measure: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    **about: Any,
) -> list[dict[str, Any]]:
    """Measures the runs that a record lacks, and writes each into it.

    Args:
      path: Path of the record, a JSON file with the machine and ``rows``.
      runs: Fields that name each run.
      measure: Trains a run, or continues it, and returns its row, with these fields.
      **about: Further fields of the record.

    Returns:
      All rows, each with the commit that measured it.
    """
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    here = environment()
    todo = [run for run in runs if not any(run.items() <= row.items() for row in rows)]
    path.parent.mkdir(parents=True, exist_ok=True)
    for number, run in enumerate(todo, 1):
        logging.info("run %d of %d: %s", number, len(todo), run)
        rows.append({**measure(run), "commit": here["commit"]})
        # After each run: an interrupted program keeps what it has measured.
        write_text(path, json.dumps(here | about | {"rows": rows}, indent=2) + "\n")
    return rows


def records(results: Path = RESULTS) -> list[dict[str, Any]]:
    """Returns all recorded rows, sorted by path."""
    return [
        json.loads(path.read_text()) | {"lengths": lines_of(path.with_suffix(".jsonl"))}
        for path in sorted(results.rglob("*.json"))
    ]


def add_baselines(
    experiments: Sequence[str], data_dir: str | None, results: Path
) -> None:
    """Adds the trivial baseline to records that have none and whose data are available.

    Args:
      experiments: Names of experiments or of papers, whose records are updated.
      data_dir: Directory of the prepared data sets or texts of these runs.
      results: Directory of the records.

    Raises:
      ValueError: There is no record of one of ``experiments``, or the data belong to
        another experiment.
    """
    paths_by_name = {name: _record_paths(name, results) for name in experiments}
    for name, paths in paths_by_name.items():
        if not paths:
            raise ValueError(
                f"`--baselines` must name experiments that were recorded, got {name}; "
                "`dlr/atomic` is one, and `dlr` selects all of that paper."
            )
    for path in itertools.chain.from_iterable(paths_by_name.values()):
        row = json.loads(path.read_text())
        if row.get("baseline"):
            continue
        try:
            baseline = _compute_baseline(row, data_dir)
        except FileNotFoundError as error:
            print(f"{path.name}: none, {error}")
            continue
        names = list(row)
        first = names.index("best_step") + 1
        after = {name: row[name] for name in names[first:] if name != "baseline"}
        before = {name: row[name] for name in names[:first]}
        row = before | {"baseline": baseline} | after
        path.write_text(json.dumps(row, indent=2) + "\n")
        print(f"{path.name}: {baseline['name']} added")


def _record_paths(name, results):
    """Returns the record files of an experiment or of all those of a paper."""
    paths = sorted(results.rglob("*.json"))
    rows = [json.loads(path.read_text()) for path in paths]
    prefix = name.rstrip("/") + "/"
    return [
        path
        for path, row in zip(paths, rows, strict=True)
        if f"{row['experiment']}/".startswith(prefix)
    ]


def _compute_baseline(row, data_dir):
    """Computes the baseline on the batches that `ssm_jax.cli.evaluate` reads."""
    config = row_config(row)
    if "data_dir" in config.task:
        config.task.data_dir = data_dir
    task, split = build(config.task, "config.task"), row["metric"].split()[0]
    endless = task.n_examples(split) is None
    return trivial_baseline(
        task,
        split,
        batch_size=config.training.batch_size,
        limit=config.training.evaluation_batches if endless else None,
        seed=row["seed"],
    )
