"""The record of kernels of DLR-prod that are a single tap, on the page of DLR."""

import json
from collections.abc import Mapping
from typing import Any

from experiments.records import BENCHMARKS, machine
from ssm_jax.cli import tables

RECORD = BENCHMARKS / "long_shift.json"

_SECTION = """\
## Kernels of a single tap by DLR-prod

With coarse and fine phases (`phases=coarse_fine`) and weights in closed form, the
kernel of DLR-prod is a shift by 7/8 of the length. `distance` is the sum of the squared
differences from a tap of 1 in float32; `kernel` is one kernel, `step` a training step
on Shift with 32 channels and a batch of 4; memory is that of temporary arrays and
results. The table is measured by `python -m benchmarks --suite=long_shift` on
{machine}; other processes on the machine add to the seconds.

{table}"""


def section(record: Mapping[str, Any]) -> str:
    """Returns the section of the page.

    Args:
      record: What the suite `long_shift` of `benchmarks` writes by ``--output``.

    Returns:
      Markdown, with one line of the table per length.
    """
    head = (
        "steps", "states", "distance", "kernel, s", "kernel, MB", "step, s", "step, MB"
    )  # fmt: skip
    lines = [
        (
            f"{row['length']:,}",
            f"{row['states']:,}",
            f"{row['left']:.1e}",
            f"{row['kernel_s']:.3f}",
            f"{row['kernel_bytes'] / 1e6:,.1f}",
            f"{row['step_s']:.1f}",
            f"{row['step_bytes'] / 1e6:,.0f}",
        )
        for row in record["rows"]
    ]
    return _SECTION.format(
        machine=machine(record),
        table=tables.markdown([head, *lines]),
    )


def recorded() -> str:
    """Returns the section of the committed record."""
    return section(json.loads(RECORD.read_text()))
