"""Sections of the pages of the papers that follow their tables."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from experiments import beyond, extension, single_tap, throughput
from experiments.dlr import atomic
from ssm_jax.cli import tables
from ssm_jax.cli.summary import Footnotes, Row, number, shown, summaries

PICTURE = "longssm/lengths.png"
LEARNING_PICTURE = "fru/learning.png"
ATOMIC_PICTURE = "dlr/atomic.png"
TREES_PICTURE = "dlr/error_by_height.png"
MASKS_PICTURE = "dlr/segmentation.png"
ATTENTION_MASKS_PICTURE = "dlr/segmentation_local_attention.png"
ATOMIC_MODELS = {
    "DLR": "",
    "DLR, 6 layers": ",n_layers=6",
    "DSS": ",model=dss",
    "attention, 2 layers": ",model=attention,n_layers=2",
}
UNITS = ("rnn", "lstm", "sru", "fru")

_ATOMIC = """\
## Atomic tasks

R2 of models of the reduced size (`dlr/atomic:task=...,size=small`), on all tasks, of
`length=128`, where those of the paper have 512 or 4,096; sequences of Reverse and Sort
have 256 steps, those of Select and SelectFixed 144.

{table}
Of 256 test sequences of each task that of the highest loss, and the prediction of one
layer of DLR of the reduced size, by step; R2 is that of the seed drawn, and dots are
the values to be selected. Drawn by `python -m experiments.dlr.figures.atomic`.

![Input, target and prediction of eleven tasks]({picture})

## Higher-order tasks

The runs of `size=small` above, by the height and the operator of each subtree (the part
of the values that is wrong; `RotaryAttention` is the local attention), and the masks
that they predict for the first test images. Drawn by
`python -m experiments.dlr.figures.error_by_height` and `segmentation`.

![Errors on ListOps-SubTrees by height and operator]({trees})

![Images, target and masks predicted by DLR and DSS]({masks})

![Images, target and masks predicted by local attention]({attention_masks})
"""
_LEARNING = """\
## Error by step

The curves of figures 6 to 8, of the units that were run: the part of the validation
split that is misclassified; one seed. Drawn by
`python -m experiments.fru.figures.learning`.

![Validation error by step of each unit]({picture})
"""
_STABILITY = """\
## Stability by learning rate

The runs of figure 7. The perplexity above is that of the step of the highest accuracy
in validation, which may hide that training is unstable; here it is that of the
validation split, which is measured four times in training, of each seed: at the last
step, and the worst after the first measurement. `rises` is the number of seeds whose
perplexity is higher in one of the measurements than in the one before.

{table}"""
_BY_LENGTH = """\
## Perplexity by length

