"""Evaluates the model of a run from its work folder, on any number of devices.

    python -m launch.evaluate --workdir=runs/digits

    python -m launch.evaluate --workdir=runs/s5 --mode=length_extension

Prints what was measured on the whole split (of data without end, on as many batches as
training validates on) and writes it to ``evaluation.json`` in the folder, and what the
figures show to ``inspection.npz``; `launch.report` reads both. The second measures a
language model at each of ``--lengths``, on an equal share of each document of the
split, in memory that grows neither with the lengths nor with the text: into
``length_extension.jsonl``, which `launch.report` draws, tabulates and records.
"""

import json
from typing import Any, cast

from absl import flags

from launch import cli
from ssm_jax.evaluation import evaluate_lengths, evaluate_run
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
MODE = flags.DEFINE_enum(
    "mode", "metrics", ["metrics", "length_extension"], "What is measured."
)
LENGTHS = flags.DEFINE_list(
    "lengths", [str(2**k) for k in range(4, 16)], "Tokens of a window, between commas."
)
MAX_TOKENS = flags.DEFINE_integer(
    "max_tokens", 2**19, "Tokens of the split that are read for each length.", 1
)


def main(argv):
    """Evaluates."""
    del argv
    which: Any = CHECKPOINT.value
    if which not in ("best", "latest"):
        if not (which.isascii() and which.isdecimal()):
            raise ValueError(
                f"`--checkpoint` must be best, latest or a step, got {which!r}; the "
                "folders in checkpoints/ are the steps that were kept."
            )
        which = int(which)
    split = cast(Split, SPLIT.value)
    options = {"which": which, "split": split, "data_dir": DATA_DIR.value}
    if MODE.value == "metrics":
        print(json.dumps(evaluate_run(WORKDIR.value, **options)))
        return
    words = LENGTHS.value
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal()]
    if not words or len(numbers) < len(words) or min(numbers) < 1:
        raise ValueError(
            "`--lengths` must be positive numbers between commas, got "
            f"{','.join(words)!r}; --lengths=16,32,64 is an example."
        )
    lengths = sorted(set(numbers))
    options["max_tokens"] = MAX_TOKENS.value
    for row in evaluate_lengths(WORKDIR.value, lengths, **options):
        print(json.dumps(row))


if __name__ == "__main__":
    cli.run(main)
