"""Draws a figure of a paper that is no figure of one run.

    python -m launch.illustrate --figure=etsmlp/proposition_1 --output=gradients.png

``--figure`` names a file of ``experiments`` that has a function ``draw``; what it shows
stands at the head of that file.
"""

import importlib
import inspect
from pathlib import Path

from absl import flags

from launch import cli
from ssm_jax.config import nearest

FIGURE = flags.DEFINE_string("figure", None, "Which figure.", required=True)
OUTPUT = flags.DEFINE_string("output", "figure.png", "File for the picture.")
DATA = flags.DEFINE_string("data", None, "File or folder of what is drawn, if needed.")

FIGURES = (
    "etsmlp/proposition_1",
    "fru/expressive",
    "fru/temperatures",
    "longssm/extrapolation",
    "longssm/lengths",
    "longssm/pretrained",
)


def main(argv):
    """Draws."""
    del argv
    name = FIGURE.value
    if name not in FIGURES:
        raise ValueError(
            f"`--figure` must be one of {', '.join(FIGURES)}, got {name!r}; "
            f"{nearest(name, FIGURES)}"
        )
    module = importlib.import_module(f"experiments.{name.replace('/', '.')}")
    needed = inspect.signature(module.draw).parameters
    if bool(needed) != (DATA.value is not None):
        raise ValueError(
            f"`--data` must be {'a path' if needed else 'left out'} for {name}, got "
            f"{DATA.value!r}; the head of experiments/{name}.py says of what."
        )
    output = Path(OUTPUT.value)
    output.parent.mkdir(parents=True, exist_ok=True)
    cli.check_writable("output", OUTPUT.value, cli.PICTURES)
    module.draw(*filter(None, [DATA.value])).savefig(output)
    print(output)


if __name__ == "__main__":
    cli.run(main)
