"""Glue: classification of one or two sentences of GLUE, word by word."""

import dataclasses
from typing import Literal

from typing_extensions import override

from ssm_jax.tasks.text import sentences, tokens, words
from ssm_jax.tasks.tfds import reading

GlueName = Literal["cola", "sst2", "mrpc", "qqp", "mnli", "qnli"]
"""The supported sets of GLUE, by their names in TFDS."""


def _set(
    name: GlueName, *features: str, n_classes: int = 2, test: str = "validation"
) -> sentences.SentenceSet:
    # The version is fixed, as the order of the examples depends on it.
    prepared = reading.PreparedSet(
        f"glue/{name}", f"glue/{name}/2.0.0", (*features, "label")
    )
    return sentences.SentenceSet(prepared, features, n_classes, test)


SETS: dict[GlueName, sentences.SentenceSet] = {
    "cola": _set("cola", "sentence"),
    "sst2": _set("sst2", "sentence"),
    "mrpc": _set("mrpc", "sentence1", "sentence2"),
    "qqp": _set("qqp", "question1", "question2"),
    # Matched: from the same sources as the train split.
    "mnli": _set(
        "mnli", "premise", "hypothesis", n_classes=3, test="validation_matched"
    ),
    "qnli": _set("qnli", "question", "sentence"),
}
"""The prepared sets, with the features of their examples."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Glue(sentences.WordTask):
    """Classification: a property of a sentence or of two sentences, word by word.

    ========  =====================================================  =======  ======
    name      the classes, from 0                                    train    test
    ========  =====================================================  =======  ======
    cola      unacceptable, acceptable (as English)                  8,551    1,043
    sst2      negative, positive (about a film)                      67,349   872
    mrpc      not equivalent, equivalent (two sentences)             3,668    408
    qqp       not duplicate, duplicate (two questions)               363,846  40,430
    mnli      entailment, neutral, contradiction (by the premise)    392,702  9,815
    qnli      entailment, not (the sentence answers the question)    104,743  5,463
    ========  =====================================================  =======  ======

    What the task asks of a model: the meaning of a sentence or, for two sentences, the
    relation between them; both are in one sequence, tens of steps apart.

    Attributes:
      name: Name of the set.
      data_dir: Directory that holds ``glue/NAME/2.0.0``, written by ``python -m
        launch.prepare --dataset=glue/NAME`` or by TFDS (array_record). None means
        TFDS's default directory: the environment variable
        ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      length: Maximum number of words of a row. If two sentences are too long, the
        longer one is truncated first.
      vocabulary: Size of the vocabulary: padding, unknown, separator and the most
        frequent words of the train split.
      min_count: Minimum count of a word in the train split; rarer words are mapped to
        the unknown token, so that it is trained too.
      n_validation: Number of train examples held out for validation. None means the
        size of the test split.

    Batch:
      inputs: int32, ``(b, length)``: tokens of `ssm_jax.tasks.text.words`, the second
        sentence after a separator, 2, then padding, 0.
      targets: int32, ``(b,)``, the class.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding.

    Splits: the labels of GLUE's test splits are not public, and the figures of the
    paper below are for its validation splits. Therefore ``test`` is GLUE's validation
    split (the matched one for MNLI), and ``validation`` is one fixed draw from GLUE's
    train split, removed from ``train``. The column "train" of the table is the size
    before this draw. A few sentences occur more than once, 16 of CoLA in both published
    splits. From TFDS's glue 2.0.0, read once per process (SST-2 in three seconds),
    without TensorFlow. Each set has its own licence; MRPC is for non-commercial use.
    The tests use a few artificial sentences instead.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: ``length``, ``vocabulary`` or ``min_count`` is too small; at the first
        batch or count, if the set is damaged or not in array_record format, or
        ``n_validation`` leaves no train example.

    Example:
      >>> Glue(name="mnli", length=64).spec.d_output
      3

    References:
      Wang et al., `GLUE <https://arxiv.org/abs/1804.07461>`_, 2018; Chu and Lin,
      `Incorporating Exponential Smoothing into MLP
      <https://arxiv.org/abs/2403.17445>`_, 2024, table 2 (accuracies without
      pretraining, also for CoLA; it states no vocabulary and no length)
    """

    name: GlueName
    data_dir: str | None = None
    length: int = 128
    vocabulary: int = 30_000
    min_count: int = 2
    n_validation: int | None = None

    def __post_init__(self) -> None:
        if self.name not in SETS:
            raise ValueError(
                f"`name` must be one of {', '.join(SETS)}, got {self.name!r}; the "
                "other sets of GLUE are not supported."
            )
        tokens.check_length(self.length, 128)
        words.check_vocabulary(self.vocabulary, self.min_count)

    @override
    def _set(self):
        return SETS[self.name]
