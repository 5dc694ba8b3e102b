"""What a checkpoint was when it was saved: the digests of its leaves and files.

The files of a step are read back once its save has ended, and their sizes and digests
go with those of the leaves into one more file, the seal. A step without a seal was never
finished; sizes that differ say that a step was cut short, digests that differ say
that it was changed.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from ssm_jax.types import PyTree

SEAL = "seal.json"


class Truncated(Exception):
    """A file of a step is missing or shorter than when it was saved."""


class Damaged(Exception):
    """A file of a step has its size, but not its content."""


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Returns the leaves of a pytree by their paths, ``params/block_0/w``.

    Raises:
      ValueError: Two leaves have one path, as ``{"a/b": x, "a": {"b": y}}`` has.

    Example:
      >>> named_leaves({"params": {"w": 1.0}, "moments": (2.0, None)})
      {'moments/0': 2.0, 'params/w': 1.0}
    """
    leaves = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves:
            raise ValueError(
                f"`tree` must have one path for each leaf, got `{name}` twice; "
                "rename one of the keys."
            )
        leaves[name] = leaf
    return leaves


def is_key(leaf: Any) -> bool:
    """Tells whether a leaf is a typed PRNG key (or the abstract value of one)."""
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(
        leaf.dtype, jax.dtypes.prng_key
    )


def layout(leaf: Any) -> str:
    """Returns dtype and shape of a leaf, ``float32(2, 3)``.

    Example:
      >>> layout(np.ones((2, 3), np.float32)), layout(jax.random.key(0))
      ('float32(2, 3)', 'key<fry>()')
    """
    if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        leaf = np.asarray(leaf)
    return f"{leaf.dtype}{leaf.shape}"


def leaf_entry(leaf: Any, array: np.ndarray) -> dict[str, Any]:
    """Returns what a leaf is and what array it is stored as, as JSON."""
    return {
        "layout": layout(leaf),
        "key_impl": str(jax.random.key_impl(leaf)) if is_key(leaf) else None,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
    }


def host_copy(leaf: Any) -> np.ndarray:
    """Returns a leaf as numpy, in memory that nobody else writes to.

    A copy, always: a mere view of a CPU array would keep JAX from donating it to the
    next training step.
    """
    if is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        leaf = multihost_utils.process_allgather(leaf, tiled=True)
    return np.array(leaf, order="C")


def leaf_digest(array: np.ndarray) -> str:
    """Returns the BLAKE2b digest, 128 bits, of an array's dtype, shape and bytes."""
    head = f"{array.dtype}{array.shape}".encode()
    digest = hashlib.blake2b(head, digest_size=16)
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return digest.hexdigest()


def write_seal(folder: Path, record: dict[str, Any]) -> None:
    """Seals the step in ``folder`` as it now stands, in one move.

    Args:
      folder: The folder of a step whose save has ended.
      record: What the seal says beside the files, as JSON.
    """
    names = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "digest": _file_digest(path),
        }
        for path in names
    }
    record = {**record, "files": files}
    draft = folder / f"{SEAL}.tmp"
    with draft.open("w") as file:
        json.dump({"digest": _record_digest(record), "record": record}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / SEAL)


def read_seal(folder: Path) -> dict[str, Any]:
    """Returns the record of the step in ``folder``; its files are not looked at.

    Raises:
      Truncated: There is no seal, or it ends too early.
      Damaged: The seal is not as it was written.
    """
    try:
        seal = json.loads((folder / SEAL).read_bytes())
        record, digest = seal["record"], seal["digest"]
    except FileNotFoundError:
        raise Truncated(f"no {SEAL}, its save was not finished") from None
    except (ValueError, KeyError, TypeError):
        raise Truncated(f"{SEAL} cannot be read") from None
    if _record_digest(record) != digest:
        raise Damaged(SEAL)
    return record


def check_files(folder: Path, record: dict[str, Any]) -> None:
    """Holds the files of a step to its seal, all sizes before any content.

    Raises:
      Truncated: A file is missing or has another size.
      Damaged: A file has another content.
    """
    for name, entry in record["files"].items():
        try:
            size = (folder / name).stat().st_size
        except FileNotFoundError:
            raise Truncated(f"{name} is missing") from None
        if size != entry["bytes"]:
            raise Truncated(f"{name} has {size} of {entry['bytes']} bytes")
    for name, entry in record["files"].items():
        if _file_digest(folder / name) != entry["digest"]:
            raise Damaged(name)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, _blake2b).hexdigest()


def _blake2b() -> Any:
    return hashlib.blake2b(digest_size=16)


def _record_digest(record: dict[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest()
