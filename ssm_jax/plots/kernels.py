"""Convolution kernels of trained layers."""

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import PALETTE, figure, plain


def convolution_kernels(kernels: np.ndarray, lags: np.ndarray, title: str) -> Figure:
    """Plots convolution kernels, with one column per layer and one row per channel.

    Args:
      kernels: ``(layers, channels, lags)``.
      lags: Lag of each tap in steps, ``(lags,)``; negative lags are in the future.
      title: Name of the model.

    Returns:
      A figure whose panels share the axis of lags.
    """
    layers, channels, _ = kernels.shape
    drawing = figure(max(4.8, 3.6 * layers), 0.9 + 1.05 * channels)
    # Only the lags are shared: amplitudes may differ by orders of magnitude.
    panels = drawing.subplots(channels, layers, sharex=True, squeeze=False)
    for (row, column), axes in np.ndenumerate(panels):
        kernel = kernels[column, row]
        colour = PALETTE[row % len(PALETTE)]
        axes.plot(lags, kernel, color=colour, linewidth=0.9)
        plain(axes, y=f"channel {row}")
        if row == 0:
            axes.set_title(f"layer {column}", fontsize=9, loc="left")
        if row == channels - 1:
            axes.set_xlabel("lag, steps", fontsize=9)
    drawing.suptitle(f"{title}: convolution kernels", fontsize=10)
    return drawing
