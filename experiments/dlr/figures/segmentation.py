r"""Predicted masks of Pathfinder-Segmentation.

    python -m experiments.dlr.figures.segmentation --output=segmentation.png \
        --data=runs/dlr,runs/dss

``--data`` lists work dirs of runs of ``experiments/dlr/pathfinder_segmentation.py`` on
images of one size, of which the best checkpoint is used; images that they read from a
prepared set are generated. The figure shows the first images of the test split, the
class of each pixel, and the classes that each run predicts: white for the background,
blue for class 1 and orange for class 2, the curve with both dots. The macro-F1 and the
balanced accuracy of these images are printed.

Source: Gupta, Mehta and Berant, arXiv 2212.00768, 2022, section 4.2; the paper shows
images with their masks.
"""

import dataclasses

import jax
import numpy as np
from matplotlib.figure import Figure

from experiments.figures import labels, run
from ssm_jax import plots
from ssm_jax.evaluation import restore
from ssm_jax.tasks import PathfinderSegmentation
from ssm_jax.tasks.base import Batch
from ssm_jax.training import loss_sums, metrics

N_IMAGES = 6


def predict(workdir: str) -> tuple[Batch, np.ndarray]:
    """Predicts the classes of the first test images.

    Args:
      workdir: Work dir of the run.

    Returns:
      The images and the logits of their pixels, ``(6, size * size, 3)``.

    Raises:
      FileNotFoundError: The work dir holds no run.
      ValueError: The run is on another task.
    """
    # The encoder of patches is a class of the experiments.
    restored = restore(workdir, packages=["experiments"])
    task = restored.task
    if not isinstance(task, PathfinderSegmentation):
        raise ValueError(
            "`--data` must be of runs on PathfinderSegmentation, got "
            f"{type(task).__name__} in {workdir}; train "
            "experiments/dlr/pathfinder_segmentation.py."
        )
    batch = dataclasses.replace(task, data_dir=None).batch("test", 0, N_IMAGES, seed=0)
    logits, _ = jax.jit(restored.model.apply)(restored.variables, batch.inputs)
    return batch, np.asarray(logits)


def draw(data: str) -> Figure:
    """Plots images, their classes, and the classes that each run predicts."""
    # The same run twice is drawn once.
    workdirs = list(dict.fromkeys(data.split(",")))
    predicted = map(predict, workdirs)
    predictions = dict(zip(labels(workdirs), predicted, strict=True))
    batch, _ = next(iter(predictions.values()))
    size = batch.inputs.shape[1]
    for name, (images, logits) in predictions.items():
        if images.inputs.shape != batch.inputs.shape:
            raise ValueError(
                "`--data` must be of runs on images of one size, got "
                f"{images.inputs.shape[1]} pixels in {name} and {size} "
                "in another; draw a figure for each size."
            )
        sums = loss_sums(
            "classification", logits, batch.targets, batch.loss_mask, "balanced"
        )
        values = metrics(sums)
        print(
            f"{name}: macro-F1 {values['macro_f1']:.4f}, balanced accuracy "
            f"{values['balanced_accuracy']:.4f}"
        )
    return plots.masks(
        batch.inputs,
        batch.targets,
        {name: logits.argmax(-1) for name, (_, logits) in predictions.items()},
        "Pathfinder-Segmentation: test images",
    )


if __name__ == "__main__":
    run(draw)
