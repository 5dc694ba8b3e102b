"""Evaluates the model of a run from its work folder, on any number of devices.

    python -m launch.evaluate --workdir=runs/digits

Prints what was measured and writes it to ``evaluation.json`` in the folder, and what
the figures show to ``inspection.npz``; `launch.report` reads both.
"""

import json
from typing import Any, cast

from absl import flags

from launch import cli
from ssm_jax.evaluation import evaluate_run
from ssm_jax.tasks import Split

WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.", required=True)
SPLIT = flags.DEFINE_enum(
    "split", "test", ["train", "validation", "test"], "Which part of the data."
)
CHECKPOINT = flags.DEFINE_string(
    "checkpoint", "best", "Which checkpoint: best, latest, or the number of its step."
)
DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Folder of prepared data sets, if the run's has moved."
)


def main(argv):
    """Evaluates."""
    del argv
    which: Any = CHECKPOINT.value
    if which not in ("best", "latest"):
        if not which.isdigit():
            raise ValueError(
                f"`--checkpoint` must be best, latest or a step, got {which!r}."
            )
        which = int(which)
    result = evaluate_run(
        WORKDIR.value,
        which=which,
        split=cast(Split, SPLIT.value),
        data_dir=DATA_DIR.value,
    )
    print(json.dumps(result))


if __name__ == "__main__":
    cli.run(main)
