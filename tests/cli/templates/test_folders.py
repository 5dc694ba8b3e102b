"""`ssm-jax new classify` on folders of recordings and images."""

import shlex

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from ssm_jax.cli import config_file
from ssm_jax.cli.templates import folders
from ssm_jax.cli.templates.labelled import classify, regress
from ssm_jax.config import build
from ssm_jax.tasks import AudioFolder, ImageFolder
from tests.bad_inputs import refuses
from tests.cli import programs
from tests.tiers import tiered

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def recordings(folder, classes=("low", "it's {0}"), n=15, length=200, rate=8_000):
    for label in classes:
        (folder / label).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            samples = RNG.integers(-99, 99, length + i).astype(np.int16)
            wavfile.write(folder / label / f"{i}.wav", rate, samples)
    return str(folder)


def images(folder, classes=("cat", "dog"), n=15, size=(40, 60, 3)):
    for label in classes:
        (folder / label).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            pixels = RNG.integers(0, 256, size, np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")
    return str(folder)


def built(data, output="mine.py"):
    """What was found, the task, and a batch of the config, for which the model fits."""
    found = dict(classify(data, output).found)
    config = config_file.load(output)
    task, model = build(config.task), build(config.model)
    batch = task.batch("train", 0, config.training.batch_size, seed=0)
    assert batch.inputs.shape[1:] == (task.spec.length, task.spec.d_input)
    assert model.head.d_output == task.spec.d_output == len(task.classes)
    return found, task, batch


def test_experiment_on_recordings_builds(tmp_path):
    data = recordings(tmp_path / "notes")
    for i in (3, 5):
        wavfile.write(tmp_path / f"notes/low/{i}.wav", 44_100, np.zeros(99, np.int16))
    found, task, batch = built(data)
    assert isinstance(task, AudioFolder) and task.classes == ("it's {0}", "low")
    assert (task.sample_rate, task.seconds) == (8_000, 0.03)
    assert len(batch.inputs) == 8 and batch.mask is not None
    assert "8,000 (28), 44,100 (2)" in found["rates"] and "cut" not in found
    assert found["silent"] == "2: low/3.wav, low/5.wav"
    assert found["classes"] == "2: it's {0} (15), low (15)"
    assert found["examples"].startswith("30: ")


def test_long_and_fast_recordings_are_bounded_which_is_said(tmp_path):
    data = recordings(tmp_path / "notes", n=10, length=60_000, rate=48_000)
    samples = np.zeros((48_000, 2), np.int16)
    samples[::2] = 9
    wavfile.write(tmp_path / "notes/low/stereo.wav", 48_000, samples)
    found, task, _ = built(data)
    assert (task.sample_rate, task.seconds) == (16_000, 1.02)
    assert "20 are longer than 1.02 s" in found["cut"]
    assert found["channels"].startswith("1 have several") and "silent" not in found


def test_experiment_on_images_builds(tmp_path):
    data = images(tmp_path / "pets")
    Image.new("L", (90, 20), 7).save(tmp_path / "pets/cat/flat.png")
    found, task, batch = built(data)
    assert isinstance(task, ImageFolder) and task.size == (26, 39)
    assert task.channels == "rgb" and batch.inputs.shape[-1] == 3
    assert found["sizes"] == "40 x 60 (30), 20 x 90 (1) pixels, read as 26 x 39"
    assert found["channels"] == "rgb, 1 of 31 grey"
    assert found["uniform"] == "1: cat/flat.png"
    found, task, _ = built(images(tmp_path / "grey", size=(8, 8)), "grey.py")
    assert (task.size, task.channels, found["channels"]) == ((8, 8), "grey", "grey")


def test_imbalanced_classes_count_equally(tmp_path):
    recordings(tmp_path / "notes", ("high",), n=5)
    found, task, _ = built(recordings(tmp_path / "notes", ("low",), n=30))
    assert "86%" in found["imbalance"]
    assert task.spec.class_weight == "balanced"


def test_splits_of_the_folder_are_kept(tmp_path):
    for split, n in (("train", 12), ("test", 3), ("validation", 3)):
        recordings(tmp_path / "notes" / split, n=n)
    found, task, _ = built(str(tmp_path / "notes"))
    assert "splits" in found and task.n_examples("test") == 6


def test_not_all_of_many_files_are_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_CHECKED", 5_000)
    found, *_ = built(recordings(tmp_path / "notes"))
    assert found["checked"] == "10 of 30 files were read whole"


def mixture(folder):
    images(folder, ("cat",), n=2)
    return "2 images (.png)", "move one kind"


def damage(folder):
    (folder / "low/7.wav").write_bytes(b"")
    return "7.wav (empty)", "repair or remove"


def cut(folder):
    for path in folder.rglob("*.wav"):
        path.unlink()
    images(folder, n=12, size=(90, 90, 3))
    (folder / "low").rmdir()
    (folder / "it's {0}").rmdir()
    path = folder / "dog/4.png"
    path.write_bytes(path.read_bytes()[:9_000])
    return "4.png (", "repair or remove"


def few(folder):
    for path in folder.rglob("1*.wav"):
        path.unlink()
    return "18", "at least 20"


def one_class(folder):
    (folder / "low").rename(folder.parent / "elsewhere")
    return "alone", "two or more"


def texts(folder):
    for path in folder.rglob("*.wav"):
        path.rename(path.with_suffix(".txt"))
    return "30 .txt", "with its name"


@pytest.mark.parametrize("change", [mixture, damage, cut, few, one_class, texts])
def test_folder_that_does_not_fit_is_refused(change, tmp_path):
    data = recordings(tmp_path / "notes")
    shown, rule = change(tmp_path / "notes")
    name = "data_dir" if change in (damage, cut, one_class) else "--data"
    with refuses(name, shown, rule=rule):
        classify(data, "mine.py")
    assert not (tmp_path / "mine.py").exists()


def test_folder_has_neither_numbers_nor_columns(tmp_path):
    data = recordings(tmp_path / "notes", n=1)
    with refuses("--data", data, rule="np.savez"):
        regress(data, "mine.py")
    with refuses("--target", "label", rule="column"):
        classify(data, "mine.py", target="label")
    with refuses("--data", "gone", rule="folder", error=FileNotFoundError):
        classify("gone", "mine.py")


# ml_collections loads the experiment by a call that importlib wants replaced.
@pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")
@pytest.mark.parametrize("make", tiered([recordings, images], 0, full=1))
def test_printed_commands_run(make, tmp_path, monkeypatch, capfd):
    data = make(tmp_path / "data")
    assert programs.run(monkeypatch, "new", "classify", f"--data={data}") in (0, None)
    lines = capfd.readouterr().out.splitlines()
    few_steps = [
        f"--config.{field}"
        for field in (
            "training.steps=3",
            "optimizer.warmup_steps=1",
            "model.n_layers=1",
        )
    ]
    for line in (line for line in lines if line.startswith("    ssm-jax")):
        _, program, *words = shlex.split(line)
        extra = few_steps if program == "train" else []
        assert programs.run(monkeypatch, program, *words, *extra) in (0, None), line
    assert "test accuracy" in capfd.readouterr().out
