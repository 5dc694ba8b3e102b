"""The contract of tasks, tested for each of them; a new task is a new row."""

import dataclasses
import shutil

import chex
import pytest

from ssm_jax import tasks, testing
from ssm_jax.tasks.fingerprint import fingerprint_of, same
from tests.bad_inputs import refuses
from tests.tasks.arrays.test_dataset import Source
from tests.tasks.raw_sets import BEIJING

SPLITS = ("train", "validation", "test")
ENDLESS = {
    "shift": lambda mnist_dir: tasks.Shift(length=32, n_shifts=4),
    "shift_odd": lambda mnist_dir: tasks.Shift(length=13, n_shifts=5),
    "cumsum": lambda mnist_dir: tasks.CumSum(length=33),
    "cummax": lambda mnist_dir: tasks.CumMax(length=33),
    "reverse": lambda mnist_dir: tasks.Reverse(length=17),
    "sort": lambda mnist_dir: tasks.Sort(length=17),
    "select": lambda mnist_dir: tasks.Select(length=20, n_selected=5),
    "select_fixed": lambda mnist_dir: tasks.SelectFixed(length=20, n_selected=5),
    "mips": lambda mnist_dir: tasks.MIPS(length=70),
    "context_shift": lambda mnist_dir: tasks.ContextShift(length=33),
    "solve": lambda mnist_dir: tasks.Solve(length=33),
    "solve_fixed": lambda mnist_dir: tasks.SolveFixed(length=33),
    "associative_recall": lambda mnist_dir: tasks.AssociativeRecall(
        length=32, vocabulary=64, n_pairs=4
    ),
    "selective_copying": lambda mnist_dir: tasks.SelectiveCopying(length=32, n_data=8),
    "induction_heads": lambda mnist_dir: tasks.InductionHeads(length=33),
    "copying": lambda mnist_dir: tasks.Copying(length=33, longest=8),
    "parity": lambda mnist_dir: tasks.Parity(length=64, shortest=32, last_only=True),
    "modular_sums": lambda mnist_dir: tasks.ModularSums(length=33),
    "group_words": lambda mnist_dir: tasks.GroupWords(length=33, bos=True),
    "needle": lambda mnist_dir: tasks.NeedleInHaystack(length=80),
}
FINITE = {
    "arrays": lambda sets_dir: tasks.ArrayTask(
        file="arrays.npz",
        data_dir=sets_dir,
        length=20,
        inputs="vector",
        d_input=2,
        targets="classification",
        d_output=20,
        per_step=True,
    ),
    "audio_folder": lambda sets_dir: tasks.AudioFolder(
        data_dir=f"{sets_dir}/sounds", sample_rate=8_000, length=60
    ),
    "image_folder": lambda sets_dir: tasks.ImageFolder(
        data_dir=f"{sets_dir}/pictures", size=(5, 7), channels="rgb"
    ),
    "long_table": lambda sets_dir: tasks.LongTable(
        file="long.csv",
        data_dir=sets_dir,
        example="id",
        target="label",
        features=("x", "y"),
        length=9,
        classes=("down", "up"),
    ),
    "digits": lambda mnist_dir: tasks.Digits(),
    "grain": lambda mnist_dir: tasks.GrainTask(
        source=Source(padded=True, augmented=False),
        length=5,
        inputs="vector",
        d_input=2,
        targets="classification",
        d_output=3,
        padded=True,
    ),
    "listops": lambda mnist_dir: tasks.ListOps(
        n_train=99, n_validation=20, n_test=30, min_length=20, max_length=60
    ),
    "listops_subtrees": lambda mnist_dir: tasks.ListOpsSubTrees(
        n_train=99, n_validation=20, n_test=30, min_length=20, max_length=60, length=62
    ),
    "mixture_sines": lambda mnist_dir: tasks.Mixture(
        length=20, n_train=99, n_validation=20, n_test=30
    ),
    "mixture_polynomials": lambda mnist_dir: tasks.Mixture(
        degree=5, target="next", length=20, n_train=99, n_validation=20, n_test=30
    ),
    "pathfinder": lambda mnist_dir: tasks.Pathfinder(
        n_train=99, n_validation=20, n_test=30
    ),
    "pathfinder_segmentation": lambda mnist_dir: tasks.PathfinderSegmentation(
        size=64, n_train=99, n_validation=20, n_test=30
    ),
    "pixel_mnist": lambda mnist_dir: tasks.PixelMnist(
        data_dir=mnist_dir, n_validation=10
    ),
    "pixel_mnist_permuted": lambda mnist_dir: tasks.PixelMnist(
        data_dir=mnist_dir, n_validation=10, permuted=True
    ),
    "pixel_mnist_rows": lambda mnist_dir: tasks.PixelMnist(
        data_dir=mnist_dir, n_validation=12, rows=True, size=14, pooled=True
    ),
    "pixel_cifar10": lambda sets_dir: tasks.PixelCifar10(
        data_dir=sets_dir, n_validation=10
    ),
    "imdb_bytes": lambda sets_dir: tasks.ImdbBytes(
        data_dir=sets_dir, length=70, n_validation=10
    ),
    "imdb_words": lambda sets_dir: tasks.ImdbWords(
        data_dir=sets_dir, length=20, vocabulary=40, n_validation=10
    ),
    "glue_sentence": lambda sets_dir: tasks.Glue(
        name="cola", data_dir=sets_dir, length=20, vocabulary=40, n_validation=10
    ),
    "glue_pair": lambda sets_dir: tasks.Glue(
        name="mrpc", data_dir=sets_dir, length=30, vocabulary=40, n_validation=10
    ),
    "speech_commands": lambda sets_dir: tasks.SpeechCommands(
        data_dir=f"{sets_dir}/speech"
    ),
    "series_forecast": lambda sets_dir: tasks.SeriesTask(
        file=BEIJING,
        data_dir=sets_dir,
        target="pm2.5",
        inputs=("pm2.5", "TEMP"),
        missing="last",
        window=6,
        horizon=2,
        stride=9,
    ),
    "series_classes": lambda sets_dir: tasks.SeriesTask(
        file=BEIJING,
        data_dir=sets_dir,
        target="cbwd",
        inputs=("TEMP", "DEWP"),
        classes=("NW", "cv", "SE", "NE"),
        window=6,
        horizon=0,
        stride=9,
    ),
    "tfds": lambda sets_dir: tasks.TFDSTask(
        name="imdb_reviews/plain_text/1.0.0",
        feature="text",
        inputs="bytes",
        length=70,
        n_classes=2,
        data_dir=sets_dir,
        n_validation=10,
    ),
    "retrieval": lambda sets_dir: tasks.Retrieval(data_dir=sets_dir, length=70),
    "text_shuffled": lambda sets_dir: text(sets_dir, layout="shuffled", length=20),
    "text_packed": lambda sets_dir: text(sets_dir, layout="packed", length=20),
    "text_words": lambda sets_dir: text(
        sets_dir, layout="shuffled", tokenizer="words", vocabulary=30, length=5
    ),
}
# Rows continue from batch to batch, so the order does not depend on the seed.
STREAMS = {
    "text_stream": lambda sets_dir: text(sets_dir, length=20),
    "text_stream_words": lambda sets_dir: text(
        sets_dir, tokenizer="words", vocabulary=30, length=5
    ),
}


