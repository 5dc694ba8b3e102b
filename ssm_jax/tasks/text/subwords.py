"""Subwords as tokens: the files of Hugging Face's package ``tokenizers``.

Needs that package (extra ``[interop]``), and nothing else of theirs.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

# Characters of documents that all cores share: each takes some hundred bytes there.
_AT_ONCE = 2**22
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class Subwords:
    """A tokenizer that was trained elsewhere.

    Args:
      path: Its file, ``tokenizer.json`` as a rule.

    Raises:
      ValueError: The package is not there, or the file is not of it.
      FileNotFoundError: There is no such file.
    """

    def __init__(self, path: Path):
        """Reads the file."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError(
                "`tokenizer` must be 'bytes' or 'words' where the package tokenizers "
                f"is not, got {path}; `pip install tokenizers`, of this package the "
                "extra [interop]."
            ) from None
        if not path.is_file():
            raise FileNotFoundError(
                f"`tokenizer` must be a file in `data_dir` or elsewhere, got {path}, "
                "where there is none."
            )
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises no other
            raise ValueError(
                f"`tokenizer` must be a file of the package tokenizers, got {path} "
                f"({error}); `Tokenizer.save` writes one."
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._added = self._tokenizer.get_added_tokens_decoder()
        self._of_bytes = '"ByteLevel"' in json.dumps(
            json.loads(self._tokenizer.to_str())["decoder"]
        )
        self.size = 1 + max(self._tokenizer.get_vocab().values())
        """Tokens that the file knows."""

    def number(self, token: str) -> int:
        """The number of a token.

        Raises:
          ValueError: There is no such token.
        """
        number = self._tokenizer.token_to_id(token)
        if number is None:
            added = ", ".join(each.content for each in self._added.values())
            raise ValueError(
                f"`separator` must be a token of the tokenizer, got {token!r}; its added "
                f"ones are {added or 'none'}."
            )
        return number

    def encode(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Gives the tokens of each text, int32, without those that frame a text."""
        for some in _batches(texts):
            for found in self._tokenizer.encode_batch_fast(
                some, add_special_tokens=False
            ):
                yield np.array(found.ids, np.int32)

    def decode(self, number: int) -> bytes:
        """What a token writes, in UTF-8, which may be a part of a character.

        A word that is not begun by a space of its own has one before it. Numbers beyond
        the file's write nothing.
        """
        if number in self._added:
            return self._added[number].content.encode()
        token = self._tokenizer.id_to_token(number)
        if token is None:
            return b""
        if self._of_bytes and _bytes().keys() >= set(token):
            return bytes(_bytes()[character] for character in token)
        if byte := _BYTE.fullmatch(token):
            return bytes([int(byte[1], 16)])
        return self._behind(number).encode()

    def _behind(self, number):
        """What a token adds to the one before it, which is where spaces show."""
        before = self._tokenizer.decode([self._word])
        return self._tokenizer.decode([self._word, number]).removeprefix(before)

    @functools.cached_property
    def _word(self):
        """A token that writes letters."""
        words = (
            number
            for number in range(self.size)
            if number not in self._added
            and self._tokenizer.decode([number]).strip().isalpha()
        )
        return next(words, 0)


@functools.cache
def load(path: Path) -> Subwords:
    """Reads the file of a tokenizer; once per process."""
    return Subwords(path)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists, none of which is much longer than it need be."""
    batch, n = [], 0
    for text in texts:
        batch.append(text)
        n += len(text)
        if n >= _AT_ONCE:
            yield batch
            batch, n = [], 0
    if batch:
        yield batch


@functools.cache
def _bytes() -> dict[str, int]:
    """The byte of each character in tokens that are made of bytes.

    Bytes that print stand for themselves, the others, in their order, for the
    characters from 256 on.

    References:
      Radford et al., `Language Models are Unsupervised Multitask Learners
      <https://github.com/openai/gpt-2>`_, 2019, whose code has this map
    """
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    characters = {chr(byte): byte for byte in printed}
    return characters | {chr(256 + i): byte for i, byte in enumerate(others)}
