"""What a language model remembers, and the size of its states by position."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    GREY,
    PAGE,
    figure,
    heading,
    legend,
    line_style,
    plain,
)


def memory(found: Mapping[str, Any], title: str) -> Figure:
    """Plots the effective remembrance of a model, and the norms of its states.

    Args:
      found: The result of `ssm_jax.evaluation.evaluate_memory`.
      title: Name of the run.

    Returns:
      A figure with two panels; a vertical line marks the training length.
    """
    drawing = figure(PAGE, 2.5)
    distances, sizes = drawing.subplots(1, 2)
    distances.plot(
        found["starts"],
        found["effective_remembrance"],
        color=BLUE,
        marker="o",
        markersize=2.5,
    )
    distances.set_ylim(0, 1)
    plain(
        distances,
        title=f"Change of the prediction after {found['length']:,} tokens",
        x="first tokens left out",
        y="total variation",
    )
    for index, state in enumerate(found["states"]):
        sizes.loglog(
            found["positions"],
            state["norm"],
            label=f"state {state['name']}",
            markersize=2.5,
            **line_style(index),
        )
    for axes, place in (
        # What is left is as long as the texts of the training.
        (distances, found["length"] - found["trained"]),
        (sizes, found["trained"]),
    ):
        axes.axvline(place, color=GREY, linestyle="--", linewidth=1)
    plain(sizes, title="States", x="tokens read", y="norm")
    legend(sizes)
    heading(drawing, title)
    return drawing
