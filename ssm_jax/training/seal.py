"""The folder of one step: sealed when it is saved, verified when it is read.

When the save of a step has ended its files are read back, and their sizes and digests
go with those of the leaves into one more file, the seal. A step without a seal was
never finished; a size that differs says that it was cut short, a digest that differs
says that it was changed.
"""

import json
import os
import shutil
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from orbax.checkpoint import v1 as ocp

from ssm_jax.config import from_json
from ssm_jax.training.digest import (
    Json,
    blake2b,
    file_digest,
    from_host,
    layout,
    leaf_digest,
    named_leaves,
)
from ssm_jax.training.restart import config_changes
from ssm_jax.types import PyTree

SEAL = "seal.json"
_ASIDE = ".unreadable"


class CheckpointError(ValueError):
    """A checkpoint could not be saved or must not be used; says why and what helps."""


class Unreadable(CheckpointError):
    """A step was cut short, has lost files, or lies in the folder of another step."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    """One step as it was saved.

    Attributes:
      step: The step; not the newest one if that was cut short.
      state: The pytree that was asked for.
      metrics: What ``save`` was given under this name.
      extra: What ``save`` was given under this name.
      config: The config of the run that saved the step.
    """

    step: int
    state: PyTree
    metrics: dict[str, float]
    extra: Json
    config: Json


def steps(directory: Path) -> list[int]:
    """Returns the steps in a folder, whole or not, ascending."""
    if not directory.is_dir():
        return []
    names = (path.name for path in directory.iterdir() if path.is_dir())
    # "007" and other spellings are no names that Orbax gives.
    return sorted(int(n) for n in names if n.isdecimal() and n == str(int(n)))


def sealed_steps(directory: Path) -> list[int]:
    """Returns the steps whose save has finished, ascending."""
    return [s for s in steps(directory) if (directory / str(s) / SEAL).exists()]


def set_aside(folder: Path) -> None:
    """Renames a step that cannot be used, so that nobody takes it for a step."""
    aside = folder.with_name(f"{folder.name}{_ASIDE}")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    logging.warning("step %s cannot be used and is now %s", folder.name, aside)


def remove_set_aside(directory: Path) -> None:
    """Deletes the steps that were set aside."""
    for aside in directory.glob(f"*{_ASIDE}"):
        shutil.rmtree(aside, ignore_errors=True)


def stored_name(leaf: str) -> str:
    """Returns the name of the folder that the files of a leaf are in."""
    return urllib.parse.quote(leaf, safe="")


def write_seal(folder: Path, record: Json) -> None:
    """Seals the step in ``folder`` as it now stands; the seal appears whole or not."""
    files = {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "digest": file_digest(path),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    record = {**record, "files": files}
    draft = folder / f"{SEAL}.tmp"
    with draft.open("w") as file:
        json.dump({"digest": _record_digest(record), "record": record}, file)
        file.write("\n")  # the end: whatever comes short of it was cut
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / SEAL)


def read_seal(folder: Path) -> Json:
    """Returns what the seal of a step says; its files are not looked at.

    Raises:
      Unreadable: There is no seal, it ends too early, or it is that of another step.
      CheckpointError: The seal is not as it was written.
    """
    try:
        text = (folder / SEAL).read_bytes()
    except FileNotFoundError:
        raise _unreadable(folder, f"no {SEAL}") from None
    if not text.endswith(b"\n"):
        raise _unreadable(folder, f"a {SEAL} without its end")
    try:
        seal = json.loads(text)
        record, digest = seal["record"], seal["digest"]
    except (ValueError, KeyError, TypeError):
        raise _changed(folder, f"a changed {SEAL}") from None
    if _record_digest(record) != digest:
        raise _changed(folder, f"a changed {SEAL}")
    # Seals of older versions do not say their step; the folder's name is believed.
    if (own := record.get("step", int(folder.name))) != int(folder.name):
        raise Unreadable(
            f"step {folder.name} of {folder.parent} must be the folder of step "
            f"{folder.name}, got that of step {own}, copied or renamed; delete it or "
            f"name it {own}."
        )
    return record


def read_step(folder: Path, target: PyTree, config: Json | None) -> Restored:
    """Returns what a target asks of a step, after all of the step has been verified.

    Raises:
      Unreadable: A file is missing or has another size, or the step is another one.
      CheckpointError: A file or a leaf was changed, the step is of another config, or
        a leaf of the target is not what was saved.
    """
    wanted = named_leaves(target)
    record = read_seal(folder)
    _check_config(folder, config, record["config"])
    _check_layouts(folder, wanted, record["leaves"])
    _check_files(folder, record)
    entries = {name: record["leaves"][name] for name in wanted}
    try:
        arrays = _load(folder, entries)
    except Exception as error:
        raise CheckpointError(
            f"step {folder.name} of {folder.parent} must be readable, got "
            f"{root_cause(error)[:300]}; its files are as they were saved."
        ) from error
    for name, array in arrays.items():
        if leaf_digest(array) != entries[name]["digest"]:
            raise _changed(folder, f"a changed leaf `{name}`")
    leaves = [
        from_host(arrays[name], entries[name], leaf) for name, leaf in wanted.items()
    ]
    return Restored(
        step=int(folder.name),
        state=jax.tree.unflatten(jax.tree.structure(target), leaves),
        metrics=record["metrics"],
        extra=record["extra"],
        config=record["config"],
    )


def root_cause(error: BaseException) -> str:
    """Returns what an error came of, in one line; Orbax wraps it several times."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return " ".join(f"{type(error).__name__}: {error}".split())


