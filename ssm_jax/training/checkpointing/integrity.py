"""The integrity record of a checkpoint: checksums of its files, its step and config.

Orbax detects files that are missing or too short, but not flipped bytes in array data,
which it restores as wrong numbers. The record is the last file that is written to a
checkpoint; a checkpoint without one was never finished.
"""

import hashlib
import json
import os
import shutil
import urllib.parse
from pathlib import Path
from typing import Any

from absl import logging
from ml_collections import ConfigDict

from ssm_jax.config import differences, from_json

Json = dict[str, Any]

RECORD = "integrity.json"
MAY_CHANGE = ("task.data_dir",)
"""Fields of a config that may differ between two starts of a run: data may move."""


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
    """Returns the steps whose save has finished, ascending; see `check_version`."""
    check_version(directory)
    return [s for s in steps(directory) if (directory / str(s) / RECORD).exists()]


def check_version(directory: Path) -> None:
    """Refuses checkpoints that were written before version 0.1."""
    for step in steps(directory):
        if (directory / str(step) / "seal.json").exists():
            raise CheckpointError(
                f"`{directory}` must hold checkpoints of this version, got step {step} "
                "in the format of ssm_jax 0.0; read it with ssm_jax 0.0, commit "
                "4db8fba or earlier, or train again in another --workdir."
            )


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


def stored_name(leaf: str) -> str:
    """Returns the name of the directory that the files of a leaf are in."""
    return urllib.parse.quote(leaf, safe="")


def write_record(path: Path, record: Json) -> None:
    """Writes the record of the step in `path`, whole or not at all."""
    files = {
        file.relative_to(path).as_posix(): [file.stat().st_size, _checksum(file)]
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }
    record = {**record, "files": files}
    draft = path / f"{RECORD}.tmp"
    with draft.open("w") as file:
        json.dump({"checksum": _record_checksum(record), "record": record}, file)
        # A record that does not end in a newline was truncated.
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path / RECORD)


def read_record(path: Path) -> Json:
    """Returns the record of a step; its files are not looked at.

    Raises:
      Unreadable: There is no record, it is truncated, or it is that of another step.
      CheckpointError: The record is not as it was written.
    """
    try:
        text = (path / RECORD).read_bytes()
    except FileNotFoundError:
        raise _incomplete(path, f"no {RECORD}") from None
    if not text.endswith(b"\n"):
        raise _incomplete(path, f"a {RECORD} without its end")
    try:
        found = json.loads(text)
        record, checksum = found["record"], found["checksum"]
    except (ValueError, KeyError, TypeError):
        raise _changed(path, f"a changed {RECORD}") from None
    if _record_checksum(record) != checksum:
        raise _changed(path, f"a changed {RECORD}")
    if (own := record["step"]) != int(path.name):
        rule = f"be the folder of step {path.name}"
        way_out = f"delete it or name it {own}"
        got = f"that of step {own}, copied or renamed"
        raise Unreadable(message(path, rule, got, way_out))
    return record


def check_config(path: Path, config: Json, saved: Json) -> None:
    """Refuses a step of another config than that of the run."""
    if config == saved:
        return
    if changes := config_changes(*(from_json(json.dumps(c)) for c in (config, saved))):
        got = f"one that differs, config.json -> step: {changes}"
        way_out = "put the run's own config.json or step back"
        raise CheckpointError(
            message(path, "be of the config of its run", got, way_out)
        )


def check_files(path: Path, record: Json) -> None:
    """Compares the files of a step with its record, all sizes before any content.

    Raises:
      Unreadable: A file is missing or has another size.
      CheckpointError: A file was changed.
    """
    for name, (saved_size, _) in record["files"].items():
        if not (path / name).exists():
            raise _incomplete(path, f"no {name}")
        if (size := (path / name).stat().st_size) != saved_size:
            raise _incomplete(path, f"{size} bytes of {saved_size} in {name}")
    leaf_of = {stored_name(leaf): leaf for leaf in record["leaves"]}
    for name, (_, checksum) in record["files"].items():
        if _checksum(path / name) != checksum:
            leaf = leaf_of.get(Path(name).parent.name)
            what = f"a changed leaf `{leaf}`" if leaf else "a change that hits no leaf"
            raise _changed(path, f"{what}, in {name}")


def config_changes(old: ConfigDict, new: ConfigDict, n_shown: int = 10) -> str:
    """Lists where two configs differ, except in `MAY_CHANGE`, in one line.

    Example:
      >>> old = {"task": {"data_dir": "a"}, "steps": 10}
      >>> new = {"task": {"data_dir": "b"}, "steps": 20}
      >>> config_changes(ConfigDict(old), ConfigDict(new))
      'steps: 10 -> 20'
    """
    fields = tuple(f"{field}:" for field in MAY_CHANGE)
    changes = [line for line in differences(old, new) if not line.startswith(fields)]
    more = f" and {len(changes) - n_shown} more" if len(changes) > n_shown else ""
    return "; ".join(changes[:n_shown]) + more


def message(path: Path, rule: str, got: str, way_out: str) -> str:
    """Returns the message of an error about the step in `path`."""
    return f"step {path.name} of {path.parent} must {rule}, got {got}; {way_out}."


def _incomplete(path: Path, got: str) -> Unreadable:
    return Unreadable(message(path, "be whole", got, "use the step before it"))


def _changed(path: Path, got: str) -> CheckpointError:
    way_out = f"delete {path} and the step before it is used"
    return CheckpointError(message(path, "be as it was saved", got, way_out))


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, _blake2b).hexdigest()


def _record_checksum(record: Json) -> str:
    return _blake2b(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _blake2b(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=16)
