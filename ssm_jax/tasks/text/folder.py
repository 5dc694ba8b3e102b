"""TextFolder: language modelling on a directory of text files."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ssm_jax.tasks import base, order
from ssm_jax.tasks.text import documents, tokens, words

Layout = Literal["stream", "shuffled", "packed"]

_SEPARATORS = {"bytes": documents.BYTE_SEPARATOR, "words": documents.WORD_SEPARATOR}
_FILE = ".json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFolder:
    """Classification: at each step the next token of a text.

    Each file is a document. The documents of a split are concatenated, with a separator
    before each and after the last, and the resulting text is divided into consecutive
    windows, so that every token after the first is a target exactly once.

    What the task asks of a model: mostly the last few tokens, and for the rest context
    from thousands of tokens before. With ``layout="stream"`` a model that carries its
    state from batch to batch sees the whole preceding text.

    Attributes:
      data_dir: Directory of files that end in ``.txt``, searched recursively, but for
        the work dirs of runs.
      length: Number of tokens of a window, that is, of steps of a sequence.
      tokenizer: ``"bytes"``; or ``"words"`` of `ssm_jax.tasks.text.words`, for texts in
        UTF-8; or the name of a ``.json`` file of the package ``tokenizers``, absolute
        or relative to ``data_dir``.
      vocabulary: Size of the vocabulary. 257 for ``"bytes"``; for ``"words"`` three
        special tokens and the most frequent words of the train split; for a file at
        least its number of tokens.
      layout: ``"stream"``: row ``r`` of a batch continues row ``r`` of the previous
        batch, each row in its own equal part of the text; an epoch of ``n_batches``
        batches restarts at the beginning of the parts. ``"shuffled"``: the same
        windows; the train split is shuffled in each epoch. ``"packed"``: as
        ``"shuffled"``, and the state is reset between documents.
      separator: The token of a tokenizer's file that separates documents.

    Batch:
      inputs: int32, ``(b, length)``. For bytes, 0 is the separator and a byte has the
        token byte + 1; for words, 2 is the separator; for a file, ``separator`` is.
      targets: int32, ``(b, length)``, the input of the next step. The last token of a
        document has the next separator as its target.
      loss_mask: bool, ``(b, length)``, false in the rows that pad the last batch and
        after the end of an evaluated text, whose last window may be shorter.
      reset: bool, ``(b, length)``, true at the separator with which a document starts,
        so that no prediction depends on another document; only if ``layout`` is
        ``"packed"``, otherwise None.

    Splits: disjoint by file; the sizes depend on the files. If one of the
    subdirectories ``train``, ``validation`` and ``test`` exists, they are the splits.
    Otherwise, of every ten files sorted by name, the first is for validation and the
    second for test; of one or two files, the first eight tenths of each are for train,
    a tenth for validation and the last for test. Empty files are left out. A text may
    be larger than the memory: bytes are read from the files when they are needed, and
    the files must not change meanwhile; words and the tokens of a file are written once
    per process to a temporary file, in the directory ``TMPDIR``, with two bytes per
    token, or four for vocabularies above 65,536.

    Raises:
      FileNotFoundError: At the first batch or count, if the directory or the tokenizer
        does not exist.
      ValueError: A number is too small, or ``vocabulary`` is not 257 for bytes; at the
        first batch or count, if a split has no file, a split is shorter than a window,
        or the tokenizer has more than ``vocabulary`` tokens or no token ``separator``.

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
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, which needs batches that
      continue each other; their layout is that of Merity, Keskar and Socher,
      `Regularizing and Optimizing LSTM Language Models
      <https://arxiv.org/abs/1708.02182>`_, 2017
    """

    data_dir: str | None = None
    length: int = 1024
    tokenizer: str = "bytes"
    vocabulary: int = tokens.N_BYTES
    layout: Layout = "stream"
    separator: str = "<|endoftext|>"

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise ValueError(
                f"`layout` must be one of {', '.join(get_args(Layout))}, got "
                f"{self.layout!r}; choose one of them."
            )
        if not (self.tokenizer in _SEPARATORS or self.tokenizer.endswith(_FILE)):
            raise ValueError(
                f"`tokenizer` must be one of {', '.join(_SEPARATORS)}, or the name of "
                f"a {_FILE} file, got {self.tokenizer!r}; 'bytes' accepts any text."
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
        """One token per step; the next token as class."""
        return base.TaskSpec(
            length=self.length,
            inputs="token",
            d_input=self.vocabulary,
            targets="classification",
            d_output=self.vocabulary,
            l_output=self.length,
            language=True,
            resets=self.layout == "packed",
        )

    def data_files(self) -> dict[str, Path]:
        """Returns the files of all splits and of the tokenizer by name."""
        paths = documents.data_files(self.data_dir)
        if self.tokenizer not in _SEPARATORS:
            path = documents.tokenizer_path(self.data_dir, self.tokenizer)
            paths[f"tokenizer {path.name}"] = path
        return paths

    def n_examples(self, split: base.Split) -> int:
        """Returns the number of windows in a split.

        Training drops a window at the end that is shorter than ``length``. Evaluation
        pads it, so that models with different lengths are evaluated on the same text.
        """
        n_targets = self.n_tokens(split) - 1
        if n_targets < self.length:
            raise ValueError(
                f"`length` must be at most {n_targets}, the tokens of the {split} "
                f"split, got {self.length}; put more text into {self.data_dir}, or "
                "choose a smaller length."
            )
        # The target of the last step is the token after the window: one token overlaps.
        n_padded = 0 if split == "train" else self.length - 1
        return (n_targets + n_padded) // self.length

    def batch(
        self,
        split: base.Split,
        index: int,
        batch_size: int,
        seed: int,
        *,
        rows: slice | None = None,
    ) -> base.Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        n = self.n_examples(split)
        # Carried states need row r to continue row r of the previous batch.
        choose = (
            order.contiguous_indices
            if self.layout == "stream"
            else order.shuffled_indices
        )
        chosen = choose(n, split, index, batch_size, seed, rows)
        return order.read_once(functools.partial(self._select, split), *chosen)

    def _select(self, split, indices, row_counts):
        """A batch of windows of the text of a split."""
        whole = self._tokens(split)
        # One more than the window: the target of the last step. Positions beyond the
        # end repeat the last token, a separator; the mask excludes them.
        text = np.full((len(indices), self.length + 1), self._separator(), np.int32)
        for window, start in zip(text, self.length * indices, strict=True):
            part = whole[start : start + self.length + 1]
            window[: len(part)] = part
        positions = self.length * indices[:, None] + np.arange(1, self.length + 1)
        # Copies, as overlapping views would share changes by the caller.
        inputs, targets = text[:, :-1].copy(), text[:, 1:].copy()
        loss_mask = row_counts[:, None] & (positions < len(whole))
        packed = self.layout == "packed"
        # The separator is the first token of a document, so the state is reset there.
        reset = inputs == self._separator() if packed else None
        return base.Batch(inputs, targets, loss_mask, reset=reset)

    def n_tokens(self, split: base.Split) -> int:
        """Returns the number of tokens of a split, separators included."""
        return len(self._tokens(split))

    def text(self, split: base.Split) -> np.ndarray:
        """Returns the tokens of a split, documents and separators, ``(n,)``.

        Those of bytes are read into memory; the others are mapped to it.
        """
        text_tokens = self._tokens(split)
        return text_tokens if isinstance(text_tokens, np.ndarray) else text_tokens[:]

    def documents(self, split: base.Split) -> np.ndarray:
        """Returns the boundaries of the documents of a split in its `text`.

        Returns:
          The positions of all separators, int64, ``(d + 1,)``: document ``i`` starts
          with the separator ``i`` and ends before the separator ``i + 1``.
        """
        return np.flatnonzero(self.text(split) == self._separator())

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of the beginning of a document, with its separator first.

        Args:
          text: The text. With ``tokenizer="bytes"``, surrogate escapes, as returned by
            `os.fsdecode` and in `sys.argv`, are encoded as the bytes they stand for.

        Raises:
          ValueError: The text is not valid UTF-8, and the tokenizer is not ``"bytes"``.
        """
        if self.tokenizer != "bytes" and not text.isascii():
            try:
                # Words and subwords consist of characters, which surrogates are not.
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"`text` must be UTF-8 for a model that reads {self.tokenizer}, "
                    f"got {text!r}; a model that reads bytes accepts any text."
                ) from error
        if self.tokenizer == "bytes":
            # The bytes of an argument that was not UTF-8, unchanged.
            row = tokens.from_bytes(text.encode(errors="surrogateescape"))
        elif self.tokenizer == "words":
            (row,) = self._words().encode([text])
        else:
            (row,) = self._subwords().encode([text])
        return [self._separator(), *row.tolist()]

    def preprocessing(self) -> dict[str, Any]:
        """Describes how `encode` makes tokens, in values of JSON, for an export."""
        about: dict[str, Any] = {"tokenizer": self.tokenizer}
        about["separator"] = self._separator()
        if self.tokenizer == "bytes":
            return about | {"offset": 1}
        if self.tokenizer == "words":
            return about | {"words": list(self._words().words)}
        return about | {"tokenizers": self._subwords().content()}

    def decode(self, token: int) -> bytes:
        """Returns the text of a token in UTF-8, which may be a part of a character.

        A token of ``"words"`` is followed by a space. A separator is an empty line.
        """
        if token == self._separator():
            return b"\n\n"
        if self.tokenizer == "bytes":
            return bytes([token - 1])
        if self.tokenizer == "words":
            return (words.decode(token, self._words().words) + " ").encode()
        return self._subwords().decode(token)

    def _tokens(self, split):
        """The tokens of a split, on disk."""
        base.check_split(split)
        if self.tokenizer == "bytes":
            return documents.read_bytes(self.data_dir, split)
        if self.tokenizer == "words":
            return documents.read_words(self.data_dir, split, self.vocabulary)
        # Not in `__post_init__`: a task is created without reading its files.
        if self._subwords().size > self.vocabulary:
            raise ValueError(
                f"`vocabulary` must be at least {self._subwords().size}, the tokens of "
                f"{self.tokenizer}, got {self.vocabulary}; it may be greater than that."
            )
        return documents.read_subwords(
            self.data_dir, split, self.tokenizer, self.separator
        )

    def _words(self):
        return documents.vocabulary(self.data_dir, self.vocabulary)

    def _subwords(self):
        return documents.subwords_of(self.data_dir, self.tokenizer)

    def _separator(self):
        known = _SEPARATORS.get(self.tokenizer)
        return self._subwords().number(self.separator) if known is None else known