def _check_config(folder: Path, config: Json | None, saved: Json) -> None:
    """Refuses a step of another config than the one of the run, if that is known."""
    if config is None or config == saved:
        return
    if changes := config_changes(*(from_json(json.dumps(c)) for c in (config, saved))):
        raise CheckpointError(
            f"step {folder.name} of {folder.parent} must be of the config of its run, "
            f"got one that differs, config.json -> step: {changes}; put the run's own "
            "config.json or step back."
        )


def _check_layouts(folder: Path, wanted: Json, entries: Json) -> None:
    """Refuses a target that is not what was saved, below its top-level keys."""
    tops = {name.split("/")[0] for name in wanted}
    asked = {name: layout(leaf) for name, leaf in wanted.items()}
    saved = {
        name: entry["layout"]
        for name, entry in entries.items()
        if name.split("/")[0] in tops
    }
    for name in sorted(asked.keys() | saved.keys()):
        if asked.get(name) != saved.get(name):
            raise CheckpointError(
                f"leaf `{name}` must be {saved.get(name, 'absent')} as in step "
                f"{folder.name} of {folder.parent}, got {asked.get(name, 'none')}; "
                "build the model from the config of that run."
            )


def _check_files(folder: Path, record: Json) -> None:
    """Holds the files of a step to its seal, all sizes before any content."""
    for name, saved in record["files"].items():
        try:
            size = (folder / name).stat().st_size
        except FileNotFoundError:
            raise _unreadable(folder, f"no {name}") from None
        if size != saved["bytes"]:
            raise _unreadable(folder, f"{size} bytes of {saved['bytes']} in {name}")
    leaf_of = {stored_name(leaf): leaf for leaf in record["leaves"]}
    for name, saved in record["files"].items():
        if file_digest(folder / name) != saved["digest"]:
            leaf = leaf_of.get(Path(name).parent.name)
            told = f"a changed leaf `{leaf}`" if leaf else "a change that hits no leaf"
            raise _changed(folder, f"{told}, in {name}")


def _load(folder: Path, entries: Json) -> dict[str, np.ndarray]:
    """Reads the arrays of the leaves named in ``entries`` through Orbax."""
    like = {
        name: np.empty(entry["shape"], jnp.dtype(entry["dtype"]))
        for name, entry in entries.items()
    }
    stored = {stored_name(name): array for name, array in like.items() if array.size}
    if not stored:
        return like
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    with context:
        stored = ocp.load(str(folder), stored, checkpointable_name="state")
    return {name: stored.get(stored_name(name), like[name]) for name in like}


def _unreadable(folder: Path, got: str) -> Unreadable:
    return Unreadable(
        f"step {folder.name} of {folder.parent} must be whole, got {got}; "
        "use the step before it."
    )


def _changed(folder: Path, got: str) -> CheckpointError:
    return CheckpointError(
        f"step {folder.name} of {folder.parent} must be as it was saved, got {got}; "
        f"delete {folder} and the step before it is used."
    )


def _record_digest(record: Json) -> str:
    return blake2b(json.dumps(record, sort_keys=True).encode()).hexdigest()
