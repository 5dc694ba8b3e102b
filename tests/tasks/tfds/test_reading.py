"""Errors of sets that are missing, damaged or of another format."""

import json
import os
import pathlib
import shutil

import pytest

from ssm_jax import tasks
from ssm_jax.tasks.images import pixels
from ssm_jax.tasks.pathfinder.examples import prepared_set
from ssm_jax.tasks.pathfinder.settings import PATHFINDER, SEGMENTATION
from ssm_jax.tasks.text import glue, imdb, retrieval
from ssm_jax.tasks.tfds import reading
from tests.bad_inputs import refuses

SETS = {
    "mnist": (pixels.MNIST, lambda folder: tasks.PixelMnist(data_dir=folder)),
    "cifar10": (pixels.CIFAR10, lambda folder: tasks.PixelCifar10(data_dir=folder)),
    "imdb_reviews": (imdb.IMDB, lambda folder: tasks.ImdbBytes(data_dir=folder)),
    "imdb_words": (imdb.IMDB, lambda folder: tasks.ImdbWords(data_dir=folder)),
    "aan": (retrieval.AAN, lambda folder: tasks.Retrieval(data_dir=folder)),
    "pathfinder": (
        prepared_set(PATHFINDER[128]),
        lambda folder: tasks.Pathfinder(data_dir=folder, size=128),
    ),
    "segmentation": (
        prepared_set(SEGMENTATION[256]),
        lambda folder: tasks.PathfinderSegmentation(data_dir=folder, size=256),
    ),
} | {
    f"glue_{name}": (
        glue.SETS[name].prepared,
        lambda folder, name=name: tasks.Glue(name=name, data_dir=folder),
    )
    for name in glue.SETS
}
every_set = pytest.mark.parametrize(
    "prepared, make", SETS.values(), ids=list(SETS.keys())
)


def message_of(kind, make, folder) -> str:
    """Returns the message of the error at the first batch."""
    with pytest.raises(kind) as error:
        make(str(folder)).batch("test", 0, 1, seed=0)
    message = str(error.value)
    assert "\n" not in message and message.endswith(".")
    return message


@every_set
def test_missing_set_is_an_error_that_says_how_to_prepare_it(prepared, make, tmp_path):
    message = message_of(FileNotFoundError, make, tmp_path)
    assert message.startswith("`data_dir` must ")
    assert f"{tmp_path}/{prepared.folder}" in message
    command = f"--dataset={prepared.name} --data_dir={tmp_path}"
    assert f"`python -m launch.prepare {command}`" in message
    assert not list(tmp_path.iterdir())


@pytest.fixture
def sets_copy(sets_dir, tmp_path):
    """Returns a copy of the sets that a test may damage."""
    return pathlib.Path(shutil.copytree(sets_dir, tmp_path / "copy"))


def cola(folder):
    return tasks.Glue(name="cola", data_dir=folder, n_validation=5)


def test_set_in_another_format_is_an_error(sets_copy):
    info = sets_copy / "glue/cola/2.0.0/dataset_info.json"
    described = json.loads(info.read_text()) | {"fileFormat": "tfrecord"}
    info.write_text(json.dumps(described))
    message = message_of(ValueError, cola, sets_copy)
    assert "format" in message


@pytest.mark.parametrize("lacking", ["split 'validation'", "feature 'label'"])
def test_set_without_what_the_task_reads_is_an_error(sets_copy, lacking):
    what = "glue/cola/2.0.0" if "split" in lacking else "imdb_reviews/plain_text/1.0.0"
    info = sets_copy / what / "dataset_info.json"
    if "split" in lacking:
        described = json.loads(info.read_text())
        described["splits"] = described["splits"][:1]
        info.write_text(json.dumps(described))
        message = message_of(ValueError, cola, sets_copy)
    else:
        features = info.with_name("features.json")
        described = json.loads(features.read_text())
        del described["featuresDict"]["features"]["label"]
        features.write_text(json.dumps(described))
        make = SETS["imdb_reviews"][1]
        message = message_of(ValueError, make, sets_copy)
    assert lacking in message


def truncate(path):
    path.write_bytes(path.read_bytes()[:-70_000])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-len(content) // 2 :: 7] = b"\x55" * len(content[-len(content) // 2 :: 7])
    path.write_bytes(content)


DAMAGE = {
    "cut": ("*train.array_record*", truncate),
    "flipped": ("*train.array_record*", flip),
    "cut to a block": ("*train.array_record*", lambda path: os.truncate(path, 2**16)),
    "empty": ("*train.array_record*", lambda path: path.write_bytes(b"")),
    "gone": ("*train.array_record*", pathlib.Path.unlink),
    "info": ("dataset_info.json", lambda path: path.write_text("{")),
    "features": ("features.json", pathlib.Path.unlink),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_set_is_an_error_that_says_what_to_remove(sets_copy, name):
    pattern, damage = DAMAGE[name]
    (path,) = (sets_copy / "glue/cola/2.0.0").glob(pattern)
    damage(path)
    message = message_of(ValueError, cola, sets_copy)
    assert "damaged" in message
    assert f"{sets_copy}/glue/cola/2.0.0" in message
    assert "`python -m launch.prepare" in message
    with pytest.raises(ValueError, match="damaged"):
        glue.SETS["cola"].prepared.is_there(str(sets_copy))


def test_a_label_that_is_no_class_is_an_error(sets_dir):
    # GLUE's own test split, whose labels are hidden.
    hidden = glue._set("cola", "sentence", test="test")
    with pytest.raises(ValueError, match=r"\[0, 2\).*-1"):
        hidden.read(sets_dir, "test")


def test_is_there_is_true_for_complete_sets_only(sets_dir, tmp_path):
    assert pixels.MNIST.is_there(sets_dir)
    assert not pixels.MNIST.is_there(str(tmp_path))


def test_records_are_read_in_any_order(sets_dir):
    records = retrieval.AAN.open(sets_dir, "test")
    one_by_one = [record.text("text1") for record in records]
    selection = records.read([3, 0, 3])
    assert len(records) == len(one_by_one) == 11
    assert [r.text("text1") for r in selection] == [one_by_one[i] for i in (3, 0, 3)]


@pytest.mark.parametrize("n_validation", [0, -1, 34])
@pytest.mark.parametrize(
    "make", [tasks.PixelMnist, tasks.PixelCifar10, tasks.ImdbBytes, tasks.ImdbWords]
)
def test_validation_that_leaves_a_split_empty_is_an_error(sets_dir, make, n_validation):
    task = make(data_dir=sets_dir, n_validation=n_validation)
    with refuses("n_validation", n_validation, rule="33"):
        task.n_examples("train")


def test_prepared_set_is_where_tfds_keeps_its_sets(monkeypatch):
    from tensorflow_datasets.core import constants

    assert reading.PreparedSet("a", "a/1.0.0", ()).path(None) == (
        f"{constants.DATA_DIR}/a/1.0.0"
    )
