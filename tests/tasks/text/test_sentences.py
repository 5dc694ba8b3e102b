"""Reviews and sentences of GLUE, on sets prepared from known sentences."""

import dataclasses

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.text import sentences, words
from tests.bad_inputs import refuses
from tests.tasks import raw_sets
from tests.tasks.text.test_words import word_tokens

SPLITS: tuple[tasks.Split, ...] = ("train", "validation", "test")


def whole(task, split):
    """Returns all examples of a split as one batch."""
    return task.batch(split, 0, task.n_examples(split), seed=0)


def decode(row, mask):
    """Returns the text of a row of bytes."""
    assert (row[mask] > 0).all() and not row[~mask].any()
    return bytes((row[mask] - 1).astype(np.uint8)).decode()


def test_bytes_are_those_of_the_reviews_and_labels_theirs(sets_dir):
    task = tasks.ImdbBytes(data_dir=sets_dir, length=70, n_validation=10)
    number = {raw_sets.sentence(i): i for i in range(45)}
    indices = {}
    for split in SPLITS:
        batch = whole(task, split)
        read = map(decode, batch.inputs, batch.mask)
        indices[split] = [number[text] for text in read]
        assert batch.targets.tolist() == [i % 2 for i in indices[split]]
    assert sorted(indices["train"] + indices["validation"]) == list(range(34))
    assert sorted(indices["test"]) == list(range(34, 45))


def test_longer_reviews_are_truncated(sets_dir):
    long, short = (
        tasks.ImdbBytes(data_dir=sets_dir, length=length, n_validation=10)
        for length in (70, 7)
    )
    np.testing.assert_array_equal(
        whole(short, "test").inputs, whole(long, "test").inputs[:, :7]
    )
    assert whole(short, "test").mask.all()


def test_validation_is_a_fixed_draw_that_grows(sets_dir):
    few, many = (
        tasks.ImdbBytes(data_dir=sets_dir, length=70, n_validation=n) for n in (4, 10)
    )
    few, many = (
        {row.tobytes() for row in whole(task, "validation").inputs}
        for task in (few, many)
    )
    assert len(few) == 4 and few < many


def test_validation_draw_is_fixed():
    # Recorded results depend on it: it must not change between releases.
    held_out = sentences.hold_out(25_000, 2_500, "")["validation"]
    assert held_out[:5].tolist() == [2, 7, 34, 39, 43]


@pytest.mark.parametrize("name", ["cola", "mrpc"])
def test_words_are_those_of_the_sentences_and_labels_theirs(sets_dir, name):
    task = tasks.Glue(name=name, data_dir=sets_dir, length=40, n_validation=10)
    known = task.words().words
    expected = {}
    for i in range(45):
        text = raw_sets.sentence(i)
        row = word_tokens(known, text)
        if name == "mrpc":
            row += [2, *word_tokens(known, text.split("as ", 1)[1])]
        expected[tuple(row)] = i
    indices = {}
    for split in SPLITS:
        batch = whole(task, split)
        rows = zip(batch.inputs, batch.mask, strict=True)
        indices[split] = [expected[tuple(row[mask].tolist())] for row, mask in rows]
        assert batch.targets.tolist() == [i % 2 for i in indices[split]]
        assert not batch.inputs[~batch.mask].any()
    published = set(range(34, 45)) if name == "cola" else set(range(0, 44, 4))
    assert set(indices["test"]) == published
    assert sorted(sum(indices.values(), [])) == list(range(45))


def test_vocabulary_is_that_of_the_train_split_alone(sets_dir):
    task = tasks.ImdbWords(data_dir=sets_dir, n_validation=10, length=40, min_count=1)
    batch = whole(
        tasks.ImdbBytes(data_dir=sets_dir, n_validation=10, length=70), "train"
    )
    texts = list(map(decode, batch.inputs, batch.mask))
    counts = {}
    for text in texts:
        for word in words.split(text):
            counts[word] = counts.get(word, 0) + 1
    by_count = sorted(counts, key=lambda word: (-counts[word], word))
    assert task.words().words == tuple(by_count)
    frequent = dataclasses.replace(task, min_count=25)
    frequent_words = tuple(word for word in by_count if counts[word] >= 25)
    assert (
        0 < len(frequent_words) < len(by_count)
        and frequent.words().words == frequent_words
    )
    small = dataclasses.replace(task, vocabulary=8)
    assert small.words().words == tuple(by_count[:5])
    inputs = whole(small, "test").inputs
    assert set(np.unique(inputs).tolist()) == {0, words.UNKNOWN, 3, 4, 5, 6, 7}


def test_glue_holds_out_as_many_as_it_tests_on(sets_dir):
    task = tasks.Glue(name="cola", data_dir=sets_dir)
    assert [task.n_examples(split) for split in SPLITS] == [23, 11, 11]


BAD_FIELDS = {
    "length": (lambda: tasks.ImdbBytes(length=2), "length", 2),
    "pairs": (lambda: tasks.Retrieval(length=0), "length", 0),
    "glue": (lambda: tasks.Glue(name="cola", length=1), "length", 1),
    "words": (lambda: tasks.ImdbWords(length=1), "length", 1),
    "vocabulary": (
        lambda: tasks.ImdbWords(vocabulary=3),
        "vocabulary",
        3,
    ),
    "min_count": (
        lambda: tasks.Glue(name="sst2", min_count=0),
        "min_count",
        0,
    ),
    "name": (
        lambda: tasks.Glue(name="rte"),  # pyright: ignore[reportArgumentType]
        "name",
        "'rte'",
    ),
}


@pytest.mark.parametrize("field", BAD_FIELDS)
def test_bad_field_is_an_error_of_one_line(field, unchecked):
    make, name, value = BAD_FIELDS[field]
    with refuses(name, value):
        make()
