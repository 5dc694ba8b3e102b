r"""Compiles every experiment at its published size for GPUs and TPUs, as a table.

    python -m benchmarks.compilation --records=runs/compilation

Each cell is a call of `ssm_jax.cli.compile` in a process of its own, one after the
other, whose JSON record is kept in ``--records``: the same command continues where it
was interrupted, and compiles a cell again if its record is deleted. A batch that cannot
be divided among the devices is rounded up; the table marks it with a plus sign.
``--timeout`` ends a cell after this time, and records that it did. The extra
``[compile]`` must be installed.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from ssm_jax.aot import Target, parse_target
from ssm_jax.cli import app, config_file
from ssm_jax.cli.tables import markdown

ROOT = Path(__file__).parents[1]

TARGETS = ("gpu:h100:8", "tpu:v5e:2x4")

EXPERIMENTS = (
    *(
        f"dlr/{name}"
        for name in (
            "atomic",
            "arena",
            "digits",
            "listops_subtrees",
            "long_shift",
            "pathfinder_segmentation",
            "pg19",
            "pixel_mnist",
            "speech",
        )
    ),
    *(
        f"etsmlp/{name}"
        for name in (
            "image",
            "language",
            "listops",
            "pathfinder",
            "pathx",
            "retrieval",
            "text",
        )
    ),
    *(f"fru/{name}" for name in ("frequencies", "imdb", "mixture", "pixel_mnist")),
    "longssm/text",
    "own_data/beijing",
)
"""The experiments, each in the variant of its own default."""


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("records", None, "Directory of the records.", required=True)
    flags.DEFINE_list("targets", list(TARGETS), "Targets, as `compile` takes them.")
    flags.DEFINE_list("experiments", list(EXPERIMENTS), "Of experiments/, PAPER/TASK.")
    flags.DEFINE_float("timeout", 3600.0, "Seconds per cell.", lower_bound=1.0)


def main(argv):
    """Compiles what has no record yet and prints the table."""
    del argv
    values = flags.FLAGS
    targets = [parse_target(text) for text in values.targets]
    records = Path(values.records)
    records.mkdir(parents=True, exist_ok=True)
    rows = []
    for target in targets:
        for name in values.experiments:
            file = records / f"{name}-{target.text}.json".replace("/", "-")
            if not file.exists():
                logging.info("compiling %s for %s", name, target.text)
                found = compile_cell(name, target, values.timeout)
                file.write_text(json.dumps(found, indent=2) + "\n")
            rows.append(json.loads(file.read_text()))
    print(table(rows))


def compile_cell(name: str, target: Target, timeout: float) -> dict[str, Any]:
    """Compiles an experiment for a target in a new process.

    Args:
      name: ``PAPER/TASK``.
      target: The target.
      timeout: Seconds after which it is ended.

    Returns:
      The record, with the published ``batch_size_of_config``; with ``error``, the last
      line of the process, if it failed.
    """
    path = f"experiments/{name}.py"
    training = config_file.load(str(ROOT / path)).training
    unit = target.n_devices * training.get("accumulate", 1)
    rows = -(-training.batch_size // unit) * unit
    cell = {"experiment": name, "target": target.text}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "record.json"
        command = [
            *(sys.executable, "-m", "launch.compile"),
            *(f"--config={path}", f"--config.training.batch_size={rows}"),
            *(f"--target={target.text}", f"--json={output}"),
        ]
        try:
            run = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            return cell | {"error": f"not compiled in {timeout:.0f} s"}
        if run.returncode:
            return cell | {"error": (run.stderr.strip().splitlines() or ["none"])[-1]}
        record = json.loads(output.read_text())
    return record | cell | {"batch_size_of_config": training.batch_size}


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns a Markdown table, a line for each record.

    Args:
      records: What `compile_cell` returns.
    """
    head = (
        *("experiment", "target", "parameters", "batch", "compile s"),
        *("memory MiB", "fits", "temp MiB", "collectives", "MiB sent", "evaluate MiB"),
    )
    return markdown([head, *map(_line, records)])


def _line(record):
    cell = record["experiment"], record["target"]
    if "error" in record:
        return (*cell, "", "", "", "", record["error"], "", "", "", "")
    step, evaluation = record["programs"][:2]
    raised = record["batch_size"] > record["batch_size_of_config"]
    sent = (step["traffic"] or {"collectives": []})["collectives"]
    kinds = ", ".join(f"{one['count']} {one['kind']}" for one in sent)
    fits = step["out_of_memory"] is None
    fits &= step["memory_bytes"] <= record["device_memory_bytes"]
    return (
        *cell,
        f"{record['parameters']:,}",
        f"{record['batch_size']:,}{'+' if raised else ''}",
        f"{step['seconds']:.0f}",
        _mib(step["memory_bytes"]),
        "yes" if fits else "no",
        _mib(step["temp_bytes"]),
        kinds,
        _mib(sum(one["bytes"] for one in sent)),
        _mib(evaluation["memory_bytes"]),
    )


def _mib(n):
    return f"{n / 2**20:,.1f}"


if __name__ == "__main__":
    app.run(main, define_flags)
