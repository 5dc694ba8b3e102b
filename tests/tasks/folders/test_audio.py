"""AudioFolder: rates, channels, lengths and masks of known signals."""

import numpy as np
import pytest
from scipy import signal
from scipy.io import wavfile

from ssm_jax import tasks
from ssm_jax.tasks.folders import labelled_files
from tests.bad_inputs import refuses


def folder_of(folder, values, rate, n=3):
    """Two classes of equal files."""
    for label in "ab":
        (folder / label).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            wavfile.write(folder / label / f"{i}.wav", rate, values)
    return str(folder)


def sine(pitch, rate, seconds=0.5):
    return np.sin(2 * np.pi * pitch * np.arange(int(rate * seconds)) / rate)


def first(task):
    return task.batch("train", 0, 1, seed=0)


@pytest.mark.parametrize("rate", [44_100, 48_000, 8_000, 16_000])
def test_tone_of_any_rate_is_the_same_tone(tmp_path, rate):
    """Within 2e-3 away from the ends, where the signal begins and stops at once."""
    data_dir = folder_of(tmp_path, sine(440, rate).astype(np.float32), rate)
    task = tasks.AudioFolder(data_dir=data_dir, sample_rate=16_000, seconds=0.5)
    batch = first(task)
    inside = slice(100, -100)
    got, expected = batch.inputs[0, :, 0], sine(440, 16_000)
    np.testing.assert_allclose(got[inside], expected[inside], atol=2e-3)
    assert batch.mask is None


@pytest.mark.parametrize("rate", [44_100, 48_000])
def test_content_above_the_new_nyquist_frequency_is_gone(tmp_path, rate):
    data_dir = folder_of(tmp_path, sine(6_000, rate).astype(np.float32), rate)
    task = tasks.AudioFolder(data_dir=data_dir, sample_rate=8_000, seconds=0.5)
    assert np.abs(first(task).inputs[0, 100:-100]).max() < 2e-3


def test_beginning_of_a_long_file_is_that_of_the_whole(tmp_path):
    values = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    data_dir = folder_of(tmp_path, values, 44_100)
    task = tasks.AudioFolder(data_dir=data_dir, sample_rate=16_000, length=300)
    whole = signal.resample_poly(values, 160, 441)[:300]
    np.testing.assert_allclose(first(task).inputs[0, :, 0], whole, atol=1e-6)


def test_channels_are_averaged_or_kept_or_refused(tmp_path):
    values = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    fields = {"data_dir": folder_of(tmp_path, values, 8_000), "sample_rate": 8_000}
    mono = first(tasks.AudioFolder(length=50, **fields))
    np.testing.assert_allclose(mono.inputs[0, :, 0], values.mean(1), rtol=1e-6)
    both = first(tasks.AudioFolder(length=50, channels=2, **fields))
    np.testing.assert_array_equal(both.inputs[0], values)
    with refuses("data_dir", "2 channels", rule="a/0.wav"):
        first(tasks.AudioFolder(length=50, channels=1, **fields))


def test_lengths_are_masked_and_cuts_are_counted_once(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(labelled_files, "_said", set())
    monkeypatch.setattr(
        labelled_files.logging, "warning", lambda form, *args: said.append(form % args)
    )
    for n, name in ((30, "short"), (40, "exact"), (90, "long")):
        folder_of(tmp_path / name, np.full(n, 0.5, np.float32) + np.arange(n), 8_000)
        for label in "ab":
            (tmp_path / label).mkdir(exist_ok=True)
            for i in range(3):
                file = tmp_path / name / label / f"{i}.wav"
                file.rename(tmp_path / label / f"{name}{i}.wav")
    task = tasks.AudioFolder(
        data_dir=str(tmp_path), classes=("a", "b"), sample_rate=8_000, length=40
    )
    batch = task.batch("train", 0, task.n_examples("train"), seed=0)
    assert batch.mask is not None
    lengths = batch.mask.sum(1)
    assert set(lengths.tolist()) == {30, 40}
    assert (batch.inputs[..., 0][~batch.mask] == 0).all()
    assert (batch.inputs[..., 0][batch.mask] >= 0.5).all()
    task.batch("test", 0, 2, seed=0)
    assert len(said) == 1 and "6 of 18" in said[0]


def test_silent_file_is_named_in_a_warning(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(labelled_files, "_said", set())
    monkeypatch.setattr(
        labelled_files.logging, "warning", lambda form, *args: said.append(form % args)
    )
    data_dir = folder_of(tmp_path, np.zeros(30, np.int16), 8_000)
    task = tasks.AudioFolder(data_dir=data_dir, sample_rate=8_000, length=30)
    for split in ("train", "validation", "test"):
        task.batch(split, 0, 2, seed=0)
    assert len(said) == 2 and all("silent" in line for line in said)


@pytest.mark.parametrize("fields", [{}, {"length": 9, "seconds": 1.0}])
def test_one_of_length_and_seconds_is_given(fields):
    with refuses("length"):
        tasks.AudioFolder(sample_rate=8_000, **fields)


def test_duration_below_a_sample_is_refused():
    with refuses("seconds", 1e-6):
        tasks.AudioFolder(sample_rate=8_000, seconds=1e-6)
