"""The two JSON files that describe a prepared set, read as data.

A set may come from anyone. TFDS imports the modules that ``features.json`` names, and
forms paths from format strings of ``dataset_info.json``; here both files only choose
among known names, and files in the directory of the set.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_PACKAGE = "tensorflow_datasets.core.features."
READABLE = (
    "class_label_feature.ClassLabel",
    "image_feature.Image",
    "scalar.Scalar",
    "tensor_feature.Tensor",
    "text_feature.Text",
)
"""Classes of the features that `Record` reads."""

# Further classes of TFDS, of features that a set has and no task reads.
_KNOWN = (
    *READABLE,
    "audio_feature.Audio",
    "bounding_boxes.BBoxFeature",
    "dataset_feature.Dataset",
    "features_dict.FeaturesDict",
    "labeled_image.LabeledImage",
    "sequence_feature.Sequence",
    "translation_feature.Translation",
    "translation_feature.TranslationVariableLanguages",
    "video_feature.Video",
)
_FORMAT = "array_record"
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_PART = re.compile(r"[\w+-][\w.+-]*")  # of a path; none leads out of the directory


@dataclasses.dataclass
class Shard:
    """A file of records, as `array_record` wants it described."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


class Metadata(NamedTuple):
    """What the files say.

    Attributes:
      folder: Directory of the set.
      dataset: Name of the set in the names of its files.
      features: Class of each feature, ``module.Class`` within TFDS.
      splits: Description of each split.
      description: Description of the set.
    """

    folder: Path
    dataset: str
    features: dict[str, str]
    splits: dict[str, dict[str, Any]]
    description: str

    def shards(self, split: str) -> list[Shard]:
        """Returns the files of a split that hold records.

        Raises:
          ValueError: A name is not one of a file in the directory of the set, a file is
            missing or too small for its records, or the description is damaged.
        """
        with _damage():
            described = self.splits[split]
            lengths = [int(length) for length in described["shardLengths"]]
            template = described.get("filepathTemplate") or _TEMPLATE
            shards = []
            for index, length in enumerate(lengths):
                name = template
                for variable, value in {
                    "SHARD_X_OF_Y": "{SHARD_INDEX}-of-{NUM_SHARDS}",
                    "SHARD_INDEX": f"{index:05d}",
                    "NUM_SHARDS": f"{len(lengths):05d}",
                    "DATASET": self.dataset,
                    "SPLIT": split,
                    "FILEFORMAT": _FORMAT,
                }.items():
                    name = name.replace(f"{{{variable}}}", value)
                if not all(map(_PART.fullmatch, name.split("/"))):
                    raise ValueError(f"a file named {name!r}")
                if length == 0:
                    continue
                size = (self.folder / name).stat().st_size
                # A record takes a byte at least, and an order of all is allocated.
                if not 0 < length <= size:
                    raise ValueError(f"{length:,} records in {size:,} bytes of {name}")
                shards.append(Shard(str(self.folder / name), 0, length, length))
            return shards


class OtherSet(ValueError):
    """A set that is not damaged, but not one that is read; says what it is."""


def read(folder: str) -> Metadata:
    """Reads the metadata of a set; nothing that they name is imported.

    Args:
      folder: Directory of the set.

    Raises:
      OtherSet: The set is in another format, or has a feature of a class that is not
        one of TFDS.
      ValueError: A file is missing or damaged; the error does not name the folder.
    """
    path = Path(folder)
    with _damage():
        info = json.loads((path / "dataset_info.json").read_bytes())
        described = json.loads((path / "features.json").read_bytes())
        for name in _class_names(described):
            if _short(name) not in _KNOWN:
                raise OtherSet(
                    f"a set whose features.json names the class {name!r}, which is not "
                    "one of TFDS"
                )
        if info["fileFormat"] != _FORMAT:
            raise OtherSet("a set in another format")
        return Metadata(
            folder=path,
            dataset=info["name"],
            features={
                name: _short(feature["pythonClassName"])
                for name, feature in described["featuresDict"]["features"].items()
            },
            splits={split["name"]: split for split in info["splits"]},
            description=str(info.get("description", "")),
        )


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """Converts the exceptions of files that are no JSON of TFDS."""
    try:
        yield
    # Infinity is a number for Python's json, and no integer.
    except (
        OSError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _class_names(described: Any) -> Iterator[str]:
    """Yields the classes of all features, also of those inside others."""
    if isinstance(described, dict):
        for key, value in described.items():
            if key == "pythonClassName":
                yield str(value)
            yield from _class_names(value)
    elif isinstance(described, list):
        for value in described:
            yield from _class_names(value)


def _short(name: str) -> str:
    short = name.removeprefix(_PACKAGE) if name.startswith(_PACKAGE) else ""
    return "tensor_feature.Tensor" if short == "feature.Tensor" else short
