"""SpeechCommands: splits, labels and samples of known files, and damaged folders."""

import shutil

import numpy as np
import pytest
from scipy.io import wavfile

from ssm_jax import tasks
from ssm_jax.tasks.speech import recordings
from tests.bad_inputs import refuses
from tests.tasks import raw_sets

SPLITS: tuple[tasks.Split, ...] = ("train", "validation", "test")
LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder and the samples of its files."""
    path = tmp_path_factory.mktemp("speech")
    return path, raw_sets.speech(path)


@pytest.fixture
def own_folder(folder, tmp_path):
    """A copy of the folder to be damaged; files are listed once per folder."""
    return shutil.copytree(folder[0], tmp_path / "speech")


def whole(task, split):
    return task.batch(split, 0, task.n_examples(split), seed=0)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("rate", [16_000, 8_000])
def test_split_has_the_files_of_its_list_as_scipy_reads_them(folder, split, rate):
    path, samples = folder
    listed = {s: (path / name).read_text().split() for s, name in LISTS.items()}
    listed["train"] = sorted(
        set(samples) - {n for names in listed.values() for n in names}
    )
    words = sorted({name.split("/")[0] for name in samples})
    assert len(words) == 35
    expected = []
    for name in listed[split]:
        read_rate, values = wavfile.read(path / name)
        assert read_rate == 16_000
        row = [0.0] * rate
        for t in range(0, min(len(values), 16_000), 16_000 // rate):
            row[t * rate // 16_000] = values[t] / 32_768
        expected.append((row, words.index(name.split("/")[0])))
    task = tasks.SpeechCommands(data_dir=str(path), sample_rate=rate)
    batch = whole(task, split)
    rows = zip(batch.inputs[..., 0].tolist(), batch.targets.tolist(), strict=True)
    assert sorted(rows) == sorted(expected)
    assert -1 == batch.inputs.min() < batch.inputs.max() <= 1
    assert batch.loss_mask.all() and batch.mask is None


def test_rate_of_no_published_setting_is_refused(unchecked):
    with refuses("sample_rate", 4_000, rule="16000, 8000"):
        tasks.SpeechCommands(sample_rate=4_000)


def test_task_is_created_without_its_files():
    assert tasks.SpeechCommands(data_dir="/nowhere").spec.length == 16_000


@pytest.mark.parametrize("missing", ["", "wow", "testing_list.txt"])
def test_missing_part_of_the_folder_is_named(own_folder, missing):
    if missing == "wow":
        shutil.rmtree(own_folder / missing)
    elif missing:
        (own_folder / missing).unlink()
    data_dir = str(own_folder) if missing else str(own_folder / "nowhere")
    with refuses("data_dir", data_dir, rule=missing, error=FileNotFoundError):
        tasks.SpeechCommands(data_dir=data_dir).n_examples("train")


def test_no_folder_is_an_error():
    with refuses("data_dir", None, error=FileNotFoundError):
        tasks.SpeechCommands().batch("test", 0, 2, seed=0)


@pytest.mark.parametrize("both", [False, True], ids=["no file", "in both lists"])
def test_list_that_the_files_contradict_is_an_error(own_folder, both):
    name = (own_folder / LISTS["validation"]).read_text().split()[0]
    name = name if both else "wow/ffffffff_nohash_0.wav"
    with (own_folder / LISTS["test"]).open("a") as file:
        file.write(f"{name}\n")
    with refuses("data_dir", name, rule=LISTS["test"]):
        tasks.SpeechCommands(data_dir=str(own_folder)).n_examples("test")


def test_empty_split_is_an_error(own_folder):
    (own_folder / LISTS["test"]).write_text("")
    with refuses("data_dir", own_folder, rule="test"):
        tasks.SpeechCommands(data_dir=str(own_folder)).n_examples("train")


NOISE = np.arange(32).reshape(16, 2)
DAMAGED = {
    "stereo": (NOISE, {}, "(2, 16, 16000)"),
    "rate": (NOISE[:, 0], {"rate": 8_000}, "(1, 16, 8000)"),
    "width": (NOISE[:, 0], {"width": 4}, "(1, 32, 16000)"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_file_of_another_format_is_refused(tmp_path, name):
    samples, fields, got = DAMAGED[name]
    raw_sets.wav(tmp_path / "a.wav", samples, **fields)
    with refuses("data_dir", got, rule="1 channel, 16 bits and 16000 samples"):
        recordings.read(tmp_path / "a.wav")


def test_damaged_file_is_refused(tmp_path):
    raw_sets.wav(path := tmp_path / "a.wav", np.arange(16))
    content = path.read_bytes()
    for damaged in (b"", b"no sound", content[:-3], content[:30]):
        path.write_bytes(damaged)
        with refuses("data_dir", path):
            recordings.read(path)
