"""ImageFolder: pixels of images of every mode, and files that are damaged."""

import io

import numpy as np
import pytest
from PIL import Image

from ssm_jax import tasks
from ssm_jax.tasks.folders import labelled_files
from tests.bad_inputs import refuses

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (4, 6), np.uint8)
COLOUR = RNG.integers(0, 256, (4, 6, 3), np.uint8)


def make(folder, image, suffix="png", size=(4, 6), save=None, **fields):
    """Two classes of equal files."""
    file = io.BytesIO()
    kind = {"jpg": "JPEG", "tif": "TIFF"}.get(suffix, suffix.upper())
    content = image
    if isinstance(image, Image.Image):
        image.save(file, kind, **(save or {}))
        content = file.getvalue()
    for label in "ab":
        (folder / label).mkdir(parents=True, exist_ok=True)
        for i in range(3):
            (folder / label / f"{i}.{suffix}").write_bytes(content)
    return tasks.ImageFolder(data_dir=str(folder), size=size, **fields)


def pixels(task):
    batch = task.batch("train", 0, 1, seed=0)
    assert batch.inputs.dtype == np.float32 and batch.mask is None
    return batch.inputs[0]


def test_pixels_are_in_row_order(tmp_path):
    grey = pixels(make(tmp_path / "grey", Image.fromarray(GREY)))
    np.testing.assert_allclose(grey[:, 0], GREY.ravel() / 255, rtol=1e-6)
    image = Image.fromarray(COLOUR)
    rgb = pixels(make(tmp_path / "rgb", image, channels="rgb"))
    np.testing.assert_allclose(rgb, COLOUR.reshape(-1, 3) / 255, rtol=1e-6)
    weighted = COLOUR.reshape(-1, 3) @ [0.299, 0.587, 0.114] / 255
    mixed = pixels(make(tmp_path / "mixed", image))
    np.testing.assert_allclose(mixed[:, 0], weighted, atol=3e-3)


@pytest.mark.parametrize("suffix", ["png", "tif"])
@pytest.mark.parametrize("channels", ["grey", "rgb"])
def test_16_bits_keep_their_range(tmp_path, suffix, channels):
    deep = RNG.integers(0, 2**16, (4, 6)).astype(np.uint16)
    got = pixels(make(tmp_path, Image.fromarray(deep), suffix, channels=channels))
    expected = np.broadcast_to(deep.reshape(-1, 1) / 65_535, got.shape)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_palettes_and_transparency_are_colours_on_white(tmp_path):
    palette = Image.fromarray(COLOUR).quantize(8)
    expected = np.asarray(palette.convert("RGB"), np.float32).reshape(-1, 3) / 255
    got = pixels(make(tmp_path / "p", palette, channels="rgb"))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    for mode, colour in (("RGBA", (0, 0, 0, 0)), ("LA", (0, 0))):
        clear = Image.new(mode, (6, 4), colour)
        assert (pixels(make(tmp_path / mode, clear, channels="rgb")) == 1).all()


def test_exif_turns_the_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # Turned by 90 degrees.
    image = Image.fromarray(GREY)
    task = make(tmp_path, image, size=(6, 4), save={"exif": exif})
    assert task.headers[0][:2] == (6, 4)
    got = pixels(task)
    expected = np.rot90(GREY, -1).ravel() / 255
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-6)


def test_aspect_ratio_is_cropped_padded_or_stretched(tmp_path):
    bars = np.zeros((10, 30), np.uint8)
    bars[:, 10:20] = 255
    image = Image.fromarray(bars)
    got = {
        fit: pixels(make(tmp_path, image, size=(10, 10), fit=fit)).reshape(10, 10)
        for fit in ("crop", "pad", "stretch")
    }
    assert got["crop"].min() == 1
    assert got["pad"][0].max() == 0 and got["pad"][5, 5] > 0.9
    assert got["stretch"][5, 0] == 0 and (got["stretch"][:, 5] > 0.9).all()


def test_first_frame_is_read_which_is_said_once(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(labelled_files, "_said", set())
    monkeypatch.setattr(
        labelled_files.logging, "warning", lambda form, *args: said.append(form % args)
    )
    frames = [Image.new("L", (6, 4), grey) for grey in (255, 0)]
    options = {"save_all": True, "append_images": frames[1:]}
    task = make(tmp_path, frames[0], "gif", save=options)
    assert (pixels(task) == 1).all()
    task.batch("test", 0, 2, seed=0)
    assert len(said) == 1 and "6 of 6" in said[0]


def test_extension_may_be_that_of_another_format(tmp_path):
    file = io.BytesIO()
    Image.fromarray(GREY).save(file, "PNG")
    got = pixels(make(tmp_path, file.getvalue(), "JPG"))
    np.testing.assert_allclose(got[:, 0], GREY.ravel() / 255, rtol=1e-6)


def test_bad_images_are_named(tmp_path, monkeypatch):
    file = io.BytesIO()
    noise = RNG.integers(0, 256, (90, 90, 3), np.uint8)
    Image.fromarray(noise).save(file, "JPEG")
    task = make(tmp_path / "cut", file.getvalue()[:3000], "jpg")
    assert task.n_examples("train") == 2
    with refuses("data_dir", "truncated", rule=".jpg"):
        task.batch("train", 0, 2, seed=0)
    with refuses("data_dir", "cannot identify", rule="0.png"):
        make(tmp_path / "text", b"no image").n_examples("train")
    floats = Image.fromarray(np.full((4, 6), 7, np.float32))
    with refuses("data_dir", "pixels from 7 to 7"):
        pixels(make(tmp_path / "floats", floats, "tif"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with refuses("data_dir", "decompression bomb", rule="0.png"):
        make(tmp_path / "bomb", Image.fromarray(GREY)).n_examples("train")


@pytest.mark.usefixtures("unchecked")
def test_bad_fields_are_refused():
    for name, value in (("size", (0, 3)), ("size", (3,)), ("fit", "x")):
        with refuses(name):
            tasks.ImageFolder(**{"size": (3, 3), name: value})
