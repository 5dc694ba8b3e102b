"""Runs a figure as a program: ``python -m experiments.PAPER.figures.NAME``."""

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags
from matplotlib.figure import Figure

from ssm_jax import plots
from ssm_jax.cli import app
from ssm_jax.cli.run_flags import PICTURES, check_writable
from ssm_jax.training.workdir import WorkDir


def run(draw: Callable[..., Figure]) -> None:
    """Draws a figure into ``--output``.

    Args:
      draw: Returns the figure. If it has an argument, it is called with ``--data``,
        the path of the data.
    """
    needs_data = bool(inspect.signature(draw).parameters)

    def define_flags() -> None:
        name = f"{Path(sys.argv[0]).stem}.png"
        flags.DEFINE_string("output", name, "File to write the figure to.")
        if needs_data:
            flags.DEFINE_string("data", None, "Path of the data.", required=True)

    def main(argv):
        del argv
        output = Path(flags.FLAGS.output)
        output.parent.mkdir(parents=True, exist_ok=True)
        check_writable("output", flags.FLAGS.output, PICTURES)
        drawing = draw(*([flags.FLAGS.data] if needs_data else []))
        print(*plots.save(drawing, output), sep="\n")

    main.__module__ = draw.__module__  # --help shows the docstring of the figure
    app.run(main, define_flags)


def labels(workdirs: Sequence[str]) -> list[str]:
    """Labels runs by the classes of their layers, such as ``DLR`` or ``S5-Attention``.

    Args:
      workdirs: Work dirs of runs of `SequenceModel`.

    Returns:
      A label for each; names of the directories if two of them have the same layers.
    """

    def name(block):
        blocks = block if isinstance(block, tuple) else (block,)
        layers = [each.layer.get("recurrence", each.layer) for each in blocks]
        return "-".join(layer.cls.split(":")[-1] for layer in layers)

    names = [name(WorkDir(path).config().model.block) for path in workdirs]
    if len(set(names)) < len(names):
        return [Path(path).name for path in workdirs]
    return names
