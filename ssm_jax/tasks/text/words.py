"""Words as tokens: how a text is split, and which words a vocabulary has.

A text is lower-cased; then each longest run of letters, digits and underscores is a
word, and every other character that is no space is a word of its own.
"""

import dataclasses
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

PADDING, UNKNOWN, SEPARATOR = range(3)
"""The tokens before those of words: no step, a word not in the vocabulary, and what
stands between the two sentences of a pair, or between documents."""

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
    """The words that have a token of their own.

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
        """Takes the most frequent words of some texts.

        Args:
          texts: Where the words are counted.
          size: Tokens at most, those for padding, unknown words and separators among
            them.
          min_count: How often a word must occur at least.

        Returns:
          The words by falling count, those of equal count in the order of their
          characters' numbers.
        """
        # No word has a space in it, and what stands between spaces is often the same:
        # it is split once and not each time, which takes a third of the time.
        pieces: Counter[str] = Counter()
        for text in texts:
            pieces.update(text.lower().split())
        counts: Counter[str] = Counter()
        for piece, count in pieces.items():
            for word in split(piece):
                counts[word] += count
        frequent = (word for word, count in counts.items() if count >= min_count)
        words = sorted(frequent, key=lambda word: (-counts[word], word))
        return cls(tuple(words[: max(size - _N_SPECIAL, 0)]))

    def encode(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """Gives the tokens of each text, int32."""
        token = {word: token for token, word in enumerate(self.words, _N_SPECIAL)}
        tokens_of = _Pieces(token)
        for text in texts:
            found = map(tokens_of.__getitem__, text.lower().split())
            yield np.frombuffer(b"".join(found), np.intc)


class _Pieces(dict[str, bytes]):
    """The tokens of what stands between two spaces, as the bytes of 32-bit integers."""

    def __init__(self, token: dict[str, int]):
        self._token = token

    def __missing__(self, piece: str) -> bytes:
        tokens = array("i", [self._token.get(word, UNKNOWN) for word in split(piece)])
        return self.setdefault(piece, tokens.tobytes())


def decode(token: int, known: tuple[str, ...]) -> str:
    """The word of a token; ``<unknown>`` if it is that of no word.

    Example:
      >>> decode(3, ("b", "a")), decode(1, ("b", "a"))
      ('b', '<unknown>')
    """
    place = token - _N_SPECIAL
    return known[place] if 0 <= place < len(known) else "<unknown>"


def check_vocabulary(vocabulary: int, min_count: int) -> None:
    """Raises ValueError unless there can be words in a vocabulary."""
    if vocabulary <= _N_SPECIAL:
        raise ValueError(
            f"`vocabulary` must be greater than {_N_SPECIAL}, the tokens that are no "
            f"words, got {vocabulary}; 30,000 is usual."
        )
    if min_count < 1:
        raise ValueError(
            f"`min_count` must be at least 1, got {min_count}; 1 takes every word."
        )
