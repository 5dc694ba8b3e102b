"""Reviews of films, read byte by byte or word by word."""

import dataclasses

from ssm_jax.tasks import base
from ssm_jax.tasks.text import sentences, tokens, words
from ssm_jax.tasks.tfds import reading

IMDB = reading.PreparedSet(
    "imdb_reviews", "imdb_reviews/plain_text/1.0.0", ("text", "label")
)
_REVIEWS = sentences.SentenceSet(IMDB, ("text",), n_classes=2)
_USUAL = "2,500"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImdbBytes:
    """Classification: whether a review praises its film, byte by byte.

    The task Text of the Long Range Arena. What the task asks of a model: to make words from
    bytes, and to weigh what was said over thousands of steps.

    Attributes:
      data_dir: Folder that holds ``imdb_reviews/plain_text/1.0.0``, as ``python -m
        launch.prepare --dataset=imdb_reviews`` or TFDS itself prepares it
        (array_record). None means the folder that TFDS itself would take: the
        environment variable ``TFDS_DATA_DIR``, else ``~/tensorflow_datasets``.
      length: Bytes of a review that are read; what is longer is cut at the end.
      n_validation: Reviews of the train split held out for validation.

    Batch:
      inputs: int32, ``(b, length)``: each byte plus 1, then padding, 0; a vocabulary
        of 257. UTF-8 as it stands, line breaks as ``<br />``.
      targets: int32, ``(b,)``: 0 for a bad review, 1 for a good one.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding.

    Splits: 22,500 train, 2,500 validation and 25,000 test reviews, from TFDS's
    imdb_reviews 1.0.0 (25,000 and 25,000; half of them good; its unlabelled reviews are
    left out). The validation split is one fixed draw from the train split; the figures
    published for this task have none and were selected on the test split. 123
    texts stand in both train and test. 3% of the reviews are longer than 4,096 bytes.
    Read once per process, about two seconds, into 130 MB, without TensorFlow. The
    publisher asks to be cited and names no licence. The tests prepare a few made-up
    reviews in its place.

    Raises:
      FileNotFoundError: At the first batch or count, if the set does not exist.
      ValueError: ``length`` is less than 3; at the first batch or count, where the set
        is there in another format than array_record or damaged, or ``n_validation``
        leaves nothing to train on.

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
        """Validates the fields."""
        tokens.check_length(self.length, 4096)

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: bytes in, one of two classes out."""
        return tokens.token_spec(
            length=self.length, vocabulary=tokens.N_BYTES, n_classes=2
        )

    def n_examples(self, split: base.Split) -> int:
        """Returns the number of reviews in a split."""
        return len(self._part(split).labels)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        part = self._part(split)
        return part.batch(split, index, batch_size, seed, self.length)

    def _part(self, split: base.Split) -> tokens.LabelledRows:
        base.check_split(split)
        return sentences.read_bytes(_REVIEWS, self.data_dir, self.n_validation, _USUAL)[
            split
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImdbWords(sentences.WordTask):
    """Classification: whether a review praises its film, word by word.

    What the task asks of a model: to weigh some hundred words, of which a few decide.

    Attributes:
      data_dir: Folder that holds ``imdb_reviews/plain_text/1.0.0``, as for `ImdbBytes`.
      length: Words of a review that are read; what is longer is cut at the end.
      vocabulary: Tokens: padding, unknown, separator (not used here) and the most
        frequent words of the train split.
      min_count: How often a word must occur there; the others are unknown, so that
        the unknown word is trained too.
      n_validation: Reviews of the train split held out for validation, the same ones
        as for `ImdbBytes`.

    Batch:
      inputs: int32, ``(b, length)``: words as `ssm_jax.tasks.text.words` splits and numbers
        them, then padding, 0.
      targets: int32, ``(b,)``: 0 for a bad review, 1 for a good one.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding.

    Splits: as for `ImdbBytes`. Half of the reviews have more than 220 words, 12% more
    than 512. Read once per process, about ten seconds, into 54 MB.

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
      (which names no vocabulary and no length)
    """

    data_dir: str | None = None
    length: int = 512
    vocabulary: int = 30_000
    min_count: int = 2
    n_validation: int = 2_500

    def __post_init__(self) -> None:
        """Validates the fields."""
        tokens.check_length(self.length, 512)
        words.check_vocabulary(self.vocabulary, self.min_count)

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: words in, one of two classes out."""
        return tokens.token_spec(
            length=self.length, vocabulary=self.vocabulary, n_classes=2
        )

    def _read(self):
        return sentences.read_words(
            _REVIEWS, self.data_dir, self.n_validation, self.vocabulary, self.min_count
        )
