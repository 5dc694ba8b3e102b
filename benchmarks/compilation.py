r"""Compiles every experiment at its full size for GPUs and TPUs, as a table.

    python -m benchmarks.compilation

Each cell is a call of `ssm_jax.cli.compile` in a process of its own, one after the
other. After each cell the records are written to ``--records`` and the table to
``--page``: the same command continues where it was interrupted. With ``--again`` cells
that have a record are compiled again. A batch that cannot be divided among the devices
is rounded up; the table marks it with a plus sign. ``--timeout`` ends a cell after this
time, and records that it did. The extra ``[compile]`` must be installed.
"""

import itertools
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
    *sorted(
        f"{path.parent.name}/{path.stem}"
        for path in (ROOT / "experiments").glob("*/*.py")
        if "\ndef get_config(" in path.read_text()
    ),
    *(
        f"longssm/text:model={model},length=1024,state_init=carry,size=d1024"
        for model in ("s5", "mamba")
    ),
    *(
        f"longssm/text:model={model},length=1024,state_init=carry,size=d768"
        for model in ("mamba2", "hybrid")
    ),
    "dlr/pg19:experts=64@training.mesh=data=1,model=8"
    "@training.accumulate=15@model.dtype=bfloat16",
    "longssm/text:model=mamba,length=1024,state_init=carry,size=d1024"
    "@training.mesh=data=1,model=8",
    # 7.9 billion parameters, too many for eight TPUs of 16 GiB.
    "longssm/text:model=mamba2,length=1024,state_init=carry,size=d1024"
    "@model.encoder.d_model=4096@model.n_layers=64@training.mesh=data=1,model=8"
    "@training.batch_size=8@model.dtype=bfloat16",
)
"""The experiments in the variant of their default, and further models; fields of the
config that are changed follow, each after an ``@``."""

RECORDS = ROOT / "experiments" / "benchmarks" / "compilation.json"
PAGE = ROOT / "experiments" / "results" / "compilation.md"

_HEAD = """\
# Experiments compiled for GPUs and TPUs

The steps of every experiment at its full size, and of further models of
`longssm/text`, compiled ahead of time for eight devices by
`python -m benchmarks.compilation`; nothing was run. `compile s` is the time of tracing,
lowering and compiling the training step, which depends on what else the machine does,
`CPU s` the CPU time of all threads and child processes meanwhile. Memory is that of
each device: `memory MiB` of the training step, `temp MiB` of its intermediate values,
`evaluate MiB` of the evaluation step. Collectives and the bytes sent are those of one
training step. A batch marked `+` was rounded up to a multiple of the devices. Steps
marked `*` were compiled with `--quick`: without effort for a fast program, and
intermediate values in on-chip memory count as memory of the device.

"""


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("records", str(RECORDS), "JSON file of the records.")
    flags.DEFINE_string("page", str(PAGE), "Markdown file of the table.")
    flags.DEFINE_list("targets", list(TARGETS), "Targets, as `compile` takes them.")
    flags.DEFINE_spaceseplist(
        "experiments",
        list(EXPERIMENTS),
        "Of experiments/, PAPER/TASK[:variant][@field=value].",
    )
    flags.DEFINE_bool("quick", False, "Compile for TPUs in a fraction of the time.")
    flags.DEFINE_bool("again", False, "Compile cells that have a record again.")
    flags.DEFINE_float("timeout", 3600.0, "Seconds per cell.", lower_bound=1.0)


def main(argv):
    """Compiles what has no record yet; writes the records and the page."""
    del argv
    values = flags.FLAGS
    targets = [parse_target(text) for text in values.targets]
    file = Path(values.records)
    rows = json.loads(file.read_text()) if file.exists() else []
    by_cell = {(row["experiment"], row["target"]): row for row in rows}
    cells = [(name, target) for target in targets for name in values.experiments]
    for name, target in cells:
        cell = name, target.text
        if values.again or cell not in by_cell:
            logging.info("compiling %s for %s", *cell)
            by_cell[cell] = compile_cell(name, target, values.timeout, values.quick)
            rows = [by_cell[cell] for cell in sorted(by_cell)]
            # After each cell: an interrupted run is continued.
            file.write_text(json.dumps(rows, indent=1) + "\n")
    rows = [by_cell[cell] for cell in sorted(by_cell)]
    Path(values.page).write_text(page(rows))
    print(page(rows))


