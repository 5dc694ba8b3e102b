"""The first examples of a batch, before any training."""

import math

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.plots.style import (
    BLUE,
    COLUMN,
    GREEN,
    ORANGE,
    PURPLE,
    SMALL,
    figure,
    heading,
    legend,
    plain,
    wrap,
)

_IMAGES, _SERIES, _FEATURES = 6, 3, 4


def batch(
    inputs: np.ndarray, targets: np.ndarray, mask: np.ndarray | None, title: str
) -> Figure:
    """Draws the first examples of a batch of vectors.

    Args:
      inputs: ``(b, l, d_input)``. One feature and a square length are drawn as an
        image, others as lines over the steps, at most four features.
      targets: Targets of the batch; a class is shown above its example.
      mask: False at padding, ``(b, l)``, where nothing is drawn. None means none.
      title: Name of the task.

    Raises:
      ValueError: The inputs are tokens or pairs.
    """
    if inputs.ndim != 3:
        raise ValueError(
            "`inputs` must be vectors, (b, l, d_input), to be drawn, got "
            f"{inputs.shape}; tokens and pairs have no picture."
        )
    image = is_image(inputs)
    count = min(len(inputs), _IMAGES if image else _SERIES)
    names = [f"class {y}" if targets.ndim == 1 else "" for y in targets[:count]]
    drawing = figure(COLUMN, 1.1 if image else 1.0 * count + 0.2)
    panels = drawing.subplots(*((1, count) if image else (count, 1)), squeeze=False)
    for row, (axes, name) in enumerate(zip(panels.ravel(), names, strict=True)):
        if image:
            side = math.isqrt(inputs.shape[1])
            axes.imshow(inputs[row].reshape(side, side), cmap="gray_r")
            axes.set_axis_off()
            axes.set_title(wrap(name, COLUMN / count, SMALL), fontsize=SMALL)
            continue
        there = slice(None) if mask is None else mask[row]
        steps = np.arange(inputs.shape[1])[there]
        colours = (BLUE, ORANGE, GREEN, PURPLE)
        for feature, colour in zip(range(inputs.shape[2]), colours, strict=False):
            values = inputs[row, there, feature]
            label = f"feature {feature}"
            axes.plot(steps, values, color=colour, linewidth=0.9, label=label)
        last = row == count - 1
        plain(axes, title=name, x="step" if last else "", y=f"example {row}")
    if not image:
        legend(panels[0, 0], below=True)  # Where it covers no line.
    heading(drawing, title, size=SMALL)
    return drawing


def is_image(inputs: np.ndarray) -> bool:
    """Whether sequences ``(b, l, d_input)`` are those of the pixels of a square."""
    return inputs.shape[-1] == 1 and math.isqrt(inputs.shape[1]) ** 2 == inputs.shape[1]
