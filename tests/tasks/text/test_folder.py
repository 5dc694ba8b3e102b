"""TextFolder: windows, streams, splits and separators, on known files."""

import dataclasses

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.text import documents
from tests.bad_inputs import refuses
from tests.tasks.raw_sets import novels

SPLITS: tuple[tasks.Split, ...] = ("train", "validation", "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a directory of 23 documents, and their texts."""
    path = tmp_path_factory.mktemp("novels")
    return path, novels(path, 23)


def numbers(split):
    """Returns the indices of the documents of a split."""
    place = {"validation": [0], "test": [1], "train": list(range(2, 10))}[split]
    return [i for i in range(23) if i % 10 in place]


def text_of(texts, split):
    """Returns the tokens of a split."""
    spelt = [0]
    for i in numbers(split):
        spelt += [byte + 1 for byte in texts[i].encode()] + [0]
    return np.array(spelt)


def epoch(task, split, batch_size):
    n = tasks.n_batches(task, split, batch_size)
    assert n is not None
    return [task.batch(split, i, batch_size, seed=0) for i in range(n)]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_row_of_a_stream_continues_the_previous_batch(folder, split, batch_size):
    path, texts = folder
    task = tasks.TextFolder(data_dir=str(path), length=7)
    batches, text = epoch(task, split, batch_size), text_of(texts, split)
    n = len(batches) * task.length
    for row in range(batch_size):
        inputs = np.concatenate([batch.inputs[row] for batch in batches])
        targets = np.concatenate([batch.targets[row] for batch in batches])
        counts = np.concatenate([batch.loss_mask[row] for batch in batches])
        start = row * n
        end = start + counts.sum()
        assert counts[: end - start].all()
        np.testing.assert_array_equal(inputs[counts], text[start:end])
        np.testing.assert_array_equal(targets[counts], text[start + 1 : end + 1])
    # Together they are the text: evaluation drops less than one window, training less
    # than one per stream.
    n_dropped = len(text) - 1 - sum(batch.loss_mask.sum() for batch in batches)
    assert 0 <= n_dropped < task.length * (batch_size if split == "train" else 1)


def test_streams_restart_in_each_epoch_independent_of_the_seed(folder):
    task = tasks.TextFolder(data_dir=str(folder[0]), length=7)
    n = tasks.n_batches(task, "train", 3)
    assert n is not None
    first = task.batch("train", 1, 3, seed=0)
    for again in (
        task.batch("train", 2 * n + 1, 3, seed=0),
        task.batch("train", 1, 3, 5),
    ):
        np.testing.assert_array_equal(again.inputs, first.inputs)


@pytest.mark.parametrize("split", SPLITS)
def test_shuffled_windows_are_those_of_the_stream(folder, split):
    path, _ = folder
    stream, shuffled = (
        tasks.TextFolder(data_dir=str(path), length=7, layout=layout)
        for layout in ("stream", "shuffled")
    )

    def windows(task):
        return [
            (*inputs, *targets)
            for batch in epoch(task, split, 1)
            for inputs, targets in zip(
                batch.inputs.tolist(), batch.targets.tolist(), strict=True
            )
        ]

    assert sorted(windows(shuffled)) == sorted(windows(stream))
    assert (windows(shuffled) != windows(stream)) == (split == "train")


@pytest.mark.parametrize("tokenizer", ["bytes", "words"])
def test_packed_documents_start_where_the_separators_are(folder, tokenizer):
    path, texts = folder
    vocabulary = 257 if tokenizer == "bytes" else 40
    task = tasks.TextFolder(
        data_dir=str(path),
        length=7,
        layout="packed",
        tokenizer=tokenizer,
        vocabulary=vocabulary,
    )
    for split in SPLITS:
        n = task.n_examples(split)
        batch = task.batch(split, 0, n, seed=0)
        assert batch.reset is not None and batch.reset.dtype == bool
        if split == "train":
            assert batch.loss_mask.all()
            continue  # in another order
        sizes = [
            len(texts[i].encode() if tokenizer == "bytes" else texts[i].split())
            for i in numbers(split)
        ]
        starts = np.cumsum([0, *(size + 1 for size in sizes)])
        is_valid = np.arange(7 * n) < sum(sizes) + len(sizes)
        np.testing.assert_array_equal(batch.loss_mask.ravel(), is_valid)
        resets = np.isin(np.arange(7 * n), starts)
        np.testing.assert_array_equal(batch.reset.ravel()[is_valid], resets[is_valid])
        edges = task.documents(split).tolist()
        assert edges == [*starts.tolist()]


def test_words_are_those_of_the_train_split_by_frequency(folder):
    path, texts = folder
    task = tasks.TextFolder(
        data_dir=str(path), length=5, tokenizer="words", vocabulary=9
    )
    counts: dict[str, int] = {}
    for i in numbers("train"):
        for word in texts[i].split():
            counts[word] = counts.get(word, 0) + 1
    frequent = sorted(counts, key=lambda word: (-counts[word], word))[:6]
    token = {word: i for i, word in enumerate(frequent, 3)}
    spelt = [2]
    for i in numbers("test"):
        spelt += [token.get(word, 1) for word in texts[i].split()] + [2]
    batch = task.batch("test", 0, task.n_examples("test"), seed=0)
    tokens = batch.inputs[batch.loss_mask]
    assert len(tokens) == len(spelt) - 1
    assert tokens.tolist() == spelt[: len(tokens)] and 1 in tokens


def test_splits_are_files_in_the_order_of_their_names(folder):
    files_by_split = documents.files(str(folder[0]))
    assert {
        split: [int(file.stem) for file in files]
        for split, files in files_by_split.items()
    } == {split: numbers(split) for split in SPLITS}


def test_files_of_a_run_are_no_text(folder):
    """A work dir may lie in the folder of the text."""
    before = documents.files(str(folder[0]))
    run = folder[0] / "runs" / "0"
    (run / "checkpoints" / "10").mkdir(parents=True)
    (run / "notes.txt").write_text("of the run")
    (run / "checkpoints" / "10" / "leaves.txt").write_text("of a checkpoint")
    assert documents.files(str(folder[0])) != before
    (run / "config.json").write_text("{}")
    assert documents.files(str(folder[0])) == before


def test_folders_named_as_splits_are_the_splits(tmp_path):
    for i, split in enumerate(SPLITS):
        (tmp_path / split / "deep").mkdir(parents=True)
        (tmp_path / split / "deep" / "b.txt").write_text("b" * 9)
        (tmp_path / split / "a.txt").write_text(str(i) * 9)
    (tmp_path / "README.txt").write_text("of no split")
    task = tasks.TextFolder(data_dir=str(tmp_path), length=20)
    for i, split in enumerate(SPLITS):
        (row,) = task.batch(split, 0, 1, seed=0).inputs.tolist()
        assert row == [0, *[49 + i] * 9, 0, *[99] * 9]


@pytest.mark.parametrize("tokenizer", ["bytes", "words"])
def test_one_or_two_files_are_cut(tokenizer, tmp_path):
    texts = ["ab cd " * 100, "ef gh " * 50]
    write(tmp_path, **dict(zip("ab", texts, strict=True)), empty="")
    vocabulary = {"bytes": 257, "words": 9}[tokenizer]
    task = tasks.TextFolder(
        data_dir=str(tmp_path), length=5, tokenizer=tokenizer, vocabulary=vocabulary
    )
    parts = {"train": (0, 480, 240), "validation": (480, 540, 270)}
    parts["test"] = (540, 600, 300)
    for split, (first, *ends) in parts.items():
        starts = first, first // 2
        pieces = [t[a:b] for t, a, b in zip(texts, starts, ends, strict=True)]
        expected = [token for piece in pieces for token in task.encode(piece)]
        assert task.text(split)[:-1].tolist() == expected
        assert task.n_tokens(split) == len(expected) + 1
    assert sorted(task.data_files()) == ["a.txt", "b.txt"]


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)


