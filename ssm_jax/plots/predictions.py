"""Examples with the predictions of a model."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    GREEN,
    GREY,
    LABEL,
    ORANGE,
    PAGE,
    PURPLE,
    SMALL,
    figure,
    heading,
    legend,
    plain,
    wrap,
)

_WINDOW = 96  # steps that are distinguishable in a panel


def images(
    inputs: np.ndarray,
    targets: np.ndarray,
    predictions: np.ndarray,
    title: str,
    *,
    examples: str = "test images",
) -> Figure:
    """Plots images that were classified as sequences of pixels.

    Args:
      inputs: Pixels, ``(b, l, 1)``, with ``l`` a square number.
      targets: Classes, ``(b,)``.
      predictions: Probabilities of the classes, ``(b, classes)``.
      title: Name of the model.
      examples: What the images are.

    Returns:
      A figure with one column per image: the image above its class probabilities, under
      a green title if the prediction is correct and an orange one otherwise.
    """
    side = math.isqrt(inputs.shape[1])
    count, classes = len(inputs), predictions.shape[1]
    drawing = figure(PAGE, 1.7)
    panels = drawing.subplots(2, count, squeeze=False, height_ratios=(2, 1))
    for column in range(count):
        image, bars = panels[:, column]
        predicted, target = int(predictions[column].argmax()), int(targets[column])
        # Inverted, so that the background of a digit is white like the page.
        image.imshow(inputs[column, :, 0].reshape(side, side), cmap="gray_r")
        image.set_axis_off()
        correct = predicted == target
        colour = GREEN if correct else ORANGE
        text = f"{predicted}" if correct else f"{predicted}, is {target}"
        image.set_title(text, fontsize=LABEL, color=colour)
        colours = [colour if k == predicted else GREY for k in range(classes)]
        bars.bar(range(classes), predictions[column], color=colours)
        # The same scale for all images, so that the confidence can be compared.
        bars.set_ylim(0, 1)
        bars.set_yticks([])
        bars.set_xticks(range(0, classes, max(3, classes // 3)))
        bars.tick_params(labelsize=SMALL, length=2)
        bars.spines[["top", "right", "left"]].set_visible(False)
    heading(drawing, f"{title}\n{examples}; predicted class and probabilities")
    return drawing


def masks(
    inputs: np.ndarray,
    targets: np.ndarray,
    predictions: Mapping[str, np.ndarray],
    title: str,
) -> Figure:
    """Plots images with the classes of their pixels.

    Args:
      inputs: Pixels, ``(b, l, 1)``, with ``l`` a square number.
      targets: Classes, at most five, ``(b, l)``.
      predictions: Predicted classes of each model by name, ``(b, l)``.
      title: Name of the figure.

    Returns:
      A figure with one column per image: the image, the classes of its targets, and
      those that each model predicts. Class 0 is white.
    """
    side = math.isqrt(inputs.shape[1])
    colours = ListedColormap(["white", BLUE, ORANGE, GREEN, PURPLE])
    rows = {"image": inputs[..., 0], "target": targets, **predictions}
    side_inches = min(1.6, (PAGE - 0.3) / len(inputs))
    drawing = figure(side_inches * len(inputs) + 0.3, side_inches * len(rows) + 0.4)
    panels = drawing.subplots(len(rows), len(inputs), squeeze=False)
    for (name, values), line in zip(rows.items(), panels, strict=True):
        classes = {"cmap": colours, "vmin": 0, "vmax": colours.N - 1}
        style = {"cmap": "gray_r"} if name == "image" else classes
        for axes, value in zip(line, values.reshape(-1, side, side), strict=True):
            # Without interpolation, which would mix classes.
            axes.imshow(value, interpolation="nearest", **style)
            axes.set(xticks=[], yticks=[])
        line[0].set_ylabel(wrap(name, side_inches, LABEL), fontsize=LABEL)
    heading(drawing, title)
    return drawing


def sequences(
    targets: np.ndarray, predictions: np.ndarray, title: str, *, names: Sequence[str]
) -> Figure:
    """Plots the targets and the predictions of regression examples.

    Args:
      targets: ``(b, l, outputs)``; the first and the last output are plotted.
      predictions: ``(b, l, outputs)``.
      title: Name of the model.
      names: What each example is, ``b`` names.

    Returns:
      A figure with one row per example and output. Left: target and prediction over the
      last steps. Right: prediction over target at all steps.
    """
    _, length, outputs = targets.shape
    # A set, because a task with one output has no second one to plot.
    selected = [(i, k) for i in range(len(targets)) for k in sorted({0, outputs - 1})]
    end = np.arange(max(0, length - _WINDOW), length)
    drawing = figure(PAGE, 0.5 + 1.3 * len(selected))
    panels = drawing.subplots(len(selected), 2, squeeze=False, width_ratios=(3, 1))
    for (example, output), (steps, points) in zip(selected, panels, strict=True):
        target, prediction = (v[example, :, output] for v in (targets, predictions))
        steps.plot(
            end, target[end], color=BLUE, linewidth=2.2, alpha=0.5, label="target"
        )
        steps.plot(
            end, prediction[end], color=ORANGE, linewidth=0.9, label="prediction"
        )
        plain(steps, title=f"{names[example]}, output {output}")
        points.plot(target, prediction, ".", color=ORANGE, markersize=2)
        # Through a point among the data: the axes include it.
        mean = np.nanmean(target)
        points.axline(
            (mean, mean),
            slope=1,
            color=GREY,
            linewidth=0.7,
            label="prediction = target",
        )
        plain(points, y="prediction")
    panels[-1, 0].set_xlabel("step", fontsize=LABEL)
    panels[-1, 1].set_xlabel("target", fontsize=LABEL)
    for axes in panels[0]:
        legend(axes)
    heading(drawing, title)
    return drawing
