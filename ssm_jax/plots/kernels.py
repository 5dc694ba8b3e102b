"""Convolution kernels of trained layers."""

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import COLUMN, PAGE, PALETTE, SMALL, figure, heading, plain

_COLUMNS = 4  # Panels in a row whose titles fit on a page.


def convolution_kernels(
    kernels: np.ndarray,
    lags: np.ndarray,
    title: str,
    *,
    channels: np.ndarray | None = None,
    energies: np.ndarray | None = None,
) -> Figure:
    """Plots convolution kernels, with a column per layer, the most energy first.

    Args:
      kernels: ``(layers, channels, lags)``.
      lags: Lag of each tap in steps, ``(lags,)``; negative lags are in the future.
      title: Name of the model.
      channels: Numbers of the channels, ``(layers, channels)``; None means in order.
      energies: What the panels of a layer are sorted by and labelled with, the share of
        each kernel in the squares of all of the layer, ``(layers, channels)``. None
        means the sums of squares of the kernels that are given, without labels.

    Returns:
      A figure whose panels share the axis of lags, with four layers beside each other.
    """
    n_layers, n_channels, _ = kernels.shape
    if channels is None:
        channels = np.tile(np.arange(n_channels), (n_layers, 1))
    order = np.argsort(
        -(np.square(kernels).sum(-1) if energies is None else energies), stable=True
    )
    columns, blocks = min(n_layers, _COLUMNS), -(-n_layers // _COLUMNS)
    rows = n_channels * blocks
    drawing = figure(min(PAGE, max(COLUMN, 2.2 * columns)), 0.6 + 0.85 * rows)
    # Only the lags are shared: amplitudes may differ by orders of magnitude.
    panels = drawing.subplots(rows, columns, sharex=True, squeeze=False)
    for (place, column), axes in np.ndenumerate(panels):
        block, row = divmod(place, n_channels)
        layer = block * columns + column
        if layer >= n_layers:
            axes.remove()
            continue
        shown = order[layer, row]
        colour = PALETTE[row % len(PALETTE)]
        axes.plot(lags, kernels[layer, shown], color=colour, linewidth=0.8)
        label = f"layer {layer}, channel {channels[layer, shown]}"
        if energies is not None:
            label += f": {energies[layer, shown]:.0%}"
        plain(axes, x="lag, steps" if place == rows - 1 else "")
        axes.set_title(label, fontsize=SMALL, loc="left")
    shares = "" if energies is None else " and their share of the layer's energy"
    heading(drawing, f"{title}\nconvolution kernels{shares}")
    return drawing
