r"""Errors on ListOps-SubTrees by the height of the subtree and by its operator.

    python -m experiments.dlr.figures.error_by_height --output=errors.png \
        --data=runs/dlr,runs/dss

``--data`` lists work dirs of runs of ``experiments/dlr/listops_subtrees.py``, of which
the best checkpoint is evaluated on the test split. The errors are printed too, with the
number of subtrees of each height and operator.

A subtree has one more level than its highest argument, whose value it needs: the
figure shows how errors grow with each further step of the evaluation. At the published
lengths it shows the errors of local attention by height as well, from a run in the
authors' repository.

Source: Gupta, Mehta and Berant, arXiv 2212.00768, 2022, section 3.2 and the authors'
code.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.figures import labels, run
from ssm_jax.evaluation import restore
from ssm_jax.plots.style import GREY, PAGE, PALETTE, SMALL, figure, plain
from ssm_jax.tasks import ListOpsSubTrees, n_batches
from ssm_jax.tasks.listops.subtrees import heights, operators

OPERATORS = ("MIN", "MAX", "MED", "SM")
PUBLISHED = (
    0.0002, 0.0071, 0.0702, 0.1526, 0.1940, 0.2169, 0.2446, 0.2843, 0.3279, 0.3954,
    0.4911, 0.5893, 0.6940,
)  # fmt: skip
"""Part of the values that the authors' local attention misses, at heights 1 to 13."""


class Counts(NamedTuple):
    """Subtrees of a test split, counted by height, from 1, and by operator.

    Attributes:
      task: The task.
      subtrees: Number of subtrees, ``(heights, 4)``.
      errors: Number of those whose value is not predicted, ``(heights, 4)``.
    """

    task: ListOpsSubTrees
    subtrees: np.ndarray
    errors: np.ndarray


def count(workdir: str) -> Counts:
    """Evaluates the best checkpoint of a run on the test split.

    Args:
      workdir: Work dir of the run.

    Raises:
      FileNotFoundError: The work dir holds no run.
      ValueError: The run is on another task.
    """
    restored = restore(workdir)
    task, batch_size = restored.task, restored.training.batch_size
    if not isinstance(task, ListOpsSubTrees):
        raise ValueError(
            "`--data` must be of runs on ListOpsSubTrees, got "
            f"{type(task).__name__} in {workdir}; train "
            "experiments/dlr/listops_subtrees.py."
        )

    @jax.jit
    def predict(variables, inputs, mask):
        logits, _ = restored.model.apply(variables, inputs, mask=mask)
        return jnp.argmax(logits, -1)

    subtrees, errors = np.zeros((2, task.max_depth - 1, 4), np.int64)
    for index in range(n_batches(task, "test", batch_size) or 0):
        batch = task.batch("test", index, batch_size, seed=0)
        mask = batch.loss_mask
        predicted = np.asarray(predict(restored.variables, batch.inputs, batch.mask))
        kind = heights(batch.inputs)[mask] - 1, operators(batch.inputs)[mask] - 11
        np.add.at(subtrees, kind, 1)
        np.add.at(errors, kind, predicted[mask] != batch.targets[mask])
    return Counts(task, subtrees, errors)


def table(counts: Counts) -> str:
    """Formats the rate of errors of each height and the accuracy of each operator.

    Example:
      >>> task = ListOpsSubTrees(
      ...     min_length=4, max_length=9, length=9, max_depth=3, max_arguments=3
      ... )
      >>> subtrees = np.array([[10, 10, 10, 10], [0, 4, 4, 0]])
      >>> print(table(Counts(task, subtrees, subtrees // 4)))
      height    subtrees  error
           1          40  0.2000
           2           8  0.2500
      operator  subtrees  accuracy
           MIN        10  0.8000
           MAX        14  0.7857
           MED        14  0.7857
            SM        10  0.8000
      all             48  0.7917
    """
    lines = ["height    subtrees  error"]
    by_height = counts.subtrees.sum(1), counts.errors.sum(1)
    for height, (n, wrong) in enumerate(zip(*by_height, strict=True), 1):
        if n:
            lines.append(f"{height:6}{n:12,}  {wrong / n:.4f}")
    lines.append("operator  subtrees  accuracy")
    by_operator = counts.subtrees.sum(0), counts.errors.sum(0)
    for name, n, wrong in zip(OPERATORS, *by_operator, strict=True):
        lines.append(f"{name:>8}{n:10,}  {1 - wrong / max(n, 1):.4f}")
    n, wrong = counts.subtrees.sum(), counts.errors.sum()
    lines.append(f"all{n:15,}  {1 - wrong / n:.4f}")
    return "\n".join(lines)


def draw(data: str) -> Figure:
    """Plots the errors by height, the number of subtrees, and the accuracies."""
    counts_by_run = {workdir: count(workdir) for workdir in data.split(",")}
    first = next(iter(counts_by_run.values()))
    for name, counts in counts_by_run.items():
        if counts.task != first.task:
            raise ValueError(
                f"`--data` must be of runs on the same task, got {counts.task} in "
                f"{name}; draw a figure for each task."
            )
        print(f"{name}\n{table(counts)}")
    picture = figure(PAGE, 3.6)
    axes = picture.subplot_mosaic(
        [["errors", "operators"], ["subtrees", "operators"]],
        width_ratios=(3, 2),
        height_ratios=(3, 1),
    )
    errors, subtrees, by_operator = (
        axes[name] for name in ("errors", "subtrees", "operators")
    )
    n_by_height, n_by_operator = first.subtrees.sum(1), first.subtrees.sum(0)
    height = np.flatnonzero(n_by_height) + 1
    subtrees.bar(height, n_by_height[height - 1], color=GREY)
    width = 0.8 / len(counts_by_run)
    labelled = zip(labels(list(counts_by_run)), counts_by_run.values(), strict=True)
    for i, (name, counts) in enumerate(labelled):
        colour = PALETTE[i % len(PALETTE)]
        rate = counts.errors.sum(1)[height - 1] / n_by_height[height - 1]
        # A rate of zero has no place on a logarithmic axis.
        rate = np.where(rate > 0, rate, np.nan)
        errors.plot(height, rate, "o-", color=colour, label=name)
        accuracy = 1 - counts.errors.sum(0) / np.maximum(n_by_operator, 1)
        place = np.arange(4) + (i - (len(counts_by_run) - 1) / 2) * width
        by_operator.bar(place, accuracy, width, color=colour)
    if first.task.length == ListOpsSubTrees.length:
        published = range(1, len(PUBLISHED) + 1), PUBLISHED, "--"
        errors.plot(*published, color=GREY, label="local attention, authors")
    for panel in (errors, subtrees):
        panel.set_yscale("log")
        panel.yaxis.set_minor_formatter(NullFormatter())
    # Whole decades, so that one of them at least is labelled.
    errors.set_ylim(10 ** np.floor(np.log10(errors.get_ylim()[0])), 1)
    subtrees.set_ylim(bottom=1)
    errors.sharex(subtrees)
    errors.label_outer()
    subtrees.set_xticks(height)
    by_operator.set_ylim(0, 1)
    names = [f"{name}\n{n:,}" for name, n in zip(OPERATORS, n_by_operator, strict=True)]
    by_operator.set_xticks(range(4), names)
    plain(errors, title="part of the values missed")
    plain(subtrees, x="height of the subtree", y="subtrees")
    plain(by_operator, title="accuracy", x="operator and its subtrees")
    errors.legend(fontsize=SMALL, frameon=False, loc="lower right")
    return picture


if __name__ == "__main__":
    run(draw)
