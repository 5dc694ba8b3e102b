"""The record of training language models by length, on the page of ETSMLP."""

import json
from collections.abc import Mapping
from typing import Any

from experiments.records import BENCHMARKS, machine
from ssm_jax.cli import tables

RECORD = BENCHMARKS / "throughput.json"
PICTURE = "etsmlp/throughput.png"
TITLE = "Training by length"

FACTOR = 1.5
"""Factor by which a model must be faster than another, beside other processes."""
MEMORY = 0.95
"""Part of the memory of another model that counts as less."""
_REFERENCE = "Transformer"
_SECTION = """\
## {title}

The question of figure 3 at a reduced size: causal language models of {parameters}
million parameters where the paper has 30, trained on one sequence at a time. Their
numbers of parameters are within a few percent but for the table of positions of the
Transformer, which grows with the length. Tokens per second are those of the gradient of
the loss, by the fastest of {repeats} timings, for which the models alternate; memory is
that of temporary arrays and results, in MiB; `ratio` is that to the Transformer of the
same length, whose attention is evaluated in blocks of queries. Measured by
`python -m benchmarks --suite=throughput --repeats={repeats} {lengths}` on
{machine}. Other processes on the machine add to the seconds, so that
speeds that differ by less than a factor of {factor:g} do not count as different.

{table}
{conclusion}

![Tokens per second and memory by length]({picture})
"""


def section(record: Mapping[str, Any]) -> str:
    """Returns the section of the page.

    Args:
      record: What the suite `throughput` of `benchmarks` writes by ``--output``.

    Returns:
      Markdown, with a line of the table per length and model.
    """
    rows = record["rows"]
    of = {(row["what"], row["length"]): row for row in rows}
    head = ("steps", "model", "tokens per second", "ratio", "memory", "ratio")
    lines = [_line(row, of[_REFERENCE, row["length"]]) for row in rows]
    millions = sorted({f"{row['parameters'] / 1e6:.1f}" for row in rows})
    return _SECTION.format(
        title=TITLE,
        parameters=" to ".join(dict.fromkeys([millions[0], millions[-1]])),
        repeats=record["repeats"],
        lengths=" ".join(f"--lengths={n}" for n in sorted({n for _, n in of})),
        factor=FACTOR,
        machine=machine(record),
        table=tables.markdown([head, *lines]),
        conclusion=_conclusion(of),
        picture=PICTURE,
    )


def recorded() -> str:
    """Returns the section of the committed record."""
    return section(json.loads(RECORD.read_text()))


def _line(row, reference):
    return (
        f"{row['length']:,}",
        row["what"],
        f"{row['tokens_a_second']:,.0f}",
        f"{row['tokens_a_second'] / reference['tokens_a_second']:.2f}",
        f"{row['step_bytes'] / 2**20:,.0f}",
        f"{row['step_bytes'] / reference['step_bytes']:.2f}",
    )


def _conclusion(of):
    """The lengths at which each model trains faster than the Transformer."""
    lengths = sorted({length for _, length in of})
    sentences = []
    for name in dict.fromkeys(name for name, _ in of):
        if name == _REFERENCE:
            continue
        faster = [
            n
            for n in lengths
            if of[name, n]["tokens_a_second"]
            >= FACTOR * of[_REFERENCE, n]["tokens_a_second"]
        ]
        smaller = [
            n
            for n in lengths
            if of[name, n]["step_bytes"] <= MEMORY * of[_REFERENCE, n]["step_bytes"]
        ]
        sentences.append(
            f"- {name}: at least {FACTOR:g} times as fast as the Transformer at "
            f"{_listed(faster)} steps, at least {1 - MEMORY:.0%} less memory at "
            f"{_listed(smaller)}."
        )
    return "\n".join(sentences)


def _listed(lengths):
    return ", ".join(f"{n:,}" for n in lengths) or "none of these"
