"""Converts the tables of GLUE to prepared sets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from absl import logging

from ssm_jax.tasks.text.glue import SETS, GlueName
from ssm_jax.tasks.tfds import files
from ssm_jax.tasks.tfds.writing import Examples, RawSet

# Label of test examples, as in TFDS: the true ones are not public.
_HIDDEN = -1
_MRPC_CLASSES = ("not_equivalent", "equivalent")
_FILES = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
_MNLI_FILES = {"train": "train.tsv"} | {
    f"{split}_{kind}": f"{file}_{kind}.tsv"
    for split, file in (("validation", "dev"), ("test", "test"))
    for kind in ("matched", "mismatched")
}


@dataclass(frozen=True)
class _Tables:
    """Layout of the tables of a set.

    Attributes:
      folder: Directory of the tables in the archive.
      columns: Column of each feature.
      label: Column of the label.
      classes: Names of the classes; a label is a name or an index.
      files: File name of each split.
      without_head: Column names of labelled tables that have no header row.
      broken: Whether rows with missing fields are skipped, as in TFDS, because the
        published table has such rows and the published counts exclude them.
    """

    folder: str
    columns: Mapping[str, str]
    label: str
    classes: Sequence[str]
    files: Mapping[str, str]
    without_head: tuple[str, ...] = ()
    broken: bool = False

    def examples(self, split: str, paths: Sequence[Path]) -> Examples:
        """Yields the examples of a split, keyed by the row of its table."""
        (path,) = paths
        file = self.files[split]
        # An archive has the tables in a folder; a directory is that folder.
        if path.is_file():
            file = f"{self.folder}/{file}"
        test = split.startswith("test")
        skipped = []
        # Test tables have a header even where the labelled ones have none.
        rows = named_rows(path, file, () if test else self.without_head)
        # Skipped rows are counted: `idx` is the row in the published table.
        for idx, (location, row) in enumerate(rows):
            texts = {name: row.get(column) for name, column in self.columns.items()}
            label = str(_HIDDEN) if test else row.get(self.label)
            if self.broken and (None in texts.values() or not label):
                skipped.append(location.rsplit(":", 1)[1])
                continue
            for name, text in texts.items():
                if text is None:
                    rule = f"have the column {self.columns[name]!r}"
                    raise files.invalid(location, rule, f"the columns {', '.join(row)}")
            number = _HIDDEN if test else _class(location, label, self.classes)
            yield idx, {**texts, "label": number, "idx": np.int32(idx)}
        if skipped:
            logging.warning(
                "%s: skipped %d rows with missing fields, on lines %s",
                path / file,
                len(skipped),
                ", ".join(skipped),
            )


def named_rows(
    path: Path, file: str | None, head: Sequence[str] = ()
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows of a table as dicts by column; the first row is the header.

    Args:
      path: The table, or a directory or zip archive that holds it.
      file: Path of the table in the directory or archive.
      head: Names of the columns, if the table has no header.
    """
    for location, fields in files.rows(path, file):
        if not head:
            head = fields
        else:
            # Not strict: the caller checks the columns that it uses.
            yield location, dict(zip(head, fields, strict=False))


def _class(location: str, label: str | None, classes: Sequence[str]) -> int:
    names = [*classes, *(str(number) for number in range(len(classes)))]
    if label not in names:
        raise files.invalid(
            location, f"have a label of {', '.join(names)}", repr(label)
        )
    # Names and then indices of the same classes.
    return names.index(label) % len(classes)


def _mrpc_examples(split: str, paths: Sequence[Path]) -> Examples:
    train, test, held_out = paths
    if split == "test":
        for idx, (location, row) in enumerate(named_rows(test, None)):
            yield idx, _mrpc_example(location, row, idx, _HIDDEN)
        return
    # The published train table is both splits; the ids select the validation pairs.
    ids = {tuple(fields[:2]) for _, fields in files.rows(held_out)}
    for idx, (location, row) in enumerate(named_rows(train, None)):
        # Before the selection, as it checks that the columns of the ids exist.
        example = _mrpc_example(location, row, idx, None)
        if ((row["#1 ID"], row["#2 ID"]) in ids) == (split == "validation"):
            yield idx, example


