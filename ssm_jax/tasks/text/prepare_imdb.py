"""Converts the archive of IMDB reviews, or its directory, to a prepared set."""

from collections.abc import Sequence
from pathlib import Path

import tensorflow_datasets as tfds

from ssm_jax.tasks.text.imdb import IMDB as PREPARED
from ssm_jax.tasks.tfds import files
from ssm_jax.tasks.tfds.writing import Examples, RawSet


def _examples(split: str, paths: Sequence[Path]) -> Examples:
    (path,) = paths
    for member, content in files.members(path):
        if member.parts[:2] != ("aclImdb", split) or member.suffix != ".txt":
            continue
        label = member.parts[2]
        # The third directory, `unsup`, has the unlabelled reviews.
        if label in ("neg", "pos"):
            # As TFDS strips them.
            text = content.strip()
            if not text:
                raise files.invalid(path.parent / member, "hold a review", "nothing")
            yield str(member), {"text": text, "label": label}


IMDB = RawSet(
    prepared=PREPARED,
    publisher="https://ai.stanford.edu/~amaas/data/sentiment",
    wanted=(("aclImdb_v1.tar.gz", "aclImdb"),),
    features={
        "text": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["neg", "pos"]),
    },
    counts={"train": 25_000, "test": 25_000},
    examples=_examples,
)
"""The labelled reviews; the 50,000 unlabelled ones are skipped."""
