"""Adds the trivial baseline to records that have none, without training."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

from experiments.records import row_config
from ssm_jax.config import build
from ssm_jax.evaluation import trivial_baseline


def add(experiments: Sequence[str], data_dir: str | None, results: Path) -> None:
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