def compile_cell(
    name: str, target: Target, timeout: float, quick: bool = False
) -> dict[str, Any]:
    """Compiles an experiment for a target in a new process.

    Args:
      name: ``PAPER/TASK``, with ``:variant`` and ``@field=value`` where they are not
        those of the experiment.
      target: The target.
      timeout: Seconds after which it is ended.
      quick: As in `ssm_jax.aot.compile_program`.

    Returns:
      The record, with the published ``batch_size_of_config``; with ``error``, the last
      line of the process, if it failed.
    """
    experiment, *changes = name.split("@")
    task, _, variant = experiment.partition(":")
    path = f"experiments/{task}.py" + (f":{variant}" if variant else "")
    training = config_file.load(f"{ROOT}/{path}").training
    changed = dict(change.split("=", 1) for change in changes)
    parts = changed.get("training.accumulate") or training.get("accumulate", 1)
    unit = target.n_devices * int(parts)
    batch_size = int(changed.get("training.batch_size") or training.batch_size)
    rows = -(-batch_size // unit) * unit
    cell = {"experiment": name, "target": target.text}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "record.json"
        command = [
            *(sys.executable, "-m", "launch.compile"),
            *(f"--config={path}", f"--target={target.text}", f"--json={output}"),
            *(f"--config.{change}" for change in changes),
            f"--config.training.batch_size={rows}",
            *(["--quick"] if quick else []),
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
    return record | cell | {"batch_size_of_config": batch_size}


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns the Markdown page of the records, which names what has none.

    Args:
      records: What `compile_cell` returns.
    """
    rows = {(row["experiment"], row["target"]): row for row in records}
    for cell in itertools.product(EXPERIMENTS, TARGETS):
        missing = {"error": "not compiled yet"}
        rows.setdefault(cell, {"experiment": cell[0], "target": cell[1]} | missing)
    return _HEAD + table([rows[cell] for cell in sorted(rows)])


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns a Markdown table, a line for each record.

    Args:
      records: What `compile_cell` returns.
    """
    head = (
        *("experiment", "target", "parameters", "batch", "compile s", "CPU s"),
        *("memory MiB", "fits", "temp MiB", "collectives", "MiB sent", "evaluate MiB"),
    )
    return markdown([head, *map(_line, records)])


def _line(record):
    cell = record["experiment"], record["target"]
    if "error" in record:
        return (*cell, *[""] * 5, record["error"], *[""] * 4)
    step, evaluation = record["programs"][:2]
    is_rounded_up = record["batch_size"] > record["batch_size_of_config"]
    collectives = (step["traffic"] or {"collectives": []})["collectives"]
    kinds = ", ".join(
        f"{collective['count']} {collective['kind']}" for collective in collectives
    )
    fits = step["out_of_memory"] is None
    fits &= step["memory_bytes"] <= record["device_memory_bytes"]
    return (
        *cell,
        f"{record['parameters']:,}",
        f"{record['batch_size']:,}{'+' if is_rounded_up else ''}",
        f"{step['seconds']:.0f}{'*' if record['quick'] else ''}",
        f"{step['cpu_seconds']:.0f}",
        _mib(step["memory_bytes"]),
        "yes" if fits else "no",
        _mib(step["temp_bytes"]),
        kinds,
        _mib(sum(collective["bytes"] for collective in collectives)),
        _mib(evaluation["memory_bytes"]),
    )


def _mib(n):
    return f"{n / 2**20:,.1f}"


if __name__ == "__main__":
    app.run(main, define_flags)