def test_folder_that_is_not_there_is_an_error(tmp_path):
    for missing in (None, str(tmp_path / "nowhere")):
        task = tasks.TextFolder(data_dir=missing)
        with pytest.raises(FileNotFoundError, match=f"{missing}.*--data_dir"):
            task.batch("train", 0, 1, seed=0)


REFUSED = {
    "no files": ({}, "data_dir", "train", ""),
    "empty": ({"a": "", "b": "", "c": ""}, "data_dir", "train", ""),
    "two files": ({"a": "one", "b": "two", "c": ""}, "length", "4", 6),
    "short": ({"a": "one", "b": "four", "c": "seven"}, "length", "5", 6),
}


@pytest.mark.parametrize("name", REFUSED)
def test_too_little_text_is_an_error_of_one_line(tmp_path, name):
    texts, field, rule, value = REFUSED[name]
    write(tmp_path, **texts)
    task = tasks.TextFolder(data_dir=str(tmp_path), length=6)
    with refuses(field, value, rule=rule):
        task.batch("test", 0, 1, seed=0)


BAD_FIELDS = {
    "length": ({"length": 0}, "length", "at least 1", 0),
    "tokenizer": ({"tokenizer": "bpe"}, "tokenizer", "bytes, words", "'bpe'"),
    "layout": ({"layout": "rows"}, "layout", "stream, shuffled, packed", "'rows'"),
    "bytes": ({"vocabulary": 256}, "vocabulary", "257", 256),
    "words": ({"tokenizer": "words", "vocabulary": 3}, "vocabulary", "3", 3),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_bad_field_is_an_error_of_one_line(name, unchecked):
    fields, field, rule, value = BAD_FIELDS[name]
    with refuses(field, value, rule=rule):
        tasks.TextFolder(**fields)


def test_decode_inverts_encode(folder):
    task = tasks.TextFolder(data_dir=str(folder[0]))
    text = "Où est-il?"
    assert b"".join(map(task.decode, task.encode(text))) == b"\n\n" + text.encode()
    words = dataclasses.replace(task, tokenizer="words", vocabulary=50)
    known = words.decode(3).decode().strip()
    spelt = b"".join(map(words.decode, words.encode(f"{known} zzzz"))).decode()
    assert spelt == f"\n\n{known} <unknown> "
