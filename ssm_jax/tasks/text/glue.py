"""Sentences of GLUE, read word by word."""

import dataclasses
from typing import Literal

from ssm_jax.tasks import base
from ssm_jax.tasks.text import sentences, tokens, words
from ssm_jax.tasks.tfds import reading

GlueName = Literal["cola", "sst2", "mrpc", "qqp", "mnli", "qnli"]
"""The sets of GLUE that there is a task for, by the names that TFDS gives them."""


def _set(
    name: GlueName, *features: str, n_classes: int = 2, test: str = "validation"
) -> sentences.SentenceSet:
    prepared = reading.PreparedSet(
        f"glue/{name}", f"glue/{name}/2.0.0", (*features, "label")
    )
    return sentences.SentenceSet(prepared, features, n_classes, test)


SETS: dict[GlueName, sentences.SentenceSet] = {
    "cola": _set("cola", "sentence"),
    "sst2": _set("sst2", "sentence"),
    "mrpc": _set("mrpc", "sentence1", "sentence2"),
    "qqp": _set("qqp", "question1", "question2"),
    "mnli": _set(
        "mnli", "premise", "hypothesis", n_classes=3, test="validation_matched"
    ),
    "qnli": _set("qnli", "question", "sentence"),
}
"""Where each set lies, and what its examples hold."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Glue(sentences.WordTask):
    """Classification: what is so of a sentence, or of two, word by word.

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

    What the task asks of a model: to understand, of two sentences what they have to do with
    one another; the words of both stand in one sequence, some tens of steps apart.

    Attributes:
      name: Which of the sets.
      data_dir: Folder that holds ``glue/NAME/2.0.0``, as ``python -m launch.prepare
        --dataset=glue/NAME`` or TFDS itself prepares it (array_record). None means the
        folder that TFDS itself would take: the environment variable
        ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      length: Words of a row. Of two sentences too long for it, the longer one is cut
        at the end first; see `ssm_jax.tasks.text.tokens.join`.
      vocabulary: Tokens: padding, unknown, separator and the most frequent words of
        what is trained on.
      min_count: How often a word must occur there; the others are unknown, so that
        the unknown word is trained too.
      n_validation: Train examples held out for validation. None: as many as are
        tested on.

    Batch:
      inputs: int32, ``(b, length)``: words as `ssm_jax.tasks.text.words` splits and numbers
        them, the second sentence after a separator, 2, then padding, 0.
      targets: int32, ``(b,)``, the class.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding.

    Splits: the labels of GLUE's own test splits are not public, and the figures of the
    paper below are those of its validation splits. So ``test`` is GLUE's validation
    split (of MNLI the matched one), and ``validation`` one fixed draw from GLUE's train
    split, on which nothing is trained; the table counts both. A few sentences occur
    more than once, in CoLA 16 of them in both. From TFDS's glue 2.0.0, read once per
    process (SST-2 in three seconds), without TensorFlow. Each set has its own licence;
    MRPC is for use without commerce. The tests prepare a few sentences in their place.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: ``length``, ``vocabulary`` or ``min_count`` is too small; at the first
        batch or count, where the set is there in another format than array_record or
        damaged, or ``n_validation`` leaves nothing to train on.

    Example:
      >>> Glue(name="mnli", length=64).spec.d_output
      3

    References:
      Wang et al., `GLUE <https://arxiv.org/abs/1804.07461>`_, 2018; Chu and Lin,
      `Incorporating Exponential Smoothing into MLP
      <https://arxiv.org/abs/2403.17445>`_, 2024, table 2 (accuracies without
      pretraining, CoLA's too; it names no vocabulary and no length)
    """

    name: GlueName
    data_dir: str | None = None
    length: int = 128
    vocabulary: int = 30_000
    min_count: int = 2
    n_validation: int | None = None

    def __post_init__(self) -> None:
        """Validates the fields."""
        if self.name not in SETS:
            raise ValueError(
                f"`name` must be one of {', '.join(SETS)}, got {self.name!r}; the "
                "other sets of GLUE have no task here."
            )
        tokens.check_length(self.length, 128)
        words.check_vocabulary(self.vocabulary, self.min_count)

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: words in, one class out."""
        return tokens.token_spec(
            length=self.length,
            vocabulary=self.vocabulary,
            n_classes=SETS[self.name].n_classes,
        )

    def _read(self):
        return sentences.read_words(
            SETS[self.name],
            self.data_dir,
            self.n_validation,
            self.vocabulary,
            self.min_count,
        )
