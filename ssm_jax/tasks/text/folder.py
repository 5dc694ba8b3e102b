"""Folders of text, to be read on: at each step the next byte, or the next word."""

import dataclasses
from typing import Literal, get_args

import numpy as np

from ssm_jax.tasks import base
from ssm_jax.tasks.text import documents, tokens, words

Layout = Literal["stream", "shuffled", "packed"]

_SEPARATORS = {"bytes": documents.BYTE_SEPARATOR, "words": documents.WORD_SEPARATOR}
_FILE = ".json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFolder:
    """Classification: at each step the next token of a text.

    A document is a file. All of a split stand one after another, a border before each
    and one behind the last, and this text is cut into windows, each of which starts
    where the one before it ends: the next token is asked for once at every place.

    What the task asks of a model: for the most part the last few tokens; for the rest, what
    was said pages ago. With ``"stream"`` a model that carries its states from batch to
    batch has read all of it.

    Attributes:
      data_dir: Folder with files that end in ``.txt``, also in folders of it.
      length: Tokens of a window, steps of a sequence.
      tokenizer: ``"bytes"``, or ``"words"`` as `ssm_jax.tasks.text.words` splits texts that
        it reads as UTF-8, or the name of a file that ends in ``.json``, in ``data_dir``
        or from the root, as the package ``tokenizers`` writes them.
      vocabulary: Tokens. Of ``"bytes"`` 257; of ``"words"`` the first three are no
        words, then come the most frequent ones of the train split; of a file as many
        as it has, or more.
      border: The token of a tokenizer's file that stands around documents.
      layout: ``"stream"``: row ``r`` of a batch goes on where row ``r`` of the batch
        before it ended, through equal parts of the text; after ``n_batches`` batches
        an epoch begins at their starts again. ``"shuffled"``: the same windows, for
        training in an order drawn each epoch. ``"packed"``: as ``"shuffled"``, and
        documents are strangers: a segment starts with each.

    Batch:
      inputs: int32, ``(b, length)``: with bytes 0 is the border and each byte is the
        token one greater; with words 2 is the border, of a file ``separator``.
      targets: int32, ``(b, length)``, the input of the next step. Before the first
        token of a document stands the border, behind its last one the next border.
      loss_mask: bool, ``(b, length)``, false in rows that fill up a batch and behind the end
        of a text that is evaluated: its last window may be shorter than the others.
      reset: bool, ``(b, length)``, true at borders, with which a document starts; only
        where ``layout`` is ``"packed"``, so that no prediction there depends on another
        document than its own.

    Splits: by file. Of the folders ``train``, ``validation`` and ``test`` where one of
    them is there; else, in the order of their names, of each ten files the first is for
    validation, the second for tests. Read once per process: two bytes a token, four of
    vocabularies beyond 65,536.

    Raises:
      FileNotFoundError: At the first batch or count, where the folder or the tokenizer
        is not there.
      ValueError: A number is too small, or bytes are to have another vocabulary; at the
        first batch or count, where a split has no file, a file no text, or a split not
        enough for a window, or the tokenizer has more tokens or no such border.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for name in ("a.txt", "b.txt", "c.txt"):
      ...         _ = Path(folder, name).write_text("abacus!")
      ...     batch = TextFolder(data_dir=folder, length=4).batch("train", 0, 2, seed=0)
      >>> batch.inputs.tolist()
      [[0, 98, 99, 98], [100, 118, 116, 34]]
      >>> batch.targets.tolist()
      [[98, 99, 98, 100], [118, 116, 34, 0]]

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, which asks for batches that
      go on; their layout is that of Merity, Keskar and Socher, `Regularizing and
      Optimizing LSTM Language Models <https://arxiv.org/abs/1708.02182>`_, 2017
    """

    data_dir: str | None = None
    length: int = 1024
    tokenizer: str = "bytes"
    vocabulary: int = tokens.N_BYTES
    layout: Layout = "stream"
    separator: str = "<|endoftext|>"

    def __post_init__(self) -> None:
        """Validates the fields."""
        if self.layout not in get_args(Layout):
            raise ValueError(
                f"`layout` must be one of {', '.join(get_args(Layout))}, got "
                f"{self.layout!r}; these are all there are."
            )
        if not (self.tokenizer in _SEPARATORS or self.tokenizer.endswith(_FILE)):
            raise ValueError(
                f"`tokenizer` must be one of {', '.join(_SEPARATORS)}, or the name of a "
                f"{_FILE} file, got {self.tokenizer!r}; 'bytes' reads any text."
            )
        if self.length < 1:
            raise ValueError(
                f"`length` must be at least 1, got {self.length}; 1024 is usual."
            )
        if self.tokenizer == "words":
            words.check_vocabulary(self.vocabulary, min_count=1)
        elif self.tokenizer == "bytes" and self.vocabulary != tokens.N_BYTES:
            raise ValueError(
                f"`vocabulary` must be {tokens.N_BYTES} with bytes, got "
                f"{self.vocabulary}; `tokenizer` may be 'words'."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: a token a step in, and one out."""
        return base.TaskSpec(
            length=self.length,
            inputs="token",
            d_input=self.vocabulary,
            targets="classification",
            d_output=self.vocabulary,
            l_output=self.length,
            language=True,
        )

    def n_examples(self, split: base.Split) -> int:
        """Returns the number of windows in a split.

        Training leaves out what is too short for a window at the end. Evaluation reads
        it, so that models with windows of different lengths see the same text.
        """
        n_targets = len(self.text(split)) - 1
        if n_targets < self.length:
            raise ValueError(
                f"`length` must be at most {n_targets}, the tokens of the {split} "
                f"split, got {self.length}; put more text into {self.data_dir}, or "
                "read shorter sequences."
            )
        rest = 0 if split == "train" else self.length - 1
        return (n_targets + rest) // self.length

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        n = self.n_examples(split)
        choose = (
            base.contiguous_indices
            if self.layout == "stream"
            else base.shuffled_indices
        )
        rows, row_counts = choose(n, split, index, batch_size, seed)
        positions = self.length * rows[:, None] + np.arange(self.length + 1)
        whole = self.text(split)
        last = len(whole) - 1
        text = whole[np.minimum(positions, last)].astype(np.int32)
        inputs, targets = text[:, :-1].copy(), text[:, 1:].copy()
        loss_mask = row_counts[:, None] & (positions[:, 1:] <= last)
        packed = self.layout == "packed"
        reset = inputs == self._separator() if packed else None
        return base.Batch(inputs, targets, loss_mask, reset=reset)

    def text(self, split: base.Split) -> np.ndarray:
        """The tokens of a split, all documents with a border around each, ``(n,)``."""
        base.check_split(split)
        if self.tokenizer == "bytes":
            return documents.read_bytes(self.data_dir, split)
        if self.tokenizer == "words":
            return documents.read_words(self.data_dir, split, self.vocabulary)
        if self._subwords().size > self.vocabulary:
            raise ValueError(
                f"`vocabulary` must be at least {self._subwords().size}, the tokens of "
                f"{self.tokenizer}, got {self.vocabulary}; models may have more."
            )
        return documents.read_subwords(
            self.data_dir, split, self.tokenizer, self.separator
        )

    def documents(self, split: base.Split) -> np.ndarray:
        """Where the documents of a split stand in its `text`.

        Returns:
          The positions of all borders, int64, ``(d + 1,)``: document ``i`` has its border
          at number ``i`` and its last token before number ``i + 1``.
        """
        return np.flatnonzero(self.text(split) == self._separator())

    def encode(self, text: str) -> list[int]:
        """The tokens of a document's beginning, the border before it included.

        Args:
          text: The beginning. What is no UTF-8 in it, as `os.fsdecode` and
            `sys.argv` have it, is bytes to a model that reads bytes.

        Raises:
          ValueError: It is no UTF-8, and the model reads words or a tokenizer's tokens.
        """
        if self.tokenizer != "bytes" and not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"`text` must be UTF-8 for a model that reads {self.tokenizer}, "
                    f"got {text!r}; a model that reads bytes takes any."
                ) from error
        if self.tokenizer == "bytes":
            row = tokens.from_bytes(text.encode(errors="surrogateescape"))
        elif self.tokenizer == "words":
            (row,) = self._words().encode([text])
        else:
            (row,) = self._subwords().encode([text])
        return [self._separator(), *row.tolist()]

    def decode(self, token: int) -> bytes:
        """What a token writes, in UTF-8, be it a part of a character.

        Of bytes one byte, of words one and a space. A border is an empty line.
        """
        if token == self._separator():
            return b"\n\n"
        if self.tokenizer == "bytes":
            return bytes([token - 1])
        if self.tokenizer == "words":
            return (words.decode(token, self._words().words) + " ").encode()
        return self._subwords().decode(token)

    def _words(self):
        return documents.vocabulary(self.data_dir, self.vocabulary)

    def _subwords(self):
        return documents.subwords_of(self.data_dir, self.tokenizer)

    def _separator(self):
        known = _SEPARATORS.get(self.tokenizer)
        return self._subwords().number(self.separator) if known is None else known
