"""Examples with what a model predicts of them."""

import math

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import BLUE, GREEN, GREY, ORANGE, figure, plain


def images(
    inputs: np.ndarray, targets: np.ndarray, predictions: np.ndarray, title: str
) -> Figure:
    """Draws images that were read pixel by pixel, each over its probabilities.

    Args:
      inputs: Pixels, ``(b, l, 1)`` with ``l`` a square.
      targets: Classes, ``(b,)``.
      predictions: Probabilities, ``(b, classes)``.
      title: What the model is.

    Returns:
      A column an image; a green title where the prediction is right, else an orange
      one.
    """
    side = math.isqrt(inputs.shape[1])
    count, classes = len(inputs), predictions.shape[1]
    drawing = figure(1.05 * count, 2.5)
    panels = drawing.subplots(2, count, squeeze=False, height_ratios=(2, 1))
    for column in range(count):
        image, bars = panels[:, column]
        guess, target = int(predictions[column].argmax()), int(targets[column])
        image.imshow(inputs[column, :, 0].reshape(side, side), cmap="gray_r")
        image.set_axis_off()
        colour = GREEN if guess == target else ORANGE
        text = f"{guess}" if guess == target else f"{guess}, is {target}"
        image.set_title(text, fontsize=10, color=colour)
        shades = [colour if k == guess else GREY for k in range(classes)]
        bars.bar(range(classes), predictions[column], color=shades)
        bars.set_ylim(0, 1)
        bars.set_yticks([])
        bars.set_xticks(range(0, classes, 3))
        bars.tick_params(labelsize=6, length=2)
        bars.spines[["top", "right", "left"]].set_visible(False)
    drawing.suptitle(
        f"{title}: test images, predicted class and probabilities", size=10
    )
    return drawing


def sequences(targets: np.ndarray, predictions: np.ndarray, title: str) -> Figure:
    """Draws an example's targets and predictions, a row an output.

    Args:
      targets: ``(l, outputs)``; the first four outputs are drawn.
      predictions: ``(l, outputs)``.
      title: What the model is.

    Returns:
      Panels that share the axis of steps.
    """
    rows = min(4, targets.shape[1])
    drawing = figure(7.2, 0.9 + 1.05 * rows)
    panels = drawing.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for row, axes in enumerate(panels):
        axes.plot(targets[:, row], color=BLUE, linewidth=0.9, label="target")
        axes.plot(
            predictions[:, row], color=ORANGE, linewidth=0.7, ls="--", label="predicted"
        )
        plain(axes, y=f"output {row}")
    panels[-1].set_xlabel("step", fontsize=9)
    panels[0].legend(frameon=False, fontsize=8, ncols=2, loc="upper right")
    drawing.suptitle(f"{title}: a test example", fontsize=10)
    return drawing