def text(sets_dir, **fields):
    return tasks.TextFolder(data_dir=f"{sets_dir}/novels", **fields)


def each_row(table):
    return pytest.mark.parametrize("make", table.values(), ids=table.keys())


@pytest.fixture
def task(make, sets_dir) -> tasks.Task:
    return make(sets_dir)


def sequences(batch: tasks.Batch) -> list[bytes]:
    """Returns the bytes of the sequences that have a target in the loss."""
    counts = batch.loss_mask.reshape(len(batch.loss_mask), -1).any(axis=1)
    return [row.tobytes() for row in batch.inputs[counts]]


@each_row(ENDLESS | FINITE | STREAMS)
def test_task_keeps_the_contract_that_users_check(task):
    """Shapes and types of batches, equal batches for equal arguments, whole splits."""
    testing.check_task(task)
    batch = task.batch("test", 0, 3, seed=0)
    assert (batch.reset is not None) == task.spec.resets


@each_row(ENDLESS | FINITE | STREAMS)
@pytest.mark.parametrize("split", SPLITS)
def test_batch_does_not_depend_on_earlier_requests(task, split):
    first = task.batch(split, 1, 4, seed=3)
    task.batch(split, 0, 5, seed=4)
    twin = dataclasses.replace(task)
    chex.assert_trees_all_equal(first, twin.batch(split, 1, 4, seed=3))


@each_row(ENDLESS | FINITE | STREAMS)
@pytest.mark.parametrize("split", SPLITS)
def test_another_index_gives_other_sequences(task, split):
    first, second = (sequences(task.batch(split, i, 4, seed=0)) for i in (0, 1))
    assert not set(first) & set(second)


@each_row(ENDLESS | FINITE)
def test_another_seed_gives_other_train_batches(task):
    first, second = (sequences(task.batch("train", 0, 4, seed=s)) for s in (0, 1))
    assert first != second


@each_row(ENDLESS | FINITE | STREAMS)
def test_splits_share_no_sequence(task):
    size = {split: task.n_examples(split) or 4 for split in SPLITS}
    rows = {split: sequences(task.batch(split, 0, size[split], 0)) for split in SPLITS}
    together = sum(rows.values(), start=[])
    assert len(set(together)) == len(together) == sum(size.values())


