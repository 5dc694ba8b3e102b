"""Common style of the figures, with a palette for colour-blind readers."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE)
GREY = "#8c8c8c"


def figure(width: float, height: float) -> Figure:
    """Creates a figure of the given size in inches, with constrained layout."""
    # `Figure` instead of pyplot: no global state and no display.
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def plain(axes: Axes, *, title: str = "", x: str = "", y: str = "") -> Axes:
    """Removes the top and right spines, adds a light grid, and sets the labels."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    # Otherwise the grid is drawn over bars and images.
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(which="both", labelsize=8)
    return axes
