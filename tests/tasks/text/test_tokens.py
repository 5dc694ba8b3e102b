"""Rows of tokens: two sentences are joined and truncated."""

import numpy as np
import pytest

from ssm_jax.tasks.text import tokens

JOINED = {
    "both fit": (3, 2, 6, (3, 2)),
    "both fit just": (3, 2, 7, (3, 2)),
    "longer first": (9, 2, 7, (4, 2)),
    "longer second": (2, 9, 7, (2, 4)),
    "both too long": (9, 9, 7, (3, 3)),
    "one more for the first": (9, 9, 8, (4, 3)),
    "nothing of one": (0, 9, 5, (0, 4)),
    "least": (9, 9, 3, (1, 1)),
}


@pytest.mark.parametrize("name", JOINED)
def test_joined_sentences_lose_the_end_of_the_longer_one(name):
    n_first, n_second, length, kept = JOINED[name]
    first, second = np.arange(10, 10 + n_first), np.arange(30, 30 + n_second)
    row = tokens.join(first, second, 2, length).tolist()
    assert row == [*range(10, 10 + kept[0]), 2, *range(30, 30 + kept[1])]
