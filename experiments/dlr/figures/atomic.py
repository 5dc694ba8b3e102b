r"""Input, target and prediction of the test sequence of the highest loss of each task.

    python -m experiments.dlr.figures.atomic --data=runs/shift,runs/cumsum \
        --output=atomic.png

``--data`` are the work dirs of evaluated runs of ``experiments/dlr/atomic.py``, a panel
each; of 256 test sequences, that of the highest loss. Above is the input, with dots at
the values that Select marks, and below are target and prediction at the last steps. Of
several outputs one is drawn: the delay of Shift by half of the length, the first entry
of the vectors of MIPS.

Source: Gupta, Mehta and Berant, arXiv 2212.00768, 2022, section 3.1.
"""

import numpy as np
from matplotlib.figure import Figure, SubFigure

from experiments.figures import run
from ssm_jax.plots.style import BLUE, GREEN, GREY, ORANGE, PAGE, SMALL, figure, plain
from ssm_jax.training import WorkDir

N_COLUMNS = 3
LAST = 128
"""Maximum number of steps of the lower part, so that they can be told apart."""


def draw(data: str) -> Figure:
    """Plots one panel per work dir.

    Args:
      data: Work dirs, joined by commas.

    Raises:
      ValueError: A work dir is not of an atomic task, or not evaluated.
    """
    works = [WorkDir(name) for name in data.split(",")]
    n_rows = -(-len(works) // N_COLUMNS)
    n_columns = min(N_COLUMNS, len(works))
    drawing = figure(PAGE / N_COLUMNS * n_columns, 1.9 * n_rows)
    panels = drawing.subfigures(n_rows, n_columns, squeeze=False).ravel()
    for work, panel in zip(works, panels, strict=False):
        _plot_panel(work, panel)
    lines = panels[0].axes[1].get_legend_handles_labels()
    drawing.legend(
        *lines, loc="outside lower center", frameon=False, ncols=2, fontsize=SMALL
    )
    return drawing


def _plot_panel(work: WorkDir, panel: SubFigure) -> None:
    """Plots one run."""
    config, evaluation = work.config(), work.read("evaluation.json")
    if config.experiment != "dlr/atomic" or not evaluation:
        raise ValueError(
            f"`--data` must be evaluated runs of dlr/atomic, got {work.path}; "
            "`python -m launch.evaluate --workdir=RUN` evaluates one."
        )
    arrays = work.read_arrays("inspection.npz")
    inputs, targets, predictions = (
        arrays[name][-1] for name in ("inputs", "targets", "predictions")
    )
    name = config.variant.split(",")[0].removeprefix("task=")
    vectors = name == "mips"
    # The first entry of the value, which follows query and key.
    x = inputs[:, 2 * config.task.d_vector if vectors else 0]
    output = 0 if vectors else targets.shape[1] // 2
    steps = np.arange(len(inputs))
    target_steps = steps[-len(targets) :][-LAST:]
    above, below = panel.subplots(2, 1)
    above.plot(steps, x, color=GREY, linewidth=0.6)
    if name.startswith("select"):
        marked = inputs[:, 1] == 1
        above.plot(steps[marked], x[marked], ".", color=GREEN, markersize=4)
    below.plot(
        target_steps,
        targets[-LAST:, output],
        color=BLUE,
        linewidth=2,
        alpha=0.5,
        label="target",
    )
    below.plot(
        target_steps,
        predictions[-LAST:, output],
        color=ORANGE,
        linewidth=0.9,
        label="prediction",
    )
    r2 = evaluation["r2"]
    plain(above, title=f"{name}: input")
    plain(below, title=f"R² of the split {r2:.2f}")


if __name__ == "__main__":
    run(draw)
