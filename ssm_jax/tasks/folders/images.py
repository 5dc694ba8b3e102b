"""ImageFolder: images in a folder with one subfolder per class, by pixels."""

import dataclasses
import functools
from collections.abc import Collection
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from ssm_jax.fields import PositiveInt
from ssm_jax.tasks import base
from ssm_jax.tasks.folders import labelled_files
from ssm_jax.tasks.images import labelled

# Of the formats of Pillow some start another program, as EPS does, or only identify.
_FORMATS = {
    "AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA", "TIFF",
    "WEBP",
}  # fmt: skip


_TURNED = (5, 6, 7, 8)  # Orientations of EXIF that exchange height and width.


class Header(NamedTuple):
    """What an image file says of itself.

    Attributes:
      height: Number of rows of pixels, after it is turned as EXIF says.
      width: Number of columns.
      is_grey: Whether it has no colours.
      is_animated: Whether it has several frames.
    """

    height: int
    width: int
    is_grey: bool
    is_animated: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFolder(labelled_files.LabelledFiles):
    """Classification: the class of an image, pixel by pixel.

    AVIF, BMP, GIF, JPEG, JPEG 2000, PNG, PPM, TGA, TIFF and WebP are read, whatever
    their extension says. Other files are left out with a warning that counts them, and
    names that begin with a dot without one. Links are followed.

    Images are turned as EXIF says; what is transparent is on white, as on a page;
    colours become grey by the weights 0.299, 0.587 and 0.114; 16-bit images keep their
    range; of several frames the first is read, which a warning says. Images above twice
    ``PIL.Image.MAX_IMAGE_PIXELS`` are refused before they are decoded.

    Attributes:
      data_dir: Folder with one folder of images per class, which may have subfolders.
        If it has ``train`` and also ``validation`` (or ``val``, ``valid``) or ``test``,
        these are the splits, each with its class folders.
      classes: Names of the class folders, in the order of their indices; others are not
        read. None means all, sorted; then they change with the folder.
      group: Regular expression with one group, which is searched in the path of each
        file in ``data_dir``: what it matches, such as a patient, is never in two
        splits.
      validation_fraction: About this part of the files or groups is for validation, and
      test_fraction: this for testing.
      class_weight: ``"balanced"`` for classes of different frequency; see `TaskSpec`.
      size: Height and width, which images are resized to.
      channels: ``"grey"`` or ``"rgb"``.
      fit: ``"crop"`` keeps the aspect ratio and the middle; ``"pad"`` keeps it with
        zeros around; ``"stretch"`` does not keep it.

    Batch:
      inputs: float32, ``(b, height * width, 1)``, or 3 for colours: pixels in [0, 1],
        row by row from the top left.
      targets: int32, ``(b,)``, the index in `class_names`.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.

    Splits: as those of `AudioFolder`.

    Raises:
      FileNotFoundError: When files are needed, if the folder does not exist.
      ValueError: A field is out of range; when files are needed, if a folder has less
        than two classes or an empty one, a file is no image, or a group is in two of
        the folder's own splits; at a batch, if an image is truncated.

    Example:
      >>> import tempfile
      >>> from pathlib import Path
      >>> from PIL import Image
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i in range(12):
      ...         Path(folder, "ab"[i % 2]).mkdir(exist_ok=True)
      ...         image = Image.new("RGB", (40, 30), (255, 0, i))
      ...         image.save(f"{folder}/{'ab'[i % 2]}/{i}.png")
      ...     task = ImageFolder(data_dir=folder, size=(6, 8), channels="rgb")
      ...     batch = task.batch("train", 0, 4, seed=0)
      >>> task.class_names(), batch.inputs.shape, batch.inputs[0, 0, :2]
      (('a', 'b'), (4, 48, 3), array([1., 0.], dtype=float32))
    """

    size: tuple[PositiveInt, PositiveInt]
    channels: Literal["grey", "rgb"] = "grey"
    fit: Literal["crop", "pad", "stretch"] = "crop"

    what: ClassVar[str] = "images"

    @property
    def spec(self) -> base.TaskSpec:
        """Pixels as steps; one class per sequence."""
        return labelled.pixel_spec(
            length=self.size[0] * self.size[1],
            n_classes=len(self.class_names()),
            d_input=1 if self.channels == "grey" else 3,
            class_weight=self.class_weight,
        )

    def preprocessing(self) -> dict[str, Any]:
        """Describes inputs and classes, in values of JSON, for an export."""
        return {
            "size": [*self.size],
            "channels": self.channels,
            "fit": self.fit,
            "classes": [*self.class_names()],
        }

    @override
    @classmethod
    def suffixes(cls) -> Collection[str]:
        # Imported on first use: the other tasks do not need Pillow.
        from PIL import Image

        by_suffix = Image.registered_extensions().items()
        return {suffix for suffix, kind in by_suffix if kind in _FORMATS}

    @staticmethod
    def read_header(path: str) -> Header:
        """Returns what an image is; its pixels are not decoded."""
        from PIL import ExifTags

        with _open(path) as image:
            # Without this test, a PNG is decoded to see whether it has EXIF.
            exif = image.getexif() if "exif" in image.info else {}
            turned = exif.get(ExifTags.Base.Orientation) in _TURNED
            width, height = image.size[::-1] if turned else image.size
            animated = getattr(image, "is_animated", False)
            return Header(height, width, image.mode[0] in "1LIF", animated)

    @override
    def read_steps(self, path: str, header: Header) -> np.ndarray:
        from PIL import Image, ImageOps

        if header.is_animated:
            n_animated = sum(header.is_animated for header in self.headers)
            labelled_files.warn_once(
                f"{n_animated} of {len(self.headers)} images in {self.data_dir} "
                "have several frames, of which the first is read"
            )
        mode, (height, width) = "L" if self.channels == "grey" else "RGB", self.size
        with _open(path) as opened:
            image = _flatten(ImageOps.exif_transpose(opened), mode)
        # Not bicubic, which exceeds the range at edges.
        size, method = (width, height), Image.Resampling.BILINEAR
        if self.fit == "crop":
            image = ImageOps.fit(image, size, method)
        elif self.fit == "pad":
            image = ImageOps.pad(image, size, method)
        else:
            image = image.resize(size, method)
        pixels = np.asarray(image, np.float32).reshape(width * height, -1)
        # Those of mode F are in [0, 1] already.
        pixels = pixels if image.mode == "F" else pixels / 255
        n_channels = 1 if self.channels == "grey" else 3
        return np.broadcast_to(pixels, (width * height, n_channels))


def _open(path):
    from PIL import Image

    return Image.open(path, formats=_formats())


@functools.cache
def _formats():
    from PIL import Image

    Image.init()
    return tuple(sorted(_FORMATS & set(Image.OPEN)))


def _flatten(image, mode):
    """An image of a mode, on white; of more than 8 bits in grey, mode F in [0, 1]."""
    from PIL import Image

    if image.mode[0] in "IF":
        pixels = np.asarray(image, np.float32)
        white = 65_535 if image.mode[0] == "I" else 1
        if not (pixels.min() >= 0 and pixels.max() <= white):
            raise ValueError(f"pixels from {pixels.min():g} to {pixels.max():g}")
        return Image.fromarray(pixels / np.float32(white))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert(mode)
