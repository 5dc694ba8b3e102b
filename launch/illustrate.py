"""Draws a figure of a paper's theory.

    python -m launch.illustrate --figure=etsmlp/proposition_1 --output=gradients.png

``--figure`` names a file of ``experiments`` that has a function ``draw``; what it shows
stands at the head of that file.
"""

import importlib
from pathlib import Path

from absl import flags

from launch import cli
from ssm_jax.config import nearest

FIGURE = flags.DEFINE_string("figure", None, "Which figure.", required=True)
OUTPUT = flags.DEFINE_string("output", "figure.png", "File for the picture.")

FIGURES = ("etsmlp/proposition_1",)


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
    output = Path(OUTPUT.value)
    output.parent.mkdir(parents=True, exist_ok=True)
    module.draw().savefig(output)
    print(output)


if __name__ == "__main__":
    cli.run(main)
