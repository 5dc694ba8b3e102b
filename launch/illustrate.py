"""Draws a figure of a paper that is no figure of one run.

    python -m launch.illustrate --figure=etsmlp/proposition_1 --output=gradients.png

``--figure`` names a file of ``experiments`` that has a function ``draw``; what it shows
stands at the head of that file.
"""

import importlib
import inspect
from pathlib import Path

from absl import flags

from ssm_jax.cli import app
from ssm_jax.cli.outputs import PICTURES, check_writable
from ssm_jax.config import nearest

FIGURES = (
    "etsmlp/proposition_1",
    "fru/expressive",
    "fru/temperatures",
    "longssm/extrapolation",
    "longssm/lengths",
    "longssm/pretrained",
)


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("figure", None, "Which figure.", required=True)
    flags.DEFINE_string("output", "figure.png", "File for the picture.")
    flags.DEFINE_string("data", None, "File or folder of what is drawn, if needed.")


def main(argv):
    """Draws."""
    del argv
    name = flags.FLAGS.figure
    if name not in FIGURES:
        raise ValueError(
            f"`--figure` must be one of {', '.join(FIGURES)}, got {name!r}; "
            f"{nearest(name, FIGURES)}"
        )
    module = importlib.import_module(f"experiments.{name.replace('/', '.')}")
    needed = inspect.signature(module.draw).parameters
    if bool(needed) != (flags.FLAGS.data is not None):
        raise ValueError(
            f"`--data` must be {'a path' if needed else 'left out'} for {name}, got "
            f"{flags.FLAGS.data!r}; the head of experiments/{name}.py says of what."
        )
    output = Path(flags.FLAGS.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    check_writable("output", flags.FLAGS.output, PICTURES)
    module.draw(*filter(None, [flags.FLAGS.data])).savefig(output)
    print(output)


if __name__ == "__main__":
    app.run(main, define_flags)