def _mrpc_example(
    location: str, row: dict[str, str], idx: int, label: int | None
) -> dict[str, Any]:
    columns = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
    if tuple(row) != columns:
        raise files.invalid(
            location, f"have the columns {', '.join(columns)}", tuple(row)
        )
    if label is None:
        label = _class(location, row["Quality"], _MRPC_CLASSES)
    sentences = {"sentence1": row["#1 String"], "sentence2": row["#2 String"]}
    return {**sentences, "label": label, "idx": np.int32(idx)}


def _raw(
    name: GlueName, tables: _Tables, counts: Mapping[str, int], *archives: str
) -> RawSet:
    return RawSet(
        prepared=SETS[name].prepared,
        publisher="https://gluebenchmark.com/tasks",
        wanted=((*archives, f"{tables.folder}.zip", tables.folder),),
        features=_features(tables.columns, tables.classes),
        counts=counts,
        examples=tables.examples,
    )


def _features(columns: Iterable[str], classes: Sequence[str]) -> dict[str, Any]:
    return {
        **{name: tfds.features.Text() for name in columns},
        "label": tfds.features.ClassLabel(names=classes),
        "idx": np.int32,
    }


COLA = _raw(
    "cola",
    _Tables(
        folder="CoLA",
        columns={"sentence": "sentence"},
        label="is_acceptable",
        classes=("unacceptable", "acceptable"),
        files=_FILES,
        without_head=("source", "is_acceptable", "mark", "sentence"),
    ),
    {"train": 8_551, "validation": 1_043, "test": 1_063},
)
SST2 = _raw(
    "sst2",
    _Tables(
        folder="SST-2",
        columns={"sentence": "sentence"},
        label="label",
        classes=("negative", "positive"),
        files=_FILES,
    ),
    {"train": 67_349, "validation": 872, "test": 1_821},
)
MRPC = RawSet(
    prepared=SETS["mrpc"].prepared,
    publisher="https://www.microsoft.com/en-us/download/details.aspx?id=52398 and, for "
    "the ids, https://gluebenchmark.com/tasks",
    wanted=(
        ("msr_paraphrase_train.txt", "MRPC/msr_paraphrase_train.txt"),
        ("msr_paraphrase_test.txt", "MRPC/msr_paraphrase_test.txt"),
        ("mrpc_dev_ids.tsv", "MRPC/dev_ids.tsv"),
    ),
    features=_features(("sentence1", "sentence2"), _MRPC_CLASSES),
    counts={"train": 3_668, "validation": 408, "test": 1_725},
    examples=_mrpc_examples,
)
QQP = _raw(
    "qqp",
    _Tables(
        folder="QQP",
        columns={"question1": "question1", "question2": "question2"},
        label="is_duplicate",
        classes=("not_duplicate", "duplicate"),
        files=_FILES,
        broken=True,
    ),
    {"train": 363_846, "validation": 40_430, "test": 390_965},
    "QQP-clean.zip",
)
MNLI = _raw(
    "mnli",
    _Tables(
        folder="MNLI",
        columns={"premise": "sentence1", "hypothesis": "sentence2"},
        label="gold_label",
        classes=("entailment", "neutral", "contradiction"),
        files=_MNLI_FILES,
    ),
    {
        "train": 392_702,
        "validation_matched": 9_815,
        "validation_mismatched": 9_832,
        "test_matched": 9_796,
        "test_mismatched": 9_847,
    },
)
QNLI = _raw(
    "qnli",
    _Tables(
        folder="QNLI",
        columns={"question": "question", "sentence": "sentence"},
        label="label",
        classes=("entailment", "not_entailment"),
        files=_FILES,
    ),
    {"train": 104_743, "validation": 5_463, "test": 5_463},
    "QNLIv2.zip",
)
