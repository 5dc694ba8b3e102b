"""The integrity record of a checkpoint: checksums of its files, its step and config.

Orbax detects files that are missing or too short, but not flipped bytes in array data,
which it restores as wrong numbers. The record is the last file that is written to a
checkpoint; a checkpoint without one was never finished.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from absl import logging

from ssm_jax import files

Json = dict[str, Any]

RECORD = "integrity.json"

_INITIAL_MARGIN = 0.02


class CheckpointError(ValueError):
    """A checkpoint could not be saved or must not be used; says why and what helps."""


class Unreadable(CheckpointError):
    """A checkpoint is incomplete, or lies in the directory of another step."""


def steps(directory: Path) -> list[int]:
    """Returns the steps in a directory, complete or not, ascending."""
    if not directory.is_dir():
        return []
    names = (path.name for path in directory.iterdir() if path.is_dir())
    # Orbax never writes "007" or digits of other scripts.
    return sorted(int(n) for n in names if n.isdecimal() and n == str(int(n)))


def recorded_steps(directory: Path) -> list[int]:
    """Returns the steps whose save has finished, ascending."""
    return [s for s in steps(directory) if (directory / str(s) / RECORD).exists()]


def records(directory: Path) -> Iterator[Json]:
    """Reads the records of the finished steps; logs a warning for unusable ones."""
    for step in recorded_steps(directory):
        try:
            yield read_record(directory / str(step))
        except CheckpointError as error:
            logging.warning("not counted among the best: %s", error)


def best_step(
    records: Iterable[Json], metric: str | None, tie_metric: str | None
) -> int | None:
    """Returns the step with the largest metric; see `Checkpoints` for ties."""
    ranks = []
    for record in records:
        value = record["metrics"].get(metric)
        tie = record["metrics"].get(tie_metric)
        if value is not None and math.isfinite(value):
            step = record["step"]
            ranks.append((*rank(step, value, tie), step))
    return max(ranks)[-1] if ranks else None


def rank(step: int, value: float, loss: float | None) -> tuple[float, float]:
    """Returns what is larger for a better step: its metric, and then its loss.

    The metric of the initial state counts for 0.02 more. Of many evaluations of models
    that learn nothing, the best is better by chance, and not on other data.

    Example:
      >>> max(rank(0, 0.0, 1.0), rank(50, 0.01, 0.9)) == rank(0, 0.0, 1.0)
      True
    """
    # Comparison with a NaN would depend on the order of the steps.
    loss = loss if loss is not None and math.isfinite(loss) else math.inf
    return value + (_INITIAL_MARGIN if step == 0 else 0.0), -loss


def set_aside(path: Path) -> None:
    """Renames the directory of a step that cannot be used, so that it is none."""
    aside = path.with_name(f"{path.name}.unreadable")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    logging.warning("step %s cannot be used and is now %s", path.name, aside)


def remove_set_aside(directory: Path) -> None:
    """Deletes the steps that were set aside."""
    for aside in directory.glob("*.unreadable"):
        shutil.rmtree(aside, ignore_errors=True)


def remove(path: Path) -> None:
    """Deletes a step; if it is interrupted, what is left counts as never finished."""
    (path / RECORD).unlink()
    shutil.rmtree(path)


def write_record(path: Path, record: Json) -> None:
    """Writes the record of the step in `path` atomically, with its files' checksums."""
    contents = {
        name: [file.stat().st_size, _checksum(file)]
        for name, file in _files(path).items()
    }
    record = {**record, "files": contents}
    # A record that does not end in a newline was truncated.
    text = json.dumps({"checksum": _record_checksum(record), "record": record})
    files.write_text(path / RECORD, text + "\n")


def read_record(path: Path) -> Json:
    """Reads the record of a step, but none of its other files.

    Raises:
      Unreadable: There is no record, it is truncated, or it is that of another step.
      CheckpointError: The record is not as it was written.
    """
    text = (path / RECORD).read_bytes() if (path / RECORD).exists() else b""
    if not text.endswith(b"\n"):
        got = f"a truncated {RECORD}" if text else f"no {RECORD}"
        raise Unreadable(message(path, "be complete", got))
    try:
        content = files.parse_json(text.decode())
        record = content["record"]
        intact = _record_checksum(record) == content["checksum"]
    except (ValueError, KeyError, TypeError):
        record, intact = {}, False
    # The checksum says that nothing changed, and not who wrote it.
    if not intact or not _is_record(record):
        got = f"a changed {RECORD}"
        raise CheckpointError(message(path, "be as it was saved", got))
    if (stored_step := record["step"]) != int(path.name):
        # Copied or renamed by hand: its numbers would count as those of another step.
        rule = f"be the directory of step {path.name}"
        raise Unreadable(
            message(path, rule, f"that of step {stored_step}", f"name it {stored_step}")
        )
    return record


def check_sizes(path: Path, record: Json) -> None:
    """Compares the sizes of the files of a step with its record.

    Raises:
      Unreadable: A file is missing or has another size, as a kill leaves it.
    """
    # Of the directory alone: a name may lead out of it, and to what has no end.
    there = {name: file.stat().st_size for name, file in _files(path).items()}
    for name, (saved, _) in record["files"].items():
        if (size := there.get(name)) != saved:
            got = f"no {name}" if size is None else f"{size} bytes of {saved} in {name}"
            raise Unreadable(message(path, "be complete", got))


def check_files(path: Path, record: Json) -> None:
    """Compares the files of a step with its record.

    Raises:
      Unreadable: A file is missing or has another size.
      CheckpointError: The content of a file was changed.
    """
    # All sizes come first: they cost nothing, and what a kill truncates is passed over,
    # while a change of the content stops the run.
    check_sizes(path, record)
    for name, (_, checksum) in record["files"].items():
        if _checksum(path / name) != checksum:
            got = f"another checksum of {name}"
            raise CheckpointError(message(path, "be as it was saved", got))


def message(path: Path, rule: str, got: str, way_out: str = "") -> str:
    """Returns the message of an error about the step in `path`."""
    way_out = way_out or f"delete {path} to use the step before it"
    return f"step {path.name} of {path.parent} must {rule}, got {got}; {way_out}."


def _files(path: Path) -> dict[str, Path]:
    """The files below a directory by their names in it, in order."""
    return {
        file.relative_to(path).as_posix(): file
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def _is_record(record: Any) -> bool:
    """Whether a record has the fields that are read, each of its type."""
    kinds = {
        "step": int,
        "metrics": dict,
        "config": dict,
        "leaves": dict,
        "files": dict,
    }
    if not isinstance(record, dict) or not all(
        isinstance(record.get(name), kind) for name, kind in kinds.items()
    ):
        return False
    return (
        all(isinstance(v, float | int | None) for v in record["metrics"].values())
        and all(isinstance(layout, str) for layout in record["leaves"].values())
        and all(
            isinstance(file, list) and [*map(type, file)] == [int, str]
            for file in record["files"].values()
        )
    )


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record_checksum(record: Json) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def root_cause(error: BaseException) -> str:
    """The innermost cause in one line; Orbax wraps it several times."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
