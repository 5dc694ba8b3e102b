"""Converts the Long Range Arena's tables of pairs of papers to a prepared set."""

from collections.abc import Sequence
from pathlib import Path

import tensorflow_datasets as tfds

from ssm_jax.tasks.text.retrieval import AAN as PREPARED
from ssm_jax.tasks.tfds import files
from ssm_jax.tasks.tfds.writing import Examples, RawSet

_SPLITS = ("train", "validation", "test")
# The published tables have labels as integers or as floats.
_LABELS = {b"0": 0, b"1": 1, b"0.0": 0, b"1.0": 1}


def _examples(split: str, paths: Sequence[Path]) -> Examples:
    path = paths[_SPLITS.index(split)]
    # In binary, only a newline ends a line, and no text is decoded.
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip(b"\r\n")
            if not line:
                continue
            # Not `csv`: quotation marks in the texts have no special meaning.
            fields = line.split(b"\t")
            if len(fields) != 5:
                raise files.invalid(f"{path}:{number}", "have 5 fields", len(fields))
            label, id1, id2, text1, text2 = fields
            if label not in _LABELS:
                rule = "begin with a label, 0 or 1"
                raise files.invalid(f"{path}:{number}", rule, repr(label[:20])[1:])
            if not (text1 and text2):
                raise files.invalid(
                    f"{path}:{number}", "have two texts", "an empty one"
                )
            yield (
                number,
                {
                    "label": _LABELS[label],
                    "id1": id1,
                    "id2": id2,
                    "text1": text1,
                    "text2": text2,
                },
            )


AAN = RawSet(
    prepared=PREPARED,
    publisher="https://github.com/google-research/long-range-arena",
    wanted=tuple((f"new_aan_pairs.{name}.tsv",) for name in ("train", "eval", "test")),
    features={
        "label": tfds.features.ClassLabel(num_classes=2),
        "id1": tfds.features.Text(),
        "id2": tfds.features.Text(),
        "text1": tfds.features.Text(),
        "text2": tfds.features.Text(),
    },
    counts={"train": 147_086, "validation": 18_090, "test": 17_437},
    examples=_examples,
    shuffled=False,
    in_tfds=False,
)
"""Pairs of papers, with the label 1 if a citation relates them.

As in the publishers' code, each line is a row and quotation marks have no special
meaning. The examples are in the order of the lines.
"""
