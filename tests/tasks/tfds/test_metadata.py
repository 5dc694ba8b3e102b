"""Sets of anyone: what their files name is neither imported nor a path to elsewhere."""

import gzip
import io
import json
import shutil
import struct
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from array_record.python import array_record_module
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2

from ssm_jax import tasks
from ssm_jax.tasks.images import prepare_mnist
from ssm_jax.tasks.pathfinder.examples import PreparedExamples
from ssm_jax.tasks.pathfinder.prepare import write_images
from ssm_jax.tasks.pathfinder.settings import PATHFINDER, SEGMENTATION
from ssm_jax.tasks.tfds import files, metadata, reading, writing
from tests.bad_inputs import refuses

PACKAGE = "tensorflow_datasets.core.features."
KINDS = {
    "image": {"pythonClassName": f"{PACKAGE}image_feature.Image"},
    "label": {"pythonClassName": f"{PACKAGE}class_label_feature.ClassLabel"},
}
TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
SIZE = 8
SET = {"name": "mine/1.0.0", "feature": "image", "inputs": "pixels", "length": SIZE**2}


def encoded(width=SIZE, kind="PNG", mode="L"):
    file = io.BytesIO()
    Image.new(mode, (width, SIZE)).save(file, kind)
    return file.getvalue()


def example(image, label=1):
    message = tf_example_pb2.Example()
    values = message.features.feature
    if image is not None:
        values["image"].bytes_list.value.append(image)
    if label is not None:
        values["label"].int64_list.value.append(label)
    return message.SerializeToString()


def write(folder, records=None, features=None, split=None, name="mine", **info):
    """Writes a set as TFDS does, of one image; returns its directory."""
    path = folder / "mine/1.0.0"
    path.mkdir(parents=True)
    records = [example(encoded())] if records is None else records
    splits = []
    for split_name in ("train", "test"):
        shard = f"mine-{split_name}.array_record-00000-of-00001"
        writer = array_record_module.ArrayRecordWriter(
            str(path / shard), "group_size:1"
        )
        for record in records:
            writer.write(record)
        writer.close()
        described = {"name": split_name, "shardLengths": [str(len(records))]}
        splits.append(described | {"filepathTemplate": TEMPLATE} | (split or {}))
    described = {"name": name, "fileFormat": "array_record", "splits": splits} | info
    (path / "dataset_info.json").write_text(json.dumps(described))
    features = {"featuresDict": {"features": KINDS | (features or {})}}
    (path / "features.json").write_text(json.dumps(features))
    return path


def task(folder, **fields):
    options = {**SET, "n_classes": 2, "validation": None, "n_validation": 1}
    return tasks.TFDSTask(data_dir=str(folder), **(options | fields))


def read(folder, **fields):
    return task(folder, **fields).n_examples("test")


