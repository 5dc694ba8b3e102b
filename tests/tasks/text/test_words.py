"""The tokenizer of words against a loop over characters."""

import numpy as np
import pytest

from ssm_jax.tasks.text import words


def word_tokens(known: tuple[str, ...], text: str) -> list[int]:
    """Tokenizes a text one character at a time."""
    found_words, word = [], ""
    for character in text.lower() + " ":
        if character.isalnum() or character == "_":
            word += character
            continue
        found_words += [word] if word else []
        word = ""
        found_words += [] if character.isspace() else [character]
    return [known.index(w) + 3 if w in known else 1 for w in found_words]


TEXTS = [
    "",
    " \t\n ",
    "It's 3.50, isn't it?\u00a0Yes\u2014\u201cna\u00efve\u201d caf\u00e9s_1!",
    "\u0130stanbul STRASSE stra\u00dfe \u4f60\u597d\u3002\U0001f600\x1c\x85x",
]


@pytest.mark.parametrize("text", TEXTS)
def test_words_are_split_alike_by_pieces_and_character_by_character(text):
    known = words.Vocabulary.of(TEXTS, size=100)
    (row,) = known.encode([text])
    assert row.tolist() == word_tokens(known.words, text)
    assert row.dtype == np.int32
