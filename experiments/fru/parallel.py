"""The section of the FRU in parallel of ``experiments/results/beyond.md``."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.records import BENCHMARKS, machine
from ssm_jax.cli import tables

RECORD = BENCHMARKS / "iterations.json"
RECORD_OF_GPU = BENCHMARKS / "iterations_gpu.json"
PICTURE = "fru/iterations.png"

_SECTION = """\
## FRU: all steps in parallel

How many iterations solve for all steps at once? An FRU with 60 frequencies, whose
horizon is the length, with its initial weights and with larger ones, and a GRU with 32
states, on normal inputs. An iteration evaluates all steps in parallel; `no` in column
`converged` means that the solver stopped and evaluated step by step. `error` is the
largest difference from the outputs step by step, relative to the largest output.

    python -m benchmarks --suite=iterations

Measured on {machine}.

{table}
{conclusion}

![Iterations by length and scale of the weights]({picture})

Is that faster than one step after another? On a GPU, {batch} sequences and FRUs with
{frequencies} frequencies, the outputs without their gradients; milliseconds:

    python -m benchmarks --suite=iterations --lengths={length} \\
        --options=batch={batch},frequencies={frequencies}

Measured on {gpu}.

{timed}"""


def section(record: Mapping[str, Any], on_gpu: Mapping[str, Any]) -> str:
    """Returns the section.

    Args:
      record: What the suite `iterations` of `benchmarks` writes by ``--output``.
      on_gpu: What it writes on a GPU, for one length, with ``--options``.
    """
    rows = record["rows"]
    names = list(dict.fromkeys(row["what"] for row in rows))
    ordered = sorted(rows, key=lambda row: (names.index(row["what"]), row["length"]))
    head = ("unit", "steps", "iterations", "converged", "error")
    lines = [
        (
            row["what"],
            f"{row['length']:,}",
            str(row["iterations"]),
            "yes" if row["converged"] else "no",
            f"{row['error']:.1e}",
        )
        for row in ordered
    ]
    sentences = [
        f"- {name}: {_converged([*of])}."
        for name, of in itertools.groupby(ordered, lambda row: row["what"])
    ]
    return _SECTION.format(
        machine=machine(record),
        table=tables.markdown([head, *lines]),
        conclusion="\n".join(sentences),
        picture=PICTURE,
        gpu=machine(on_gpu),
        length=on_gpu["rows"][0]["length"],
        timed=_timed(on_gpu["rows"]),
        **on_gpu["options"],
    )


def _timed(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of the times in parallel and step by step."""
    head = ("unit", "iterations", "in parallel", "step by step", "ratio")
    lines = [
        (
            row["what"],
            str(row["iterations"]),
            f"{1e3 * row['iterations_s']:.1f}",
            f"{1e3 * row['steps_s']:.1f}",
            f"{row['iterations_s'] / row['steps_s']:.2f}",
        )
        for row in rows
    ]
    return tables.markdown([head, *lines])


def _converged(rows: Sequence[Mapping[str, Any]]) -> str:
    """The iterations of a unit at its lengths, in order."""
    solved = [row for row in rows if row["converged"]]
    if not solved:
        return "the iterations converge at no length"
    counts = [str(row["iterations"]) for row in (solved[0], solved[-1])]
    found = f"{counts[0]} iterations at {solved[0]['length']:,} steps"
    if len(solved) > 1:
        found += f" and {counts[1]} at {solved[-1]['length']:,}"
    return found + ("" if len(solved) == len(rows) else "; not at every length")
