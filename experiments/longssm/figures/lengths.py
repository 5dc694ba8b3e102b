"""Perplexity by length, trained with carried or from zero states.

    python -m experiments.longssm.figures.lengths --output=lengths.png

The question of the paper: does a model that is trained on short windows evaluate long
texts as well as one trained on long windows, and is it sufficient to carry states
between batches? Rows are evaluations: on top each window from a zero state; below
states carried over windows in shuffled order, so that they are those of another place
of the text. Carried over windows in the order of the text, the loss is the same at all
lengths, that of the longest windows. Columns are models, colours training lengths,
lines the states of the training.

Statements of the paper: training on longer windows is generally better, with carried
states too, but not necessary for a loss that does not increase with the length (section
4.1); and carried states improve on zero states (section 4.2). The results of the models
here are in the tables of ``experiments/results``, with intervals over documents.

The figure shows runs of ``size=small`` whose number of rows does not depend on the
length, ``rows=32``, on the test split, averaged over seeds; stale runs are excluded.
Two runs of one colour differ only in their states. Runs of different colours read the
same text in the same rows, but longer windows have fewer steps, so that their
difference is not due to the length alone.

For each of ``s5``, ``mamba`` and ``gru``, 16, 32 and 128, ``carry`` and ``zero``, and
three seeds::

    VARIANT=model=s5,length=16,state_init=carry,rows=32,size=small
    python -m launch.train --config=experiments/longssm/text.py:$VARIANT \
        --data_dir=FOLDER --workdir=runs/s5 --config.training.seed=0
    python -m launch.evaluate --workdir=runs/s5
    python -m launch.evaluate --workdir=runs/s5 --mode=length_extension \
        --lengths=16,32,128,1024,8192,32768
    python -m experiments.ledger --record=runs/s5

Source: Wang, arXiv 2406.02080, 2024, figures 4 to 6 and 8, whose models are larger.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.figures import run
from experiments.longssm.text import Variant
from ssm_jax.plots.style import COLUMN, PAGE, PALETTE, SMALL, figure, plain
from ssm_jax.variants import parse_variant

RECORDS = Path(__file__).parents[2] / "results" / "longssm"
ROWS = 32
"""Rows of a batch of the runs that are shown."""
_TRAINED = {"carry": ("-", "with carried states"), "zero": (":", "from zero states")}
"""Lines and names of the states of the training."""
_EVALUATIONS = {
    ("zero", "text"): "windows\nfrom zero states",
    ("carry", "shuffled"): "shuffled\nwindows, carried states",
}
"""Labels by the initial states and the order of the windows of an evaluation."""
_NAMES = {
    "dlr": "DLR", "ets": "CES", "fru": "FRU", "gated_delta_net": "Gated DeltaNet",
    "gru": "GRU", "hybrid": "hybrid", "mamba": "Mamba", "mamba2": "Mamba-2", "s5": "S5",
}  # fmt: skip


class Curve(NamedTuple):
    """Perplexity of one model against the window length of the evaluation.

    Attributes:
      model: Name of the model.
      trained: Window length of training, in tokens.
      state_init: Initial states of training, ``"carry"`` or ``"zero"``.
      evaluation: Initial states and order of the windows of the evaluation.
      lengths: Window lengths of the evaluation, in tokens.
      perplexities: Perplexity at each length, averaged over seeds.
    """

    model: str
    trained: int
    state_init: str
    evaluation: tuple[str, str]
    lengths: list[int]
    perplexities: list[float]


def curves(
    records: Path = RECORDS,
    size: str = "small",
    models: Collection[str] | None = None,
) -> list[Curve]:
    """Reads the curves of models and of all evaluations.

    Args:
      records: Directory of the records.
      size: Size of the models.
      models: The models, as in ``experiments/longssm/text.py``; None: all.

    Raises:
      ValueError: There are no such records.
    """
    losses: defaultdict[
        tuple[str, int, str, tuple[str, str]], defaultdict[int, list[float]]
    ]
    losses = defaultdict(lambda: defaultdict(list))
    for path in sorted(records.glob("text.*.jsonl")):
        row: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        run = parse_variant(row["variant"], Variant)
        # Without other choices, such as a learning rate.
        choices = (run.model, run.length, run.state_init)
        if row.get("stale") or run != Variant(*choices, rows=ROWS, size=run.size):
            continue
        if run.size != size or run.state_init not in _TRAINED:
            continue
        if models is not None and run.model not in models:
            continue
        for line in map(json.loads, path.read_text().splitlines()):
            evaluation = (line["window_state"], line["order"])
            if line["split"] == "test" and evaluation in _EVALUATIONS:
                curve = losses[run.model, run.length, run.state_init, evaluation]
                curve[line["length"]].append(line["loss"])
    if not losses:
        raise ValueError(
            f"`records` must hold runs of `rows={ROWS}` by length, got none in "
            f"{records}; "
            "`launch.evaluate --mode=length_extension`, `experiments.ledger --record`."
        )
    # As in the tables, the perplexity of the mean loss over seeds.
    return [
        Curve(
            *key,
            sorted(by_length),
            [math.exp(statistics.mean(by_length[n])) for n in sorted(by_length)],
        )
        for key, by_length in sorted(losses.items())
    ]


def draw() -> Figure:
    """Plots all curves: one column per model, one row per evaluation."""
    return draw_size("small")


def draw_size(size: str, models: Collection[str] | None = None) -> Figure:
    """Plots the curves of models of a size.

    Args:
      size: The size, as in ``experiments/longssm/text.py``.
      models: As in `curves`.
    """
    all_curves = curves(size=size, models=models)
    names = sorted({curve.model for curve in all_curves})
    windows = sorted({curve.trained for curve in all_curves})
    colours = dict(zip(windows, PALETTE, strict=False))
    drawing = figure(min(PAGE, max(COLUMN, 2.2 * len(names))), 4.6)
    panels = drawing.subplots(2, len(names), sharex=True, sharey="col", squeeze=False)
    for curve in all_curves:
        row = [*_EVALUATIONS].index(curve.evaluation)
        panels[row][names.index(curve.model)].semilogx(
            curve.lengths,
            curve.perplexities,
            color=colours[curve.trained],
            linestyle=_TRAINED[curve.state_init][0],
            marker="o",
            markersize=3,
        )
    shortest, longest = (
        f(n for curve in all_curves for n in curve.lengths) for f in (min, max)
    )
    ticks = [shortest * 8**i for i in range(9) if shortest * 8**i <= longest]
    labels = [*_EVALUATIONS.values()]
    for (row, column), axes in np.ndenumerate(panels):
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=45)
        axes.minorticks_off()
        plain(
            axes,
            title="" if row else _NAMES[names[column]],
            x="tokens of a window" if row else "",
            y="" if column else f"perplexity of {labels[row]}",
        )
    for window, colour in colours.items():
        panels[0][0].plot([], [], color=colour, label=f"trained on {window} tokens")
    for state_init in sorted({curve.state_init for curve in all_curves}):
        line, name = _TRAINED[state_init]
        label = f"trained {name}"
        panels[0][0].plot([], [], color="black", linestyle=line, label=label)
    drawing.legend(loc="outside lower center", frameon=False, ncols=2, fontsize=SMALL)
    return drawing


if __name__ == "__main__":
    run(draw)
