"""What the programs that compile for GPUs and TPUs, and run nothing, share."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from benchmarks.measurement import Row
from ssm_jax import aot
from ssm_jax.files import write_text


def placed(leaf: Any, device: Any) -> Any:
    """Returns the shape and dtype of an array on a device.

    Args:
      leaf: An array, or its shape and dtype.
      device: A device that programs can be compiled for.
    """
    sharding = SingleDeviceSharding(device)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def of_call(target: aot.Target, measured: Mapping[str, Any]) -> Row:
    """Returns what all rows of a call have in common.

    Args:
      target: What the programs are compiled for.
      measured: The environment from before the first program.
    """
    return {
        "target": target.text,
        "commit": measured["commit"],
        "jax": jax.__version__,
    }


def record(
    file: Path,
    suite: str,
    measured: Mapping[str, Any],
    rows: Sequence[Row],
    what: Callable[[Row], object],
) -> None:
    """Writes rows to a record, of which it keeps the rows of other programs.

    Args:
      file: JSON file of the record.
      suite: Name of the suite.
      measured: The environment in which the rows were compiled. That of the kept rows
        may be another, so that each row has its own commit and version of JAX; rows
        recorded before this was so have no commit.
      rows: What was compiled.
      what: Returns what a row is of: rows of the record with the same are replaced.
    """
    kept = json.loads(file.read_text())["rows"] if file.exists() else []
    replaced = {what(row) for row in rows}
    kept = [row for row in kept if what(row) not in replaced]
    found = {"suite": suite, "rows": [*kept, *rows]}
    write_text(file, json.dumps({**measured, **found}, indent=1) + "\n")
