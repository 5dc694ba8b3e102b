"""Subword tokenizers: files of Hugging Face's package ``tokenizers``.

Requires that package (extra ``[interop]``) and no other package of Hugging Face.
"""

import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

# Characters encoded per parallel call; each takes about 100 bytes of memory there.
_AT_ONCE = 2**22
# Tokens of single bytes in vocabularies of SentencePiece.
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Subwords:
    """A pretrained tokenizer.

    Args:
      path: The tokenizer's file, usually ``tokenizer.json``.

    Raises:
      ValueError: The package ``tokenizers`` is not installed or cannot read the file.
      FileNotFoundError: The file does not exist.
    """

    def __init__(self, path: Path):
        """Loads the file."""
        try:
            # Imported here: the package is an optional dependency.
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError(
                "`tokenizer` must be 'bytes' or 'words' if the package tokenizers is "
                f"not installed, got {path}; `pip install tokenizers`, or install the "
                "extra [interop] of this package."
            ) from None
        if not path.is_file():
            raise FileNotFoundError(
                f"`tokenizer` must be a file in `data_dir` or elsewhere, got {path}, "
                "which does not exist; check the path."
            )
        self._path = path
        with self._errors():
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        # The file may have been saved with a length; documents are encoded as a whole.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._added = self._tokenizer.get_added_tokens_decoder()
        # The decoder may be nested in a sequence, so its whole description is searched.
        # Of the file: `to_str` takes memory for each index below the largest.
        described = json.loads(path.read_bytes()).get("decoder")
        self._of_bytes = '"ByteLevel"' in json.dumps(described)
        self._numbers = sorted(self._tokenizer.get_vocab().values())
        # Not the number of entries, as indices may have gaps.
        self.size = 1 + max(self._numbers, default=-1)
        """Number of tokens of the file."""
        if not 1 <= self.size < 2**31:
            raise ValueError(
                f"`tokenizer` must have from 1 to 2**31 - 1 tokens, got {self.size} in "
                f"{path}; `Tokenizer.save` writes one."
            )

    def number(self, token: str) -> int:
        """Returns the index of a token.

        Raises:
          ValueError: The tokenizer has no such token.
        """
        number = self._tokenizer.token_to_id(token)
        if number is None:
            added = ", ".join(entry.content for entry in self._added.values())
            raise ValueError(
                f"`separator` must be a token of the tokenizer, got {token!r}; its "
                f"added tokens are {added or 'none'}."
            )
        return number

    def token(self, number: int) -> str | None:
        """Returns the token of an index, or None."""
        return self._tokenizer.id_to_token(number)

    def encode(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Yields the tokens of each text, int32, without special tokens around it."""
        for text_batch in _batches(texts):
            with self._errors():
                batch = self._tokenizer.encode_batch_fast(
                    text_batch, add_special_tokens=False
                )
            for encoding in batch:
                yield np.array(encoding.ids, np.int32)

    def content(self) -> dict[str, Any]:
        """Returns the `tokenizers` file as values of JSON."""
        return json.loads(self._tokenizer.to_str())

    def decode(self, number: int) -> bytes:
        """Returns the text of a token in UTF-8, which may be a part of a character.

        A word is preceded by a space if the tokenizer joins words with spaces. Indices
        beyond the file's vocabulary return the empty string.
        """
        # Added tokens are plain text, not characters that stand for bytes.
        if number in self._added:
            return self._added[number].content.encode()
        token = self._tokenizer.id_to_token(number)
        if token is None:
            return b""
        # A token may be an incomplete character: bytes, not text, are concatenated.
        if self._of_bytes and _bytes().keys() >= set(token):
            return bytes(_bytes()[character] for character in token)
        if byte := _BYTE.fullmatch(token):
            return bytes([int(byte[1], 16)])
        return self._suffix(number).encode()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Names the file in errors of the package."""
        try:
            yield
        except BaseException as error:
            # It raises plain `Exception`; a panic is none, and has no public class.
            if type(error) is not Exception and "Panic" not in type(error).__name__:
                raise
            cause = " ".join(str(error).split())[:200]
            raise ValueError(
                f"`tokenizer` must be a file of the package tokenizers, got "
                f"{self._path} ({cause}); `Tokenizer.save` writes one."
            ) from error

    def _suffix(self, number):
        """Returns the text that a token adds after a word, spaces included."""
        # Decoded after a word: the space before a first token is removed.
        word = self._tokenizer.decode([self._word])
        return self._tokenizer.decode([self._word, number]).removeprefix(word)

    @functools.cached_property
    def _word(self):
        """A token that consists of letters."""
        words = (
            number
            for number in self._numbers
            if number not in self._added
            and self._tokenizer.decode([number]).strip().isalpha()
        )
        return next(words, 0)


@functools.cache
def load(path: Path) -> Subwords:
    """Loads the file of a tokenizer, once per process."""
    return Subwords(path)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Groups texts into lists of at least `_AT_ONCE` characters."""
    batch, n = [], 0
    for text in texts:
        batch.append(text)
        n += len(text)
        # By characters: documents differ in length by orders of magnitude.
        if n >= _AT_ONCE:
            yield batch
            batch, n = [], 0
    if batch:
        yield batch


@functools.cache
def _bytes() -> dict[str, int]:
    """Returns the byte of each character in the tokens of a byte-level tokenizer.

    Printable bytes are the characters of the same code; the other bytes are, in order,
    the characters from 256 on.

    References:
      Radford et al., `Language Models are Unsupervised Multitask Learners
      <https://github.com/openai/gpt-2>`_, 2019; the map is in its code
    """
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    characters = {chr(byte): byte for byte in printed}
    return characters | {chr(256 + i): byte for i, byte in enumerate(others)}
