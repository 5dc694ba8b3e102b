"""Eigenvalues of the layers of a model in the unit disc."""

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    COLUMN,
    GREY,
    ORANGE,
    PAGE,
    SMALL,
    TITLE,
    figure,
    plain,
)


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
      A figure with one column per layer. Top: the eigenvalues in the unit disc. Bottom:
      the number of steps after which a state has decayed to ``1 / e``, over the phase.
    """
    layers = len(log_abs)
    drawing = figure(min(PAGE, max(COLUMN, 2.2 * layers)), 4.4)
    # `squeeze=False` keeps two axes of panels also for a single layer.
    panels = drawing.subplots(2, layers, squeeze=False, height_ratios=(3, 2))
    decays = ((initial_log_abs, initial_phase, GREY), (log_abs, phase, ORANGE))
    for layer in range(layers):
        disc, memory = panels[:, layer]
        names = ("Im λ", "steps to 1/e") if layer == 0 else ("", "")
        circle = np.linspace(0, 2 * np.pi, 400)
        disc.plot(
            np.cos(circle), np.sin(circle), color=BLUE, linewidth=0.8, label="|λ| = 1"
        )
        for (logs, phases, colour), label in zip(
            decays, ("initial", "trained"), strict=True
        ):
            log, angle = logs[layer].ravel(), phases[layer].ravel()
            lam = np.exp(log + 1j * angle)
            disc.scatter(lam.real, lam.imag, s=5, color=colour, label=label, lw=0)
            # A decay of 1 has an infinite time constant, which no axis can show.
            steps = 1 / np.maximum(-log, 1e-7)
            # Training may move a phase beyond pi; eigenvalues depend on it modulo 2 pi.
            wrapped = np.angle(np.exp(1j * angle))
            memory.scatter(wrapped, steps, s=5, color=colour, lw=0)
        plain(disc, title=f"layer {layer}", x="Re λ", y=names[0])
        # Otherwise the unit circle is drawn as an ellipse.
        disc.set_aspect("equal")
        plain(memory, x="arg λ, radians per step", y=names[1])
        memory.set_yscale("log")
        memory.set_xlim(-np.pi, np.pi)
        memory.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
    panels[0, 0].legend(frameon=False, fontsize=SMALL, loc="center", markerscale=2)
    drawing.suptitle(
        f"{title}\neigenvalues λ of the layers; time constants up to 10⁷ steps",
        fontsize=TITLE,
    )
    return drawing
