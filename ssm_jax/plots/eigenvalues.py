"""Eigenvalues of layers, on the unit disc."""

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import BLUE, GREY, ORANGE, figure, plain


def eigenvalues(
    log_abs: np.ndarray,
    phase: np.ndarray,
    initial_log_abs: np.ndarray,
    initial_phase: np.ndarray,
    title: str,
) -> Figure:
    """Draws decays before and after training, and how fast they forget.

    Args:
      log_abs: ``log |lam|``, nats per step, ``(layers, ...)``.
      phase: Radians per step, ``(layers, ...)``.
      initial_log_abs: The first, before training.
      initial_phase: The second, before training.
      title: What the model is.

    Returns:
      A column a layer: the unit disc above; the steps after which ``1 / e`` of a state
      is left, over the angle, below.
    """
    layers = len(log_abs)
    drawing = figure(max(4.0, 3.4 * layers), 6.2)
    panels = drawing.subplots(2, layers, squeeze=False, height_ratios=(3, 2))
    times = ((initial_log_abs, initial_phase, GREY), (log_abs, phase, ORANGE))
    for layer in range(layers):
        disc, memory = panels[:, layer]
        turn = np.linspace(0, 2 * np.pi, 400)
        disc.plot(np.cos(turn), np.sin(turn), color=BLUE, linewidth=0.8)
        for (logs, angles, colour), label in zip(
            times, ("at the start", "trained"), strict=True
        ):
            log, angle = logs[layer].ravel(), angles[layer].ravel()
            lam = np.exp(log + 1j * angle)
            disc.scatter(lam.real, lam.imag, s=5, color=colour, label=label, lw=0)
            steps = 1 / np.maximum(-log, 1e-7)
            wrapped = np.angle(np.exp(1j * angle))
            memory.scatter(wrapped, steps, s=5, color=colour, lw=0)
        plain(disc, title=f"layer {layer}", x="Re λ", y="Im λ")
        disc.set_aspect("equal")
        plain(memory, x="angle of λ, radians per step", y="steps to 1/e, up to 10⁷")
        memory.set_yscale("log")
        memory.set_xlim(-np.pi, np.pi)
        memory.set_xticks([-np.pi, 0, np.pi], ["−π", "0", "π"])
    panels[0, 0].legend(frameon=False, fontsize=8, loc="center")
    drawing.suptitle(f"{title}: eigenvalues", fontsize=10)
    return drawing