@pytest.fixture
def payload(tmp_path, monkeypatch):
    """A module beside the set that must not be run."""
    (tmp_path / "payload.py").write_text("open('ran', 'w')\nThing = F = dict\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    assert "payload" not in sys.modules
    assert not (tmp_path / "ran").exists()


def test_set_is_read(tmp_path):
    write(tmp_path, [example(encoded())] * 3)
    assert read(tmp_path) == 3
    np.testing.assert_array_equal(task(tmp_path).batch("test", 0, 3, 0).inputs, 0)


THING = {"pythonClassName": "payload.Thing"}
FOREIGN = {
    "read": {"image": THING},
    "not read": {"more": THING},
    "in a sequence": {"more": {**KINDS["image"], "sequence": {"feature": THING}}},
    "in a list": {"more": {**KINDS["image"], "of": [[THING]]}},
    "no string": {"more": {"pythonClassName": ["payload.Thing"]}},
    "of TFDS, by another package": {
        "more": {"pythonClassName": "payload.tensorflow_datasets.core.features.Text"}
    },
}


@pytest.mark.parametrize("features", FOREIGN.values(), ids=FOREIGN)
def test_class_that_is_not_of_tfds_is_refused_and_not_imported(
    features, payload, tmp_path
):
    write(tmp_path, features=features)
    with refuses("data_dir", "payload", rule="features.json"):
        read(tmp_path)
    with refuses("data_dir", "payload", rule="features.json"):
        reading.PreparedSet("mine", "mine/1.0.0", ()).is_there(str(tmp_path))


def test_existing_set_is_compared_without_importing_its_classes(payload, tmp_path):
    path = write(tmp_path, features={"more": THING})
    name = PATHFINDER[32].name
    (tmp_path / name).mkdir()
    shutil.move(path, tmp_path / name / "1.0.0")
    with refuses("data_dir", "payload.Thing", rule="features.json"):
        write_images(tmp_path, PATHFINDER[32], n=10)


def test_classes_of_tfds_itself_are_known():
    from tensorflow_datasets.core.features import feature

    names = {*feature.FeatureConnector._registered_features}
    assert {metadata._PACKAGE + name for name in metadata._KNOWN} <= names


@pytest.mark.parametrize("kind", ["video_feature.Video", "sequence_feature.Sequence"])
def test_feature_of_another_kind_is_refused_if_it_is_read(kind, tmp_path):
    records = [example(encoded())] * 2
    write(tmp_path, records, {"more": {"pythonClassName": PACKAGE + kind}})
    assert read(tmp_path) == 2
    with refuses("data_dir", kind, rule="'more'"):
        read(tmp_path, feature="more")


TEMPLATES = {
    "{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}": "test.array_record-00000-of-00001",
    "{SPLIT}/{SHARD_INDEX}": "test/00000",
    "{DATASET}.{NUM_SHARDS}.{SPLIT}": "mine.00001.test",
}


@pytest.mark.parametrize(("template", "name"), TEMPLATES.items())
def test_names_of_files_follow_the_template_of_the_set(template, name, tmp_path):
    path = write(tmp_path, split={"filepathTemplate": template})
    (path / name).parent.mkdir(exist_ok=True)
    (path / "mine-test.array_record-00000-of-00001").rename(path / name)
    prepared = reading.PreparedSet("mine", "mine/1.0.0", ("image", "label"))
    assert len(prepared.open(str(tmp_path), "test")) == 1


INFO = {
    "name leads out": {"name": "../mine"},
    "template leads out": {"split": {"filepathTemplate": "../{SPLIT}"}},
    "absolute template": {"split": {"filepathTemplate": "/etc/passwd"}},
    "attribute": {"split": {"filepathTemplate": "{SPLIT.__class__}"}},
    "width": {"split": {"filepathTemplate": "{SPLIT:9999999999}"}},
    "split leads out": {"split": {"name": "../test"}},
    "many records": {"split": {"shardLengths": [str(10**15)]}},
    "fewer than none": {"split": {"shardLengths": ["-1"]}},
    "no number": {"split": {"shardLengths": ["many"]}},
    "infinite": {"split": {"shardLengths": [float("inf")]}},
    "no lengths": {"split": {"shardLengths": None}},
    "no splits": {"splits": None},
    "splits in words": {"splits": "train"},
    "no name": {"name": None},
}


@pytest.mark.parametrize("fields", INFO.values(), ids=INFO)
def test_description_of_no_files_of_the_set_is_damaged(fields, tmp_path):
    write(tmp_path, **fields)
    splits = {"train": fields["split"]["name"]} if "split leads" in str(fields) else {}
    with refuses("data_dir", "mine/1.0.0"):
        read(tmp_path, **splits)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", "", "\x00", '"name"'])
@pytest.mark.parametrize("name", ["dataset_info.json", "features.json"])
def test_metadata_that_are_no_objects_are_damaged(name, text, tmp_path):
    (write(tmp_path) / name).write_text(text)
    with refuses("data_dir", "mine/1.0.0", rule="damaged"):
        read(tmp_path)


def png_of(width, height):
    """A PNG whose header claims another size than it has."""
    content = bytearray(encoded())
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


RECORDS = {
    "no proto": (b"\xff" * 9, "damaged"),
    "no image": (example(None), "'image'"),
    "no label": (example(encoded(), None), "'label'"),
    "text": (example(b"hello"), "PNG or JPEG"),
    "truncated": (example(encoded()[:42]), "PNG or JPEG"),
    "another size": (example(encoded(9)), "length"),
    "30,000 pixels wide": (example(png_of(30_000, 3_000)), "length"),
    "10^18 pixels": (example(png_of(2**30, 2**30)), "PNG or JPEG"),
    # Pillow would start Ghostscript.
    "program": (example(encoded(kind="EPS")), "PNG or JPEG"),
    "format of no set": (example(encoded(kind="TIFF")), "PNG or JPEG"),
}


@pytest.mark.filterwarnings("ignore:Image size:PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("record", "rule"), RECORDS.values(), ids=RECORDS)
def test_record_that_is_no_example_is_refused(record, rule, tmp_path):
    write(tmp_path, [record] * 2)
    with pytest.raises(ValueError, match=rule) as refusal:
        read(tmp_path)
    assert "\n" not in str(refusal.value) and "; " in str(refusal.value)


@pytest.mark.parametrize(
    "stored", [zlib.compress(bytes(2**20)), zlib.compress(b"1"), b"no zlib"]
)
def test_mask_of_another_size_is_refused(stored, tmp_path):
    """One that unpacks to gigabytes is unpacked to its size alone."""
    setting = SEGMENTATION[64]
    record = tf_example_pb2.Example()
    for name in ("image", "mask"):
        record.features.feature[name].bytes_list.value.append(stored)
    tensor = {"pythonClassName": f"{PACKAGE}tensor_feature.Tensor"}
    features = {"image": tensor, "mask": tensor}
    path = write(tmp_path, [record.SerializeToString()], features)
    (tmp_path / setting.name).mkdir()
    path.rename(tmp_path / setting.name / "1.0.0")
    examples = PreparedExamples(setting, str(tmp_path), "test", 1)
    with refuses("data_dir", setting.size**2):
        examples.take(np.array([0]))


def test_staging_directory_of_others_is_not_emptied(tmp_path):
    """It may be a link to any directory."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").mkdir()
    sets = tmp_path / "sets"
    sets.mkdir()
    (sets / ".preparing-mnist-3.0.1").symlink_to(tmp_path / "mine")
    mnist = reading.PreparedSet("mnist", "mnist/3.0.1", ())
    with pytest.raises(OSError, match="preparing-mnist"):
        with writing.stage(mnist, str(sets)):
            pass
    assert (tmp_path / "mine" / "kept").is_dir()


def test_archives_unpack_to_what_they_may(tmp_path, monkeypatch):
    monkeypatch.setattr("ssm_jax.files.MAX_BYTES", 1000)
    monkeypatch.setattr("ssm_jax.files.MAX_RATIO", 2)
    packed = tmp_path / "images.gz"
    packed.write_bytes(gzip.compress(bytes(10**6)))
    with pytest.raises(ValueError, match=r"images\.gz must unpack to at most"):
        prepare_mnist._read_idx(packed, 3)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("b")
        member.size = 10**6
        archive.addfile(member, io.BytesIO(bytes(10**6)))
    with pytest.raises(ValueError, match=r"a\.tar\.gz must unpack to at most"):
        list(files.members(Path(tmp_path, "a.tar.gz")))
