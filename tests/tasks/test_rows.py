"""The rows of a process: those of the whole batch, and all that it reads."""

import builtins
import io
import itertools

import numpy as np
import pytest

from ssm_jax import tasks
from ssm_jax.tasks.base import rows_of_batch
from ssm_jax.tasks.pathfinder import settings
from ssm_jax.tasks.pathfinder.prepare import write_images
from ssm_jax.tasks.speech import recordings
from ssm_jax.tasks.text import on_disk
from ssm_jax.tasks.tfds import reading, task as tfds_task
from tests.tasks.arrays import test_dataset
from tests.tasks.test_contract import ENDLESS, FINITE, SPLITS, STREAMS
from tests.tiers import tiered

PREPARED = {
    "pathfinder_prepared": lambda images_dir: tasks.Pathfinder(
        data_dir=images_dir, n_train=99, n_validation=9, n_test=11
    ),
    "segmentation_prepared": lambda images_dir: tasks.PathfinderSegmentation(
        data_dir=images_dir, size=64, n_train=99, n_validation=9, n_test=11
    ),
}
# Of the fast tier.
BRIEF = ("grain", "series_forecast", "text_stream", "tfds")
BATCH_SIZE = 16
N_PROCESSES = (1, 2, 3, 8)


@pytest.fixture(scope="session")
def images_dir(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("images")
    for setting in (settings.PATHFINDER[32], settings.SEGMENTATION[64]):
        write_images(folder, setting, n=130, workers=1)
    return str(folder)


@pytest.fixture
def task(make, sets_dir, request) -> tasks.Task:
    is_prepared = make in PREPARED.values()
    return make(request.getfixturevalue("images_dir") if is_prepared else sets_dir)


def rows_of(n_processes, batch_size):
    """The rows of each process; of sizes that differ by one if they must."""
    edges = np.linspace(0, batch_size, n_processes + 1).astype(int).tolist()
    return [slice(*pair) for pair in itertools.pairwise(edges)]


def requests(task):
    """Batches of all splits: of two epochs of training, and the last of the others."""
    for split in SPLITS:
        n = task.n_examples(split)
        size = min(BATCH_SIZE, n or BATCH_SIZE)
        size = size if split == "train" else BATCH_SIZE
        n_batches = tasks.n_batches(task, split, size) or 2
        last = n_batches if split == "train" else n_batches - 1
        for index, seed in ((0, 0), (last, 3)):
            yield split, index, size, seed


@pytest.mark.parametrize("make", tiered(ENDLESS | FINITE | STREAMS | PREPARED, BRIEF))
def test_rows_of_all_processes_are_the_whole_batch(task):
    for asked in requests(task):
        whole = task.batch(*asked)
        for n_processes in N_PROCESSES:
            parts = [
                rows_of_batch(task, *asked, rows)
                for rows in rows_of(n_processes, asked[2])
            ]
            for found, *arrays in zip(whole, *parts, strict=True):
                if found is None:
                    assert all(array is None for array in arrays)
                    continue
                joined = np.concatenate(arrays)
                np.testing.assert_array_equal(joined, found)
                assert joined.dtype == found.dtype


def one(*args):
    return 1


# What reads an example of a row from a file, and how many it reads in a call.
RECORDS = (reading.Records, "read", lambda self, rows: len(rows))
READ = {
    "audio_folder": (tasks.AudioFolder, "read_steps", one),
    "image_folder": (tasks.ImageFolder, "read_steps", one),
    "grain": (test_dataset.Elements, "__getitem__", one),
    "pathfinder_prepared": RECORDS,
    "segmentation_prepared": RECORDS,
    "speech_commands": (recordings, "read", one),
    "tfds": RECORDS,
    "retrieval": RECORDS,
    "text_shuffled": (on_disk.ByteFiles, "__getitem__", one),
    "text_packed": (on_disk.ByteFiles, "__getitem__", one),
    "text_stream": (on_disk.ByteFiles, "__getitem__", one),
}
# Read once by each process, into memory or, of words, to a temporary file.
HELD = {
    "arrays", "long_table", "pixel_mnist", "pixel_mnist_permuted", "pixel_mnist_rows",
    "pixel_cifar10", "imdb_bytes", "imdb_words", "glue_sentence", "glue_pair",
    "series_forecast", "series_classes", "text_words", "text_stream_words",
}  # fmt: skip
NO_FILES = {
    "digits", "listops", "listops_subtrees", "mixture_sines", "mixture_polynomials",
    "pathfinder", "pathfinder_segmentation",
}  # fmt: skip


def test_every_task_is_known_to_read_rows_or_to_hold_its_file():
    assert READ.keys() | HELD | NO_FILES == (FINITE | STREAMS | PREPARED).keys()
    assert len(READ) + len(HELD) + len(NO_FILES) == len(FINITE | STREAMS | PREPARED)


@pytest.mark.parametrize("name", tiered(list(READ), BRIEF))
def test_each_process_reads_its_rows_alone(name, sets_dir, request, monkeypatch):
    make = (FINITE | STREAMS | PREPARED)[name]
    is_prepared = name in PREPARED
    folder = request.getfixturevalue("images_dir") if is_prepared else sets_dir
    owner, attribute, count = READ[name]
    read, n_read = getattr(owner, attribute), 0

    def counted(*args):
        nonlocal n_read
        n_read += count(*args)
        return read(*args)

    monkeypatch.setattr(owner, attribute, counted)
    for asked, n_processes in itertools.product(requests(make(folder)), N_PROCESSES):
        for rows in rows_of(n_processes, asked[2]):
            # As in another process, which has counted its examples.
            tfds_task._splits.cache_clear()
            task = make(folder)
            task.n_examples(asked[0])
            n_read = 0
            batch = rows_of_batch(task, *asked, rows)
            counts = batch.loss_mask.reshape(len(batch.loss_mask), -1).any(1)
            # The example that pads a batch is read too, and a first one may be known.
            assert n_read <= counts.sum() + (not counts.all())
            assert n_read >= counts.sum() - 1


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(HELD))
def test_set_that_is_held_is_read_no_more(name, sets_dir, monkeypatch):
    task = (FINITE | STREAMS)[name](sets_dir)
    task.batch("train", 0, 4, 0)

    def refuse(*args, **kwargs):
        raise AssertionError(f"reads {args}")

    for owner, attribute in ((builtins, "open"), (io, "open"), RECORDS[:2]):
        monkeypatch.setattr(owner, attribute, refuse)
    assert len(rows_of_batch(task, "train", 1, 4, 0, slice(2, 4)).inputs) == 2
