"""The page ``experiments/results/beyond.md``: one step beyond each paper."""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import comparisons, extension, result_tables
from experiments.comparisons import ERRORS, Comparison
from experiments.fru import parallel
from experiments.records import BENCHMARKS, machine
from ssm_jax.cli import tables
from ssm_jax.cli.summary import Row, Summary, name_of, summaries

POWERS = BENCHMARKS / "powers.json"
POWERS_PICTURE = "dlr/powers.png"
CARRIED_PICTURE = "longssm/carried.png"

_CARRIED = re.compile(
    r"longssm/text:model=(dlr|ets|fru|gru),length=16,state_init=(carry|zero),rows=32,"
    "size=tiny"
)
_PAGE = """\
# One step beyond each paper

Questions that the papers leave open, at sizes that a CPU answers. Written by
`python -m experiments.ledger` from the records in this directory and in
`experiments/benchmarks`. A difference counts from {errors:g} standard errors on;
one seed has no standard error over seeds.

{parts}"""
_POWERS = """\
## DLR: exact powers of the decays

Does it matter how the powers of the decays are formed? Three evaluations of the same
stored parameters: `exact`, the phase in fixed point, as everywhere in this library;
`exponentials`, `exp(l log lambda)` in float32 as in the authors' code; `products`, one
more multiplication by the decay for each step, as in a scan. `float64` is what the
rounding of the stored parameters leaves. `error` is the largest error of the kernel of
DLR as initialized, relative to its largest tap; its decays end it before the longest
lengths. `distance` is the squared distance from a single tap of the kernel of a shift
by 7/8 of the length, by DLR-prod with modes that do not decay and weights in closed
form. No model is trained.

    python -m benchmarks --suite=powers

Measured on {machine}.

{table}
{conclusion}

![Errors by length and evaluation]({picture})
"""
_LANGUAGE = """\
## CES: a causal language model

The paper on ETSMLP has bidirectional layers for classification; its causal language
models are timed only. Does smoothing with one mode per channel predict text as well as
other recurrences? Models of the reduced size, trained on windows of 16 bytes of novels,
with the same width, depth, feed-forward layers, text and steps. The number of
parameters is not the same.

    python -m launch.train --data_dir=DATA --workdir=RUN \\
        --config=experiments/longssm/text.py:{variant}

{table}
{compared}
With one mode per channel the perplexity of CES is below that of the FRU and above those
of DLR and the GRU, whether trained with carried or from zero states.

A product readout, by which DLR shifts over long ranges, gives CES no other kernels: the
product of the real and the imaginary part of a single mode is a single mode again, with
twice the phase and the decay. [The page](../../docs/papers/beyond.md) shows it.
"""
_STATES = """\
## LongSSM: carried states of DLR, CES, FRU and GRU

Do other recurrences than S5 and Mamba extend their length if they are trained from
carried states? The language models above, evaluated by length with
`launch.evaluate --mode=length_extension --lengths=16,32,128,1024,8192,32768`. The FRU
has a horizon of 1,024 steps and is evaluated beyond it.

Trained with carried states, DLR, CES and GRU extend strongly to 32,768 bytes with all
seeds. The FRU extends with one of three, weakly: from the trained length to the longest
windows its loss changes by less than 0.001 nats. At the trained length it is above that
after training from zero states, and at the longest windows below it, where that has
risen.

{states}
{conclusion}
{by_length}
![Perplexity by length: columns are models, rows evaluations]({picture})
"""


def page(rows: Sequence[Row]) -> str:
    """Returns the page.

    Args:
      rows: All records.
    """
    carried = [row for row in rows if is_carried(row)]
    solved, on_gpu = map(_read, (parallel.RECORD, parallel.RECORD_OF_GPU))
    parts = [powers(_read(POWERS)), parallel.section(solved, on_gpu)]
    if carried:
        parts.insert(1, language(carried))
        parts.append(states(carried))
    return _PAGE.format(errors=ERRORS, parts="\n".join(parts))


def is_carried(row: Row) -> bool:
    """Whether a record is of a run that only this page shows by length."""
    return bool(_CARRIED.fullmatch(name_of(row)))


def powers(record: Mapping[str, Any]) -> str:
    """Returns the section of the powers of decays.

    Args:
      record: What the suite `powers` of `benchmarks` writes by ``--output``.
    """
    head = ("steps", "evaluation", "error", "states", "distance")
    rows = sorted(record["rows"], key=lambda row: row["length"])
    lines = [
        (
            f"{row['length']:,}",
            row["what"],
            f"{row['error']:.1e}" if row["error"] else "",
            f"{row['states']:,}",
            f"{row['left']:.1e}",
        )
        for row in rows
    ]
    sentences = []
    for key, what in (("error", "error"), ("left", "distance")):
        longest = [row for row in rows if row["length"] == rows[-1]["length"]]
        at = {row["what"]: row[key] for row in longest}
        others = (
            f"{at[name] / at['exact']:,.2g} ({name})"
            for name in ("exponentials", "products")
        )
        sentences.append(
            f"At {rows[-1]['length']:,} steps the {what} of the others in float32 is "
            f"that of `exact` times {' and '.join(others)}."
        )
    return _POWERS.format(
        machine=machine(record),
        table=tables.markdown([head, *lines]),
        conclusion=textwrap.fill(" ".join(sentences), 88),
        picture=POWERS_PICTURE,
    )


def language(rows: Sequence[Row]) -> str:
    """Returns the section of CES as a language model.

    Args:
      rows: Records of `is_carried`.
    """
    found = summaries(rows)
    of_ces = [each for each in found if "model=ets," in each.name]
    compared = [
        Comparison(ces, other)
        for ces in of_ces
        for other in found
        if other not in of_ces and _states(other) == _states(ces)
    ]
    sentence = comparisons.counted(
        compared, "perplexities of CES beside those of other recurrences"
    )
    lines = (
        comparisons.line(each, _states(each.result), _model(each.reference))
        for each in compared
    )
    table = tables.markdown([_COMPARED, *lines])
    return _LANGUAGE.format(
        variant=found[0].rows[0]["variant"],
        table=result_tables.smaller(found, found),
        compared=f"{sentence}\n\n{table}" if compared else "",
    )


def states(rows: Sequence[Row]) -> str:
    """Returns the section of carried states.

    Args:
      rows: Records of `is_carried`.
    """
    verdicts = [line[5] for line in extension.against_zero(rows)]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {verdict.replace('one seed', 'of one seed')}"
        for verdict in dict.fromkeys(verdicts)
    )
    sentence = (
        f"Of {len(verdicts)} models trained and evaluated with carried states, beside "
        f"the same from zero states, at {ERRORS:g} standard errors: {counts}."
    )
    return _STATES.format(
        states=extension.section(rows),
        conclusion=textwrap.fill(sentence, 88) + "\n" if verdicts else "",
        by_length=tables.by_length(rows),
        picture=CARRIED_PICTURE,
    )


_COMPARED = (
    "CES", "perplexity", "beside", "difference", "error", "in errors", "seeds", "is"
)  # fmt: skip


def _states(summary: Summary) -> str:
    return re.findall(r"state_init=(\w+)", summary.name)[0]


def _model(summary: Summary) -> str:
    return re.findall(r"model=(\w+)", summary.name)[0]


def _read(path):
    return json.loads(path.read_text())