Perplexity on windows of each length, measured by
`launch.evaluate --mode=length_extension` on an equal share of each document of a split;
`docs/papers/data.md` has where the texts, `novels`, are from.
Column `95 %` is the confidence interval of the perplexity at the maximum length over
documents (Student's t). Column `extends` classifies the evaluation from zero states:
beyond the training length the loss decreases with each longer window (strong), never
increases (weak), or increases (none); a change counts if its 95 % interval over
documents excludes 0. States are carried within spans of at least the maximum length and
reset between spans. Perplexities are those of the mean loss over seeds, per byte for
`size=small` and `size=tiny`.

![Perplexity by length: columns are models, rows evaluations]({picture})
"""


def _of_fru(rows: Sequence[Row]) -> str:
    return f"{_LEARNING.format(picture=LEARNING_PICTURE)}\n{_units(rows)}"


def _units(rows: Sequence[Row]) -> str:
    """The unexplained variance of each unit on each mixture of curves."""
    of_variant = {
        each.choices: each
        for each in summaries(rows)
        if each.rows[0]["experiment"] == "fru/mixture"
    }
    footnotes, lines = Footnotes(), []
    for size in ((), ("size=small",)):
        for curves in ("sines", "poly5", "poly10", "poly15"):
            of_units = [
                of_variant.get((f"curves={curves}", f"model={unit}", *size))
                for unit in UNITS
            ]
            if any(of_units):
                name = " ".join([curves, *size])
                lines.append(_missed(name, of_units, bool(size), footnotes))
    head = ("1 - R2", *(unit.upper() for unit in UNITS), "LSTM / FRU", "notes")
    parts = [
        "## Mixtures of curves: the part of the variance that each unit misses\n",
        tables.markdown([head, *lines]),
        *footnotes.listed(),
    ]
    return "\n".join(parts)


def _missed(name, of_units, small, footnotes):
    """Returns a line of the table of `_units`."""
    present = [summary for summary in of_units if summary]
    notes = [f"`*` is stale: {each.stale}" for each in present if each.stale]
    _, lstm, _, fru = of_units
    # A stale run used other data or another model than a run that is not stale.
    comparable = lstm and fru and lstm.stale == fru.stale
    ratio = (1 - lstm.mean) / (1 - fru.mean) if comparable else None
    # The paper makes this claim for its own sizes only.
    if ratio is not None and ratio < 100 and not small:
        notes.append(
            f"the FRU is {ratio:.1f} times below the LSTM, where the paper says that "
            "it is orders of magnitude below all others"
        )
    return (
        name,
        *(
            f"{1 - each.mean:.1e}" + ("*" if each.stale else "") if each else ""
            for each in of_units
        ),
        number(ratio, ".1f"),
        footnotes.mark(list(dict.fromkeys(notes))),
    )


def _atomic(rows: Sequence[Row]) -> str:
    """R2 of each model on each atomic task at the reduced size, and a picture."""
    found = {each.name: each for each in summaries(rows)}
    lines = [("task", *ATOMIC_MODELS)]
    for task in atomic.TASKS:
        names = (
            f"dlr/atomic:task={task}{model},size=small"
            for model in ATOMIC_MODELS.values()
        )
        lines.append(
            (task, *(shown(found[name]) if name in found else "" for name in names))
        )
    return _ATOMIC.format(
        table=tables.markdown(lines),
        picture=ATOMIC_PICTURE,
        trees=TREES_PICTURE,
        masks=MASKS_PICTURE,
        attention_masks=ATTENTION_MASKS_PICTURE,
    )


def _of_dlr(rows: Sequence[Row]) -> str:
    return f"{_atomic(rows)}\n{single_tap.recorded()}"


def _of_etsmlp(rows: Sequence[Row]) -> str:
    del rows
    return throughput.recorded()


def _curve(row: Row) -> list[float]:
    """The validation metric by step; infinite where it was not finite."""
    return [math.inf if value is None else value for value in row["curve"].values()]


def rises(row: Row) -> bool:
    """Whether the validation perplexity of a run rises between two measurements."""
    return any(after > before for before, after in itertools.pairwise(_curve(row)))


def _stability(rows: Sequence[Row]) -> str:
    """The last and the worst perplexity of each learning rate."""
    lines = []
    for each in summaries(rows):
        if "learning_rate=" in each.name and all("curve" in row for row in each.rows):
            curves = [*map(_curve, each.rows)]
            n_rising = sum(map(rises, each.rows))
            lines.append(
                (
                    each.name,
                    ", ".join(f"{curve[-1]:.2f}" for curve in curves),
                    ", ".join(f"{max(curve[1:]):.2f}" for curve in curves),
                    f"{n_rising} of {len(curves)}",
                )
            )
    head = ("experiment", "last", "worst", "rises")
    return _STABILITY.format(table=tables.markdown([head, *lines])) if lines else ""


def _of_longssm(rows: Sequence[Row]) -> str:
    rows = [row for row in rows if not beyond.is_carried(row)]
    measured = _BY_LENGTH.format(picture=PICTURE) + "\n" + tables.by_length(rows)
    extended = extension.section(rows)
    if extended:
        measured = f"## {extension.TITLE}\n\n{extended}\n{measured}"
    return "\n".join(filter(None, [_stability(rows), measured]))


MORE: Mapping[str, Callable[[Sequence[Row]], str]] = {
    "dlr": _of_dlr,
    "etsmlp": _of_etsmlp,
    "fru": _of_fru,
    "longssm": _of_longssm,
}
"""Sections that follow the tables of a paper, by paper."""
