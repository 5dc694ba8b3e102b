"""Word tokenizer and its vocabulary.

A text is lower-cased and split into words: each maximal run of letters, digits and
underscores is a word, and so is every other character that is not a space.
"""

import dataclasses
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

PADDING, UNKNOWN, SEPARATOR = range(3)
"""The special tokens: padding, a word that is not in the vocabulary, and the separator
of two sentences or two documents. Tokens of words start after them."""

_N_SPECIAL = 3
_WORD = re.compile(r"\w+|[^\w\s]")


def split(text: str) -> list[str]:
    """Splits a text into words.

    Example:
      >>> split("Don't PANIC, it's 3.50 at X_1!")
      ['don', "'", 't', 'panic', ',', 'it', "'", 's', '3', '.', '50', 'at', 'x_1', '!']
    """
    return _WORD.findall(text.lower())


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words that have their own token.

    Attributes:
      words: The word of token 3, of token 4, and so on.

    Example:
      >>> vocabulary = Vocabulary.of(["b a b", "c b a"], size=5)
      >>> vocabulary.words
      ('b', 'a')
      >>> [tokens.tolist() for tokens in vocabulary.encode(["A b", "c", ""])]
      [[4, 3], [1], []]
    """

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str], size: int, min_count: int = 1) -> "Vocabulary":
        """Builds the vocabulary of the most frequent words of some texts.

        Args:
          texts: The texts in which words are counted.
          size: Maximum number of tokens, including the special tokens.
          min_count: Minimum count of a word.

        Returns:
          The words in decreasing order of count; words of equal count in the order of
          their code points.
        """
        # No word contains a space, and pieces between spaces repeat often: splitting
        # each distinct piece once takes a third of the time.
        pieces: Counter[str] = Counter()
        for text in texts:
            pieces.update(text.lower().split())
        counts: Counter[str] = Counter()
        for piece, count in pieces.items():
            for word in split(piece):
                counts[word] += count
        frequent = (word for word, count in counts.items() if count >= min_count)
        # Ties by word: otherwise the order of the texts would decide.
        words = sorted(frequent, key=lambda word: (-counts[word], word))
        return cls(tuple(words[: max(size - _N_SPECIAL, 0)]))

    def encode(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Yields the tokens of each text, int32."""
        token = {word: token for token, word in enumerate(self.words, _N_SPECIAL)}
        tokens_of = _Pieces(token)
        for text in texts:
            pieces = map(tokens_of.__getitem__, text.lower().split())
            # One copy of the cached bytes; `intc` is the type "i" of `array`.
            yield np.frombuffer(b"".join(pieces), np.intc)


class _Pieces(dict[str, bytes]):
    """Cache of the tokens of pieces between spaces, as bytes of 32-bit integers."""

    def __init__(self, token: dict[str, int]):
        self._token = token

    def __missing__(self, piece: str) -> bytes:
        tokens = array("i", [self._token.get(word, UNKNOWN) for word in split(piece)])
        return self.setdefault(piece, tokens.tobytes())


def decode(token: int, known: tuple[str, ...]) -> str:
    """Returns the word of a token; ``<unknown>`` for tokens without a word.

    Example:
      >>> decode(3, ("b", "a")), decode(1, ("b", "a"))
      ('b', '<unknown>')
    """
    i = token - _N_SPECIAL
    return known[i] if 0 <= i < len(known) else "<unknown>"


def check_vocabulary(vocabulary: int, min_count: int) -> None:
    """Raises ValueError unless a vocabulary has room for words."""
    if vocabulary <= _N_SPECIAL:
        raise ValueError(
            f"`vocabulary` must be greater than {_N_SPECIAL}, the number of special "
            f"tokens, got {vocabulary}; 30,000 is usual."
        )
    if min_count < 1:
        raise ValueError(
            f"`min_count` must be at least 1, got {min_count}; 1 includes every word."
        )
