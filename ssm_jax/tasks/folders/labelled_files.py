"""Files in a folder with one subfolder per class: their classes, splits and errors."""

import abc
import collections
import dataclasses
import functools
import hashlib
import os
import re
import stat
import unicodedata
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from absl import logging
from typing_extensions import override

from ssm_jax.fields import Fraction, check_fields
from ssm_jax.tasks import base, new_data

# Names of the subfolders of a folder that has its own splits.
_SPLITS: dict[str, base.Split] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}
# What systems leave in folders, beside names that start with a dot.
_HIDDEN = ("thumbs.db", "desktop.ini", "__macosx")
_CACHE = 2**28  # bytes of decoded examples
_SHOWN = 3  # files in an error
_SHOWN_SILENT = 20  # files of a prediction in a warning


class File(NamedTuple):
    """A file of a class.

    Attributes:
      path: Its path.
      name: Its path in the folder, with slashes, the same on every system.
      label: Name of its class.
      split: That of a folder with its own splits, otherwise None.
      size: Its bytes; -1 if it is no regular file.
      modified: When it was modified.
    """

    path: str
    name: str
    label: str
    split: base.Split | None
    size: int
    modified: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelledFiles(new_data.NewDataTask):
    """Classification of files, the subfolder of each of which is its class.

    The folder is listed once per task, and the headers of its files are read once per
    process as long as their names, sizes and times do not change. Examples are read per
    batch; those that were used last are kept, up to 256 MiB.

    Attributes:
      data_dir: Folder of the class folders, or of ``train``, ``validation`` and
        ``test``, which hold them.
      classes: Names of the class folders, in the order of their indices. None means all
        that there are, sorted.
      group: Regular expression with one group, which is searched in the path of each
        file in ``data_dir``: what it matches is never in two splits. None means that
        files are divided independently.
      validation_fraction: Part of the files, or of the groups, for validation, and
      test_fraction: that for testing.
      class_weight: ``"balanced"`` for classes of different frequency; see `TaskSpec`.
    """

    data_dir: str | None = None
    classes: tuple[str, ...] | None = None
    group: str | None = None
    validation_fraction: Fraction = 0.1
    test_fraction: Fraction = 0.1
    class_weight: Literal["balanced"] | None = None

    in_folder: ClassVar[bool] = True

    what: ClassVar[str]
    """What the files are, in errors."""

    def __post_init__(self) -> None:
        """Validates the fields."""
        check_fields(self)
        classes = self.classes
        if classes is not None and (
            len(set(map(_normal, classes))) < max(2, len(classes))
            or any(not name or "/" in name for name in classes)
        ):
            raise ValueError(
                "`classes` must be the names of two or more folders, each once, got "
                f"{classes}; None means all that there are."
            )
        if self.group is not None:
            try:
                n_groups = re.compile(self.group).groups
            except re.error as error:
                n_groups = error
            if n_groups != 1:
                raise ValueError(
                    "`group` must be a regular expression with one group in "
                    f"parentheses, got {self.group!r} ({n_groups}); "
                    r"r'/(\w+)_nohash' is one."
                )
        if self.validation_fraction + self.test_fraction >= 1:
            raise ValueError(
                "`validation_fraction` and `test_fraction` must be together below 1, "
                f"got {self.validation_fraction} and {self.test_fraction}; 0.1 and 0.1 "
                "are usual."
            )

    @property
    @abc.abstractmethod
    def spec(self) -> base.TaskSpec:
        """Features of a step; one class per sequence."""

    @classmethod
    @abc.abstractmethod
    def suffixes(cls) -> Collection[str]:
        """Returns the extensions of the names of files that are read, in lower case."""

    @staticmethod
    @abc.abstractmethod
    def read_header(path: str) -> Any:
        """Reads what a file is, without its content; any exception says what is bad."""

    def check_header(self, header: Any) -> str | None:
        """Returns why a file of this header does not fit the fields, else None."""
        return None

    def is_silent(self, steps: np.ndarray) -> bool:
        """Returns whether an example of these steps is to be named in a warning."""
        return False

    @abc.abstractmethod
    def read_steps(self, path: str, header: Any) -> np.ndarray:
        """Reads an example, float32 ``(n, d_input)``, with ``n`` up to ``length``.

        Any exception says what is bad.
        """

    def class_names(self) -> tuple[str, ...]:
        """Returns the name of each class, in the order of their indices."""
        if self.classes is not None:
            return tuple(map(_normal, self.classes))
        return self._listing[1]

    def data_files(self) -> dict[str, Path]:
        """Returns the files of all splits by their paths in ``data_dir``."""
        _ = self.headers
        return {file.name: Path(file.path) for file in self._listing[0]}

    @override
    def n_examples(self, split: base.Split) -> int:
        base.check_split(split)
        rows = self._rows[split]
        if not len(rows):
            raise ValueError(
                f"`data_dir` must hold {self.what} for the {split} split, got none "
                f"among the {len(self._labels)} in {self.data_dir}; put three or more "
                "into a class, or some into its folders train, validation and test."
            )
        names = self.class_names()
        n_of_class = np.bincount(self._labels[rows], minlength=len(names))
        if split == "train" and not n_of_class.all():
            raise ValueError(
                f"`data_dir` must hold {self.what} of each class for the train split, "
                f"got none of {names[int(np.argmin(n_of_class))]!r} in "
                f"{self.data_dir}; add some, or leave it out of `classes`."
            )
        return len(rows)

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        rows = self._rows[split][indices]
        inputs, mask, silent = self._read(rows)
        for file in silent:
            warn_once(
                f"{file.path} is silent in its first {self.spec.length} steps; others "
                "in its folder are not named",
                key=("silent", os.path.dirname(file.path)),
            )
        return base.Batch(inputs, self._labels[rows], loss_mask, mask)

    @override
    def new_examples(self, data: Any = None) -> new_data.NewExamples:
        task = self if data is None else self._on_files(data, self._unlabelled(data))
        _ = task.headers  # What is damaged is said before a model is compiled.
        files = task.files

        def batches(size: int) -> Iterator[new_data.Inputs]:
            all_silent = []
            for first in range(0, len(files), size):
                rows = np.arange(first, min(first + size, len(files)))
                inputs, mask, silent = task._read(rows)
                all_silent += [file.name for file in silent]
                yield inputs, mask
            if all_silent:
                shown = ", ".join(_shortened(all_silent, _SHOWN_SILENT))
                steps = f"in the first {task.spec.length} steps"
                logging.warning(
                    "%d of %d are silent %s: %s",
                    *(len(all_silent), len(files), steps, shown),
                )

        # Names that are not in UTF-8 can be written to a file, too.
        shown = (file.name.encode(errors="backslashreplace") for file in files)
        names = np.array([name.decode() for name in shown])
        return new_data.NewExamples("file", names, self.class_names(), batches)

    @override
    def on(self, data: Any) -> "LabelledFiles":
        classes, folder = self.class_names(), _path_of(data, self.what)
        if not os.path.isdir(folder):
            raise ValueError(
                f"`data_dir` must be a folder with one folder of {self.what} per class "
                f"to be evaluated, got {folder}; `ssm-jax predict` reads one file."
            )
        files, labels = _list_files(folder, self.suffixes(), self.what, classes)
        if unknown := [label for label in labels if label not in classes]:
            raise ValueError(
                f"`data_dir` must have folders of the classes {', '.join(classes)}, "
                f"got {', '.join(_shortened([*map(repr, unknown)], _SHOWN))} in "
                f"{folder}; rename or remove what is none of them."
            )
        if not files:
            raise ValueError(
                f"`data_dir` must hold {self.what} in folders of the classes "
                f"{', '.join(classes)}, got none in {folder}; put each file into the "
                "folder of its class."
            )
        task = self._on_files(folder, files)
        vars(task).update(_rows=new_data.test_split(len(files)))
        _ = task.headers
        return task

    def _on_files(self, data, files):
        """This task on other files, whose names say nothing of a split."""
        classes = self.class_names()
        task = dataclasses.replace(self, data_dir=str(data), classes=classes)
        # In place of the cached property.
        vars(task).update(_listing=(files, classes))
        return task

    def _unlabelled(self, data):
        """The files of a folder, whatever its folders are, or one file."""
        path, suffixes = _path_of(data, self.what), self.suffixes()
        entries = [path]
        if os.path.isdir(path):
            entries = [entry.path for entry in _walk(path, ())]
        read = [entry for entry in entries if _suffix(entry) in suffixes]
        left_out = [entry for entry in entries if _suffix(entry) not in suffixes]
        if not read:
            raise ValueError(
                f"`data_dir` must hold {self.what}, got {path} with {_count(left_out)};"
                f" those of these extensions are read: {', '.join(sorted(suffixes))}."
            )
        if left_out:
            warn_once(f"left out of {path}, as no {self.what}: {_count(left_out)}")
        root = path if os.path.isdir(path) else os.path.dirname(path)
        files = [
            File(entry, _normal(Path(os.path.relpath(entry, root)).as_posix()), "",
                 None, *_state(entry))
            for entry in read
        ]  # fmt: skip
        return tuple(sorted(files, key=lambda file: file.name))

    def _read(self, rows):
        """The inputs and the mask of some of `files`, and which of them are silent."""
        spec, silent = self.spec, []
        inputs = np.zeros((len(rows), spec.length, spec.d_input), np.float32)
        lengths = np.zeros(len(rows), np.int32)
        for i, row in enumerate(rows.tolist()):
            steps = self._cached_steps(row)
            inputs[i, : len(steps)], lengths[i] = steps, len(steps)
            if self.is_silent(steps):
                silent.append(self.files[row])
        mask = np.arange(spec.length) < lengths[:, None] if self.padded else None
        return inputs, mask, silent

    @property
    def padded(self) -> bool:
        """Whether an example may have fewer steps than ``length``."""
        return False

    @property
    def files(self) -> tuple[File, ...]:
        """The files of all splits, sorted by name."""
        return self._listing[0]

    # On the task, not in a cache by its fields: another task of equal fields sees what
    # the folder is then.
    @functools.cached_property
    def _listing(self) -> tuple[tuple[File, ...], tuple[str, ...]]:
        classes = None if self.classes is None else self.class_names()
        return _list_files(self.data_dir, self.suffixes(), self.what, classes)

    @functools.cached_property
    def headers(self) -> tuple[Any, ...]:
        """What `read_header` returns for each of `files`."""
        found = tuple((f.path, f.size, f.modified) for f in self.files)
        headers, causes = _read_headers(found, self.read_header)
        if not causes:
            checked = zip(self.files, map(self.check_header, headers), strict=True)
            causes = {file.path: cause for file, cause in checked if cause}
        if causes:
            raise self.refusal(causes)
        return headers

    def refusal(self, causes: Mapping[str, str]) -> ValueError:
        """Returns one error for files that are bad, given what is bad by path."""
        bad = [f"{path} ({why})" for path, why in causes.items()]
        return ValueError(
            f"`data_dir` must hold whole {self.what}, got "
            f"{', '.join(_shortened(bad, _SHOWN))}; repair or remove them."
        )

    @functools.cached_property
    def _labels(self):
        _ = self.headers  # No label of a file that is bad.
        index = {name: i for i, name in enumerate(self.class_names())}
        return np.array([index[file.label] for file in self.files], np.int32)

    @functools.cached_property
    def _rows(self):
        """The indices in `files` of each split."""
        _ = self.headers
        splits = np.array(self._splits())
        return {
            split: np.flatnonzero(splits == split) for split in set(_SPLITS.values())
        }

    def _splits(self):
        """The split of each of `files`."""
        files, given = self.files, {file.split for file in self.files}
        # Those that a folder with its own splits does not have are drawn from train.
        fractions = [
            0.0 if split in given else fraction
            for split, fraction in (
                ("validation", self.validation_fraction),
                ("test", self.test_fraction),
            )
        ]
        units = [self._unit(file) for file in files]
        pools = collections.defaultdict(set)
        for file, unit in zip(files, units, strict=True):
            if file.split in (None, "train"):
                # A group may have files of several classes.
                pools[file.label if self.group is None else ""].add(unit)
        drawn = {
            unit: split
            for pool in pools.values()
            for unit, split in _draw(pool, *fractions).items()
        }
        splits, split_of = [], {}
        for file, unit in zip(files, units, strict=True):
            own = file.split in ("validation", "test")
            split = file.split if own else drawn[unit]
            if split_of.setdefault(unit, split) != split:
                raise ValueError(
                    f"`group` must be in one split, got {unit!r} in "
                    f"{split_of[unit]} and {split} of {self.data_dir}, the latter with "
                    f"{file.name}; move its files, or leave `group` out."
                )
            splits.append(split)
        return splits

    def _unit(self, file):
        """What is divided between splits: the name of the file, or of its group."""
        if self.group is None:
            return file.name
        match = re.search(self.group, file.name)
        if match is None or match[1] is None:
            raise ValueError(
                f"`group` must match the path of each file, got {self.group!r} for "
                f"{file.name} in {self.data_dir}; it is searched in that path."
            )
        return match[1]

    @functools.cached_property
    def _cached_steps(self):
        """`_steps`, with the examples that were used last."""
        n_bytes = 4 * self.spec.length * self.spec.d_input
        return functools.lru_cache(maxsize=_CACHE // n_bytes)(self._steps)

    def _steps(self, row):
        path = self.files[row].path
        try:
            return self.read_steps(path, self.headers[row])
        except Exception as error:
            raise self.refusal({path: cause_of(error)}) from error


def cause_of(error: Exception) -> str:
    """Returns what an exception says, in a few words of one line."""
    known = isinstance(error, OSError) and error.strerror
    return " ".join((known or str(error)).split())[:200] or type(error).__name__


def count_suffixes(folder: str) -> collections.Counter[str]:
    """Counts the files in a folder and its subfolders by their extensions.

    Args:
      folder: The folder; names that begin with a dot are left out.

    Returns:
      The number of files by extension, in lower case.
    """
    return collections.Counter(_suffix(entry.name) for entry in _walk(folder, ()))


_said = set()


def warn_once(message: str, key: Any = None) -> None:
    """Logs a warning once per process.

    Args:
      message: The warning.
      key: Of warnings with equal keys, the first one is logged. None means the message.
    """
    if (key or message) not in _said:
        _said.add(key or message)
        logging.warning("%s", message)


def _normal(name):
    """A name in the composed form of Unicode: some systems decompose what they store.

    Labels and splits must be the same on all of them.
    """
    return unicodedata.normalize("NFC", name)


def _path_of(data, what):
    """The path of other data, which are in files."""
    if not isinstance(data, str | os.PathLike):
        raise ValueError(
            f"`data` must be a folder of {what}, or one of them, got columns or arrays "
            "in memory; give a path."
        )
    return os.path.expanduser(os.fspath(data))


def _list_files(
    data_dir: str | None,
    suffixes: Collection[str],
    what: str,
    classes: tuple[str, ...] | None,
) -> tuple[tuple[File, ...], tuple[str, ...]]:
    """Lists the files of each class and the classes, both sorted.

    Args:
      data_dir: See `LabelledFiles`.
      suffixes: Extensions of the files, in lower case.
      what: What the files are, in errors.
      classes: The classes whose files are listed. None means all.

    Raises:
      FileNotFoundError: ``data_dir`` is no folder.
      ValueError: It has not at least two class folders, or one without a file.
    """
    folder = os.path.expanduser(data_dir or "")
    rule = f"`data_dir` must be a folder with one folder of {what} per class"
    if data_dir is None or not os.path.isdir(folder):
        raise FileNotFoundError(
            f"{rule}, got {data_dir}; `ssm-jax train` and `ssm-jax evaluate` accept it "
            "as `--data_dir`."
        )
    files, labels, left_out = [], set(), []
    for root, split in _split_folders(folder):
        class_folders, loose = _entries(root)
        left_out += [entry.name for entry in loose]
        for class_folder in class_folders:
            label = _normal(class_folder.name)
            labels.add(label)
            if classes is not None and label not in classes:
                continue
            for entry in _walk(class_folder.path, (os.path.realpath(folder),)):
                if _suffix(entry.name) in suffixes:
                    name = _normal(Path(entry.path).relative_to(folder).as_posix())
                    files.append(
                        File(entry.path, name, label, split, *_state(entry.path))
                    )
                else:
                    left_out.append(entry.name)
    found = {file.label for file in files}
    if classes is None:
        if not labels:
            raise ValueError(
                f"{rule}, got {folder} without folders, with {_count(left_out)}; put "
                "each file into the folder of its class."
            )
        if empty := labels - found:
            raise ValueError(
                f"{rule}, got none in {min(empty)!r} of {folder}, with "
                f"{_count(left_out)} that are left out; remove or fill that folder, "
                "or name the others by `classes`."
            )
        if len(labels) < 2:
            raise ValueError(
                f"{rule}, got {min(labels)!r} alone in {folder}; a classification has "
                "two or more. Give the folder that holds them."
            )
    if left_out:
        warn_once(
            f"left out of {folder}, as no {what} of a class: {_count(left_out)}",
        )
    files.sort(key=lambda file: file.name)
    return tuple(files), tuple(sorted(labels))


def _split_folders(folder: str) -> Iterable[tuple[str, base.Split | None]]:
    """The folders of class folders, with their splits."""
    folders, _ = _entries(folder)
    found: list[tuple[str, base.Split | None]] = [
        (entry.path, _SPLITS[entry.name.lower()])
        for entry in folders
        if entry.name.lower() in _SPLITS
    ]
    splits = {split for _, split in found}
    # Of one alone, the name is that of a class: trains are no training split.
    own = "train" in splits and len(splits) > 1
    return found if own else [(folder, None)]


def _entries(folder: str) -> tuple[list[os.DirEntry], list[os.DirEntry]]:
    """The folders and the other entries of a folder, sorted, hidden ones left out."""
    with os.scandir(folder) as entries:
        shown = [
            entry
            for entry in entries
            if not entry.name.startswith(".") and entry.name.lower() not in _HIDDEN
        ]
    shown.sort(key=lambda entry: entry.name)
    folders = [entry for entry in shown if os.path.isdir(entry.path)]
    return folders, [entry for entry in shown if not os.path.isdir(entry.path)]


def _walk(folder: str, ancestors: Sequence[str]) -> Iterator[os.DirEntry]:
    """The files in a folder and its subfolders; links to folders are followed."""
    real = os.path.realpath(folder)
    if real in ancestors:  # A link to a folder that contains it.
        return
    folders, others = _entries(folder)
    yield from others
    for entry in folders:
        yield from _walk(entry.path, (*ancestors, real))


def _state(path):
    """The size of a file, and when it was modified."""
    try:
        status = os.stat(path)
    except OSError:  # A link to nothing, which the error names.
        return -1, 0
    # Opening a pipe would wait for its other end.
    regular = stat.S_ISREG(status.st_mode)
    return (status.st_size if regular else -1), status.st_mtime_ns


def _suffix(name):
    return os.path.splitext(name)[1].lower()


def _shortened(words: Sequence[str], n: int) -> Sequence[str]:
    """The first of some words, and how many more there are.

    Example:
      >>> _shortened(["a", "b", "c"], 2)
      ['a', 'b', '1 more']
    """
    return words if len(words) <= n else [*words[:n], f"{len(words) - n} more"]


def _count(names: Iterable[str]) -> str:
    """How many files there are of each extension.

    Example:
      >>> _count(["a.txt", "b.TXT", "README"])
      '2 .txt, 1 without extension'
    """
    counts = collections.Counter(map(_suffix, names)).most_common(5)
    words = [f"{n} {suffix or 'without extension'}" for suffix, n in counts]
    return ", ".join(words) or "no file"


def _draw(
    units: Iterable[str], validation_fraction: float, test_fraction: float
) -> dict[str, base.Split]:
    """Divides files or groups by hashes of their names.

    A unit that is added moves no other one, except where a split would have none: of
    three units or more, each split with a fraction has one.

    Example:
      >>> before = _draw([f"{i}.wav" for i in range(100)], 0.1, 0.1)
      >>> after = _draw([f"{i}.wav" for i in range(101)], 0.1, 0.1)
      >>> all(after[name] == split for name, split in before.items())
      True
    """
    position = {unit: _position(unit) for unit in units}
    ordered = sorted(position, key=lambda unit: (position[unit], unit))

    def count(fraction, n_inside, n_max):
        return min(max(n_inside, 1), max(n_max, 0)) if fraction else 0

    # Validation has the lowest positions and test the highest, so that a unit never
    # moves from one to the other.
    n, wants_validation = len(ordered), validation_fraction > 0
    n_test = sum(p >= 1 - test_fraction for p in position.values())
    n_test = count(test_fraction, n_test, n - 1 - wants_validation)
    n_validation = sum(p < validation_fraction for p in position.values())
    n_validation = count(validation_fraction, n_validation, n - 1 - n_test)
    sizes: dict[base.Split, int] = {
        "validation": n_validation,
        "train": n - n_validation - n_test,
        "test": n_test,
    }
    splits: list[base.Split] = [
        split for split, size in sizes.items() for _ in range(size)
    ]
    return dict(zip(ordered, splits, strict=True))


def _position(unit):
    """A number in [0, 1) that depends on a name alone."""
    digest = hashlib.sha256(unit.encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


# By what the files are now: a folder that changed is read again. Tasks with other
# fields share them.
@functools.lru_cache(maxsize=4)
def _read_headers(
    files: tuple[tuple[str, int, int], ...], read: Callable[[str], Any]
) -> tuple[tuple[Any, ...], dict[str, str]]:
    """Reads the headers of files, given by path, size and time of modification.

    Returns:
      The headers, and what is bad, by path.
    """
    from tqdm import tqdm

    headers, causes = [], {}
    # `disable=None`: a progress bar on terminals only.
    for path, size, _ in tqdm(files, "headers", disable=None, leave=False):
        if size < 1:
            causes[path] = "empty" if size == 0 else "no regular file"
            continue
        try:
            headers.append(read(path))
        # Decoders raise errors of many types.
        except Exception as error:
            causes[path] = cause_of(error)
    return tuple(headers), causes
