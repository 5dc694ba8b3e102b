"""Perplexity by length of all models that are recorded: figures 4 to 10 on one page.

    python -m launch.illustrate --figure=longssm/lengths --output=lengths.png

A panel a model, a colour a length of training; trained with states that go on from
batch to batch or with fresh ones. All are measured on windows from fresh states, in the
order of the text: what ``launch.report --record`` keeps in ``experiments/results``.

What the small models show, of bytes of novels, 2,000 steps each: an S5 trained on 16 or
32 tokens from fresh states is the worse the longer it reads, with states that go on it
is the better, at every length, and the best S5 is the one of 16 tokens: the paper's
claim. From 128 tokens on the two end alike. A GRU gains beyond its length from fresh
states too, and a Mamba loses nothing worth the name; states that go on are of use to
them where windows are shortest. The price is at the start of a text: in windows as long
as those of training, models that were trained with states that go on are behind.

Source: Wang, arXiv 2406.02080, 2024, figures 4 to 10, whose models are larger.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ssm_jax.plots.style import figure, plain

RECORDS = Path(__file__).parents[1] / "results" / "longssm"
_STARTS = {"previous": ("-", "states go on"), "zero": (":", "fresh states")}


class Curve(NamedTuple):
    """Perplexity of one model by the length of the windows that it reads."""

    model: str
    trained: int
    start: str
    lengths: list[int]
    perplexities: list[float]


def curves(records: Path = RECORDS) -> list[Curve]:
    """Reads the curves of all models that were trained on text in its order.

    Args:
      records: The folder of records.

    Raises:
      ValueError: There are none.
    """
    found = []
    for path in sorted(records.glob("text.*.jsonl")):
        row: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        model, trained, start, *more = row["variant"].split("+")
        lines = map(json.loads, path.read_text().splitlines())
        ways = [ln for ln in lines if (ln["start"], ln["order"]) == ("zero", "text")]
        if start in _STARTS and "shuffled" not in more:
            lengths = [line["length"] for line in ways]
            perplexities = [line["perplexity"] for line in ways]
            found.append(Curve(model, int(trained), start, lengths, perplexities))
    if not found:
        raise ValueError(
            f"there must be records of models by length, got none in {records}; "
            "`launch.evaluate --mode=length_extension`, then `launch.report --record`."
        )
    return found


def draw() -> Figure:
    """Draws them, one panel a model, all of one scale."""
    found = curves()
    models = sorted({curve.model for curve in found})
    windows = sorted({curve.trained for curve in found})
    shades = colormaps["viridis"]
    colours = {
        n: to_hex(shades(0.85 * i / len(windows))) for i, n in enumerate(windows)
    }
    drawing = figure(3.1 * len(models) + 0.6, 3.4)
    panels = drawing.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        for curve in found:
            if curve.model == model:
                line, _ = _STARTS[curve.start]
                axes.loglog(
                    curve.lengths,
                    curve.perplexities,
                    color=colours[curve.trained],
                    linestyle=line,
                    marker="o",
                    markersize=3,
                )
        ticks = sorted({n for curve in found for n in curve.lengths})[::-2]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_yticks(ticks := [4, 5, 6, 8, 12, 16], [str(tick) for tick in ticks])
        axes.minorticks_off()
        y = "perplexity" if axes is panels[0] else ""
        plain(axes, title=model, x="tokens of a window", y=y)
    for window, colour in colours.items():
        panels[0].plot([], [], color=colour, label=f"trained on {window}")
    for line, name in _STARTS.values():
        panels[0].plot([], [], color="black", linestyle=line, label=name)
    panels[0].legend(frameon=False, fontsize=8)
    return drawing
