"""ImdbBytes and ImdbWords: sentiment of film reviews, by bytes or by words."""

import dataclasses

from typing_extensions import override

from ssm_jax.tasks import base
from ssm_jax.tasks.text import sentences, tokens, words
from ssm_jax.tasks.tfds import reading

IMDB = reading.PreparedSet(
    "imdb_reviews", "imdb_reviews/plain_text/1.0.0", ("text", "label")
)
_REVIEWS = sentences.SentenceSet(IMDB, ("text",), n_classes=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImdbBytes(sentences.SentenceTask):
    """Classification: whether a film review is positive, byte by byte.

    The Text task of the Long Range Arena. What the task asks of a model: to compose
    words from bytes, and to accumulate evidence over thousands of steps.

    Attributes:
      data_dir: Directory that holds ``imdb_reviews/plain_text/1.0.0``, written by
        ``python -m launch.prepare --dataset=imdb_reviews`` or by TFDS
        (array_record). None means TFDS's default directory: the environment variable
        ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      length: Number of bytes of a review that are read; longer ones are truncated.
      n_validation: Number of train reviews held out for validation.

    Batch:
      inputs: int32, ``(b, length)``: each byte plus 1, then padding, 0; a vocabulary
        of 257. UTF-8 as published, line breaks as ``<br />``.
      targets: int32, ``(b,)``: 0 for a bad review, 1 for a good one.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding.

    Splits: 22,500 train, 2,500 validation and 25,000 test reviews from TFDS's
    imdb_reviews 1.0.0 (25,000 and 25,000, half of them positive; unlabelled reviews are
    not used). The validation split is one fixed draw from the train split and disjoint
    from it; the published figures for this task have none and were selected on the test
    split. As published, 123 texts are in both train and test. 3% of the reviews are
    longer than 4,096 bytes. Read once per process, in about two seconds, into 130 MB,
    without TensorFlow. The publisher asks for a citation and states no licence. The
    tests use a few artificial reviews instead.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: ``length`` is less than 3; at the first batch or count, if the set is
        damaged or not in array_record format, or ``n_validation`` leaves no train
        example.

    Example:
      >>> task = ImdbBytes()
      >>> task.spec.length, task.spec.d_input
      (4096, 257)

    References:
      Maas et al., `Learning Word Vectors for Sentiment Analysis
      <https://aclanthology.org/P11-1015>`_, 2011; Tay et al., `Long Range Arena
      <https://arxiv.org/abs/2011.04006>`_, 2020, section 2.2.2
    """

    data_dir: str | None = None
    length: int = 4096
    n_validation: int = 2_500

    def __post_init__(self) -> None:
        tokens.check_length(self.length, 4096)

    @property
    def spec(self) -> base.TaskSpec:
        """One byte per step, one of two classes per sequence."""
        return tokens.token_spec(
            length=self.length, vocabulary=tokens.N_BYTES, n_classes=2
        )

    @override
    def _set(self):
        return _REVIEWS

    @override
    def _splits(self):
        # A number of validation reviews that error messages recommend.
        return sentences.read_bytes(_REVIEWS, self.data_dir, self.n_validation, "2,500")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImdbWords(sentences.WordTask):
    """Classification: whether a film review is positive, word by word.

    What the task asks of a model: to find the few decisive words among some hundred.

    Attributes:
      data_dir: Directory that holds ``imdb_reviews/plain_text/1.0.0``; see `ImdbBytes`.
      length: Number of words of a review that are read; longer ones are truncated.
      vocabulary: Size of the vocabulary: padding, unknown, separator (not used here)
        and the most frequent words of the train split.
      min_count: Minimum count of a word in the train split; rarer words are mapped to
        the unknown token, so that it is trained too.
      n_validation: Number of train reviews held out for validation, the same ones as
        for `ImdbBytes`.

    Batch:
      inputs: int32, ``(b, length)``: tokens of `ssm_jax.tasks.text.words`, then
        padding, 0.
      targets: int32, ``(b,)``: 0 for a bad review, 1 for a good one.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding.

    Splits: 22,500 train, 2,500 validation and 25,000 test reviews, as for `ImdbBytes`.
    Half of the reviews have more than 220 words, 12% more than 512. Read once per
    process, in about ten seconds, into 54 MB.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: ``length``, ``vocabulary`` or ``min_count`` is too small; at the first
        batch or count, as for `ImdbBytes`.

    Example:
      >>> ImdbWords(vocabulary=10_000).spec.d_input
      10000

    References:
      Maas et al., `Learning Word Vectors for Sentiment Analysis
      <https://aclanthology.org/P11-1015>`_, 2011; Chu and Lin, `Incorporating
      Exponential Smoothing into MLP <https://arxiv.org/abs/2403.17445>`_, 2024, table 2
      (which states no vocabulary and no length)
    """

    data_dir: str | None = None
    length: int = 512
    vocabulary: int = 30_000
    min_count: int = 2
    n_validation: int = 2_500

    def __post_init__(self) -> None:
        tokens.check_length(self.length, 512)
        words.check_vocabulary(self.vocabulary, self.min_count)

    @override
    def _set(self):
        return _REVIEWS
