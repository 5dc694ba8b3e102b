"""What is found in a folder of recordings or images, with one subfolder per class."""

import collections
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ssm_jax.cli.templates import writing
from ssm_jax.tasks import AudioFolder, ImageFolder
from ssm_jax.tasks.folders import labelled_files, sound_files

# What a CPU trains on in minutes: the constants of the experiment change it.
_MAX_RATE, _MAX_STEPS = 16_000, 2**14
_MAX_PIXELS = 2**10
_CHECKED = 2**27  # Bytes of files that are read whole to find what is damaged.


class Folder(NamedTuple):
    """A folder of labelled files.

    Attributes:
      task: The class of its task.
      fields: Fields of the task beside the classes.
      found: What was found, as names and values to print.
      counts: The number of files of each class.
    """

    task: type[labelled_files.LabelledFiles]
    fields: dict[str, Any]
    found: list[tuple[str, Any]]
    counts: dict[str, int]


def read(path: Path) -> Folder:
    """Reads the headers of all files of a folder, and samples or pixels of some.

    Raises:
      ValueError: The folder has recordings and images, or neither, a file is damaged,
        or the task refuses the folder.
    """
    suffixes = labelled_files.count_suffixes(str(path))
    there = {
        task: {suffix: suffixes[suffix] for suffix in sorted(task.suffixes())}
        for task in (AudioFolder, ImageFolder)
    }
    kinds = [task for task, counts in there.items() if any(counts.values())]
    if not kinds:
        got = ", ".join(f"{n:,} {suffix}" for suffix, n in suffixes.most_common(5))
        raise ValueError(
            "`--data` must be a file, or a folder of recordings (.wav, .flac) or "
            "images (.png, .jpg) with one subfolder per class, got "
            f"{got or 'no file'} in {path}; put the files of each class into a folder "
            "with its name."
        )
    if len(kinds) > 1:
        both = (
            f"{sum(there[kind].values()):,} {kind.what} "
            f"({', '.join(suffix for suffix, n in there[kind].items() if n)})"
            for kind in kinds
        )
        raise ValueError(
            "`--data` must be a folder of recordings or of images, got "
            f"{' and '.join(both)} in {path}; move one kind to another folder."
        )
    describe = _recordings if kinds[0] is AudioFolder else _images
    fields, found = describe(str(path))
    task: labelled_files.LabelledFiles = kinds[0](data_dir=str(path), **fields)
    found += _faults(task, path)
    if any(file.split for file in task.files):
        found.append(("splits", "those that the folder has"))
    counts = collections.Counter(file.label for file in task.files)
    return Folder(kinds[0], fields, found, dict(sorted(counts.items())))


def _recordings(data_dir):
    """Fields of an `AudioFolder`, and what was found."""
    # The fields have no influence on the headers.
    headers = AudioFolder(data_dir=data_dir, sample_rate=1, length=1).headers
    rates = collections.Counter(header.rate for header in headers).most_common()
    rate = min(rates[0][0], _MAX_RATE)
    seconds = sorted(header.n / header.rate for header in headers)
    # In hundredths, all of the longest one, or all that the steps allow.
    length = min(math.ceil(round(100 * seconds[-1], 6)), 100 * _MAX_STEPS // rate) / 100
    by_rate = writing.shortened(f"{rate:,} ({n:,})" for rate, n in rates)
    found = [
        ("lengths", f"{seconds[0]:.3g} to {seconds[-1]:.3g} s"),
        ("rates", f"{by_rate} samples per second, read as {rate:,}"),
    ]
    if n_cut := sum(n > length for n in seconds):
        found.append(("cut", f"{n_cut:,} are longer than {length:g} s and cut there"))
    if n_several := sum(header.channels > 1 for header in headers):
        found.append(("channels", f"{n_several:,} have several, which are averaged"))
    return {"sample_rate": rate, "seconds": length, "group": None}, found


def _images(data_dir):
    """Fields of an `ImageFolder`, and what was found."""
    headers = ImageFolder(data_dir=data_dir, size=(1, 1)).headers
    sizes = collections.Counter((h.height, h.width) for h in headers).most_common()
    height, width = np.median([(h.height, h.width) for h in headers], axis=0)
    scale = min(1.0, math.sqrt(_MAX_PIXELS / (height * width)))
    size = tuple(max(1, int(scale * side)) for side in (height, width))
    by_size = writing.shortened(f"{h} x {w} ({n:,})" for (h, w), n in sizes)
    n_grey = sum(header.is_grey for header in headers)
    channels = "grey" if n_grey == len(headers) else "rgb"
    some = f", {n_grey:,} of {len(headers):,} grey" if 0 < n_grey < len(headers) else ""
    found = [
        ("sizes", f"{by_size} pixels, read as {size[0]} x {size[1]}"),
        ("channels", f"{channels}{some}"),
    ]
    if n_animated := sum(header.is_animated for header in headers):
        found.append(("frames", f"{n_animated:,} have several, the first is read"))
    fields = {"size": size, "channels": channels, "fit": "crop", "group": None}
    return fields, found


def _faults(
    task: labelled_files.LabelledFiles, path: Path
) -> Iterator[tuple[str, str]]:
    """Refuses damaged files, and yields those of which all samples are equal.

    All files are read, or of many a choice that is the same each time.
    """
    order = np.random.default_rng(0).permutation(len(task.files)).tolist()
    causes: dict[str, str] = {}
    equal, n_bytes, n_read = [], 0, 0
    for row in order:
        file = task.files[row]
        if n_read and n_bytes + file.size > _CHECKED:
            continue
        n_bytes, n_read = n_bytes + file.size, n_read + 1
        try:
            if np.ptp(_values(task, file.path, task.headers[row])) == 0:
                equal.append(file.name)
        # Decoders raise errors of many types.
        except Exception as error:
            causes[file.path] = labelled_files.cause_of(error)
    if causes:
        raise task.refusal(causes)
    if n_read < len(task.files):
        yield "checked", f"{n_read:,} of {len(task.files):,} files were read whole"
    if equal:
        what = "silent" if isinstance(task, AudioFolder) else "uniform"
        yield what, f"{len(equal):,}: {writing.shortened(sorted(equal))}"


def _values(task, path, header):
    """The samples of a recording that are read, or the pixels of an image."""
    if not isinstance(task, AudioFolder):
        return task.read_steps(path, header)
    n = math.ceil((task.seconds or 0) * header.rate)
    return sound_files.read_samples(path, header, n)
