"""Perplexity by length, trained and evaluated with carried or with zero states.

    python -m experiments.longssm.figures.lengths --output=lengths.png

The question of the paper: does a model that is trained on short windows evaluate long
texts as well as one trained on long windows, and is it sufficient to carry states
between batches? As in the paper, models trained and evaluated with carried states are
compared with models trained and evaluated with zero states. Top: windows in the order
of the text, where carried states give one value for all lengths. Bottom: shuffled
windows, where carried states belong to another place of the text, and the values with
zero states are those of the top. Columns are models, colours training lengths.

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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from experiments import drawing
from experiments.longssm.text import Variant
from ssm_jax.plots.style import COLUMN, PAGE, SMALL, figure, plain
from ssm_jax.variants import parse_variant

RECORDS = Path(__file__).parents[2] / "results" / "longssm"
_WINDOW_STATES = {
    "carry": ("-", "trained and evaluated with carried states"),
    "zero": (":", "trained and evaluated from zero states"),
}
_ORDERS = {"text": "in order", "shuffled": "shuffled"}


class Curve(NamedTuple):
    """Perplexity of one model against the window length of the evaluation.

    Attributes:
      model: Name and size of the model.
      trained: Window length of training, in tokens.
      window_state: Initial state of the windows, in training and evaluation.
      order: Order of the windows in evaluation.
      lengths: Window lengths of the evaluation, in tokens.
      perplexities: Perplexity at each length, averaged over seeds.
    """

    model: str
    trained: int
    window_state: str
    order: str
    lengths: list[int]
    perplexities: list[float]


def curves(records: Path = RECORDS, size: str = "small") -> list[Curve]:
    """Reads the curves of all models evaluated with the window state of training.

    Args:
      records: Directory of the records.
      size: Size of the models.

    Raises:
      ValueError: There are no such records.
    """
    found: defaultdict[tuple[str, int, str, str], defaultdict[int, list[float]]]
    found = defaultdict(lambda: defaultdict(list))
    for path in sorted(records.glob("text.*.jsonl")):
        row: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        run = parse_variant(row["variant"], Variant)
        start = run.state_init
        if row.get("stale") or run.rows is None or run.order == "shuffled":
            continue
        if run.size != size:
            continue
        if start not in _WINDOW_STATES:
            continue
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [line for line in lines if line["split"] == "test"]
        for order in _ORDERS if lines else ():
            # The loss from zero states does not depend on the order of the windows.
            way = (start, order if start == "carry" else "text")
            at = {
                line["length"]: line["loss"]
                for line in lines
                if (line["window_state"], line["order"]) == way
            }
            curve = found[f"{run.model} {run.size}", run.length, start, order]
            for length in {line["length"] for line in lines}:
                # With carried states in order, one length is measured for all.
                curve[length].append(at.get(length, at[max(at)]))
    if not found:
        raise ValueError(
            f"`records` must hold runs of `rows=32` by length, got none in {records}; "
            "`launch.evaluate --mode=length_extension`, `experiments.ledger --record`."
        )
    # As in the tables, the perplexity of the mean loss over seeds.
    return [
        Curve(*key, sorted(at), [math.exp(statistics.mean(at[n])) for n in sorted(at)])
        for key, at in sorted(found.items())
    ]


def draw() -> Figure:
    """Plots all curves: one column per model, text order above, shuffled below."""
    return of_size("small")


def of_size(size: str) -> Figure:
    """Plots the curves of the models of a size.

    Args:
      size: The size, as in ``experiments/longssm/text.py``.
    """
    found = curves(size=size)
    models = sorted({curve.model for curve in found})
    windows = sorted({curve.trained for curve in found})
    shades = colormaps["viridis"]
    colours = {
        n: to_hex(shades(0.85 * i / len(windows))) for i, n in enumerate(windows)
    }
    drawing = figure(min(PAGE, max(COLUMN, 2.2 * len(models))), 4.6)
    panels = drawing.subplots(2, len(models), sharex=True, sharey="col", squeeze=False)
    for curve in found:
        row, column = [*_ORDERS].index(curve.order), models.index(curve.model)
        one_height = (curve.window_state, curve.order) == ("carry", "text")
        panels[row][column].semilogx(
            curve.lengths,
            curve.perplexities,
            color=colours[curve.trained],
            linestyle=_WINDOW_STATES[curve.window_state][0],
            marker=None if one_height else "o",
            markersize=3,
        )
    ticks = sorted({n for curve in found for n in curve.lengths})
    for (row, column), axes in np.ndenumerate(panels):
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=45)
        axes.minorticks_off()
        plain(
            axes,
            title=f"{models[column]}, {[*_ORDERS.values()][row]}",
            x="tokens of a window" if row else "",
            y="" if column else "perplexity",
        )
    for window, colour in colours.items():
        panels[0][0].plot([], [], color=colour, label=f"trained on {window}")
    for line, name in _WINDOW_STATES.values():
        panels[0][0].plot([], [], color="black", linestyle=line, label=name)
    drawing.legend(loc="outside lower center", frameon=False, ncols=2, fontsize=SMALL)
    return drawing


if __name__ == "__main__":
    drawing.run(draw)