@each_row(ENDLESS | FINITE | STREAMS)
def test_writing_into_a_batch_does_not_change_later_batches(task):
    first = task.batch("test", 0, 4, seed=0)
    inputs = first.inputs.copy()
    first.inputs[:] = -1.0
    first.targets[:] = 0
    chex.assert_trees_all_equal(task.batch("test", 0, 4, seed=0).inputs, inputs)


@each_row(ENDLESS)
def test_endless_task_has_no_count(task):
    for split in SPLITS:
        assert task.n_examples(split) is None
        assert tasks.n_batches(task, split, 4) is None


@each_row(FINITE | STREAMS)
def test_train_epoch_has_every_example_once(task):
    n = task.n_examples("train")
    size = n // 3
    assert tasks.n_batches(task, "train", size) == 3 and n % 3 == 0
    epochs = [
        [row for i in range(3 * e, 3 * e + 3) for row in sequences(batch_at(task, i))]
        for e in (0, 1)
    ]
    assert len(set(epochs[0])) == n
    assert sorted(epochs[0]) == sorted(epochs[1])


@each_row(FINITE)
def test_train_epochs_have_different_orders(task):
    first, second = (
        [row for i in range(3 * e, 3 * e + 3) for row in sequences(batch_at(task, i))]
        for e in (0, 1)
    )
    assert first != second


def batch_at(task, index):
    return task.batch("train", index, task.n_examples("train") // 3, seed=0)


@each_row(FINITE | STREAMS)
@pytest.mark.parametrize("split", ["validation", "test"])
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_evaluation_has_every_example_once_in_order(task, split, batch_size):
    n = task.n_examples(split)
    n_batches = tasks.n_batches(task, split, batch_size)
    assert n_batches is not None
    batches = [task.batch(split, i, batch_size, seed=0) for i in range(n_batches)]
    assert all(len(batch.inputs) == batch_size for batch in batches)
    rows = [row for batch in batches for row in sequences(batch)]
    whole = sequences(task.batch(split, 0, n, seed=1))
    ordered = sorted if getattr(task, "layout", None) == "stream" else list
    assert ordered(rows) == ordered(whole)
    assert len(set(rows)) == len(rows) == n


@each_row(FINITE | STREAMS)
def test_target_of_a_sequence_does_not_depend_on_its_position(task):
    n = task.n_examples("train")
    label_of = [
        dict(zip(sequences(batch), batch.targets.tolist(), strict=True))
        for batch in (task.batch("train", 0, n, seed) for seed in (0, 1))
    ]
    assert label_of[0] == label_of[1]


GENERATED = {
    "digits", "grain", "listops", "listops_subtrees", "mixture_sines",
    "mixture_polynomials", "pathfinder", "pathfinder_segmentation",
}  # fmt: skip


@pytest.mark.parametrize("name", FINITE | STREAMS)
def test_data_are_known_wherever_they_are_and_changes_are_seen(
    name, sets_dir, tmp_path
):
    make = (FINITE | STREAMS)[name]
    fingerprint = fingerprint_of(make(sets_dir))
    assert (fingerprint is None) == (name in GENERATED)
    if fingerprint is None:
        return
    moved = make(shutil.copytree(sets_dir, tmp_path / "moved").as_posix())
    again = fingerprint_of(moved)
    assert again is not None and same(again, fingerprint)
    files = moved.data_files()
    with files[max(files)].open("ab") as file:
        file.write(b"0")
    changed = fingerprint_of(moved)
    assert changed is not None and not same(changed, fingerprint)


BAD_REQUESTS = {
    "split": (("valid", 0, 4, 0), "'valid'"),
    "index": (("train", -1, 4, 0), -1),
    "batch_size": (("test", 0, 0, 0), 0),
    "seed": (("train", 0, 4, -2), -2),
}


@each_row(ENDLESS | FINITE | STREAMS)
@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_request_is_an_error_of_one_line(task, name, unchecked):
    arguments, value = BAD_REQUESTS[name]
    with refuses(name, value):
        task.batch(*arguments)


@each_row(ENDLESS | FINITE | STREAMS)
def test_unknown_split_is_an_error_that_names_the_splits(task, unchecked):
    for ask in (task.n_examples, lambda split: tasks.n_batches(task, split, 4)):
        with refuses("split", "'x'", rule="'train', 'validation', 'test'"):
            ask("x")


@each_row(FINITE | STREAMS)
def test_batch_greater_than_the_train_split_is_an_error(task):
    n = task.n_examples("train")
    with refuses("batch_size", n + 1, rule=str(n)):
        task.batch("train", 0, n + 1, seed=0)
    with refuses("batch_size", n + 1, rule=str(n)):
        tasks.n_batches(task, "train", n + 1)


@each_row(FINITE | STREAMS)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_index_beyond_the_end_is_an_error(task, split):
    end = tasks.n_batches(task, split, 4)
    with refuses("index", end, rule=split):
        task.batch(split, end, 4, seed=0)
