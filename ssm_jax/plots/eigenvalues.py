"""Eigenvalues of the layers of a model in the unit disc."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ssm_jax.plots.style import (
    BLUE,
    COLUMN,
    GREY,
    ORANGE,
    PAGE,
    figure,
    heading,
    legend,
    plain,
)

_COLUMNS = 4  # Panels in a row that remain legible on a page.


def eigenvalues(
    log_abs: np.ndarray,
    phase: np.ndarray,
    initial_log_abs: np.ndarray,
    initial_phase: np.ndarray,
    title: str,
) -> Figure:
    """Plots eigenvalues and their time constants, before and after training.

    Args:
      log_abs: ``log |lam|``, nats per step, ``(layers, ...)``.
      phase: ``arg lam``, radians per step, ``(layers, ...)``.
      initial_log_abs: ``log |lam|`` before training.
      initial_phase: ``arg lam`` before training.
      title: Name of the model.

    Returns:
      A figure with two panels per layer, four layers beside each other. Top: the
      eigenvalues, and what is visible of the unit circle. Bottom: the number of steps
      after which a state has decayed to ``1 / e``, over the phase.
    """
    layers = len(log_abs)
    columns, rows = min(layers, _COLUMNS), -(-layers // _COLUMNS)
    drawing = figure(min(PAGE, max(COLUMN, 2.2 * columns)), 4.2 * rows)
    # `squeeze=False` keeps two axes of panels also for a single layer.
    panels = drawing.subplots(
        2 * rows, columns, squeeze=False, height_ratios=(3, 2) * rows
    )
    for axes in panels[-2:, (layers - 1) % columns + 1 :].flat:
        axes.remove()
    decays = ((initial_log_abs, initial_phase, GREY), (log_abs, phase, ORANGE))
    for layer in range(layers):
        row, column = divmod(layer, columns)
        disc, memory = panels[2 * row : 2 * row + 2, column]
        names = ("Im λ", "steps to 1/e") if column == 0 else ("", "")
        # So many points that an arc of it is round as well.
        circle = np.linspace(0, 2 * np.pi, 4001)
        shown, angles = [], []
        disc.plot(
            np.cos(circle), np.sin(circle), color=BLUE, linewidth=0.8, label="|λ| = 1"
        )
        for (logs, phases, colour), label in zip(
            decays, ("initial", "trained"), strict=True
        ):
            log, angle = logs[layer].ravel(), phases[layer].ravel()
            lam = np.exp(log + 1j * angle)
            shown.append(lam)
            disc.scatter(lam.real, lam.imag, s=5, color=colour, label=label, lw=0)
            # A decay of 1 has an infinite time constant, which no axis can show.
            steps = 1 / np.maximum(-log, 1e-7)
            # Training may move a phase beyond pi; eigenvalues depend on it modulo 2 pi.
            wrapped = np.angle(np.exp(1j * angle))
            memory.scatter(wrapped, steps, s=5, color=colour, lw=0)
            angles.append(wrapped)
        _fit_disc(disc, np.concatenate(shown))
        plain(disc, title=f"layer {layer}", x="Re λ", y=names[0])
        memory.set_yscale("log")
        if np.ptp(np.concatenate(angles)) > np.pi / 2:
            memory.set_xlim(-np.pi, np.pi)
            memory.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
        else:
            memory.xaxis.set_major_locator(MaxNLocator(3))
        plain(memory, x="arg λ, radians per step", y=names[1])
    legend(panels[0, 0], below=True)
    heading(
        drawing, f"{title}\neigenvalues λ of the layers; time constants up to 10⁷ steps"
    )
    return drawing


def _fit_disc(axes: Axes, lam: np.ndarray) -> None:
    """Shows the unit disc, or the square of eigenvalues that lie near its edge."""
    # Otherwise the unit circle is drawn as an ellipse.
    axes.set_aspect("equal")
    # With the point of the circle next to the largest of them, for its distance.
    largest = lam[np.abs(lam).argmax()]
    lam = np.append(lam, np.exp(1j * np.angle(largest)))
    real, imag = np.real(lam), np.imag(lam)
    side = 1.2 * max(np.ptp(real), np.ptp(imag), 1e-3)
    if side < 1:
        for limits, values in ((axes.set_xlim, real), (axes.set_ylim, imag)):
            middle = (values.min() + values.max()) / 2
            limits(middle - side / 2, middle + side / 2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(3))
