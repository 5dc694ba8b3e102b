"""The leaves of a state as arrays on the host, by their names, with their digests."""

import hashlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.types import PyTree

Json = dict[str, Any]


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Returns the leaves of a pytree by their paths, in its order.

    Raises:
      ValueError: Two leaves have one path, as in ``{"a/b": x, "a": {"b": y}}``.

    Example:
      >>> named_leaves({"moments": (2.0, None), "params": {"w": 1.0}})
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


def layout(leaf: Any) -> str:
    """Returns dtype and shape of a leaf, array or abstract.

    Example:
      >>> layout(np.ones((2, 3), np.float32)), layout(jax.random.key(0))
      ('float32(2, 3)', 'key<fry>()')
    """
    if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        leaf = np.asarray(leaf)
    return f"{leaf.dtype}{leaf.shape}"


def host_copy(leaf: Any) -> np.ndarray:
    """Returns a leaf as numpy, a PRNG key as its data, in memory of its own.

    A copy, always: a mere view of a CPU array would keep JAX from donating it to the
    next training step.
    """
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.array(leaf, order="C")


def entry(leaf: Any, array: np.ndarray) -> Json:
    """Returns what a leaf is and the form of the array that it is stored as."""
    return {
        "layout": layout(leaf),
        "key_impl": str(jax.random.key_impl(leaf)) if _is_key(leaf) else None,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
    }


def from_host(array: np.ndarray, entry: Json, like: Any) -> Any:
    """Returns the leaf that an array was stored for, on the sharding of ``like``."""
    leaf = array
    if entry["key_impl"] is not None:
        leaf = jax.random.wrap_key_data(jnp.asarray(array), impl=entry["key_impl"])
    if isinstance(like, jax.Array | jax.ShapeDtypeStruct) and like.sharding is not None:
        leaf = jax.device_put(leaf, like.sharding)
    return leaf


def leaf_digest(array: np.ndarray) -> str:
    """Returns the BLAKE2b digest, 128 bits, of an array's dtype, shape and bytes."""
    digest = blake2b(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """Returns the BLAKE2b digest, 128 bits, of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, blake2b).hexdigest()


def blake2b(data: bytes = b"") -> Any:
    """Returns the digest of some bytes as an object that takes more of them."""
    return hashlib.blake2b(data, digest_size=16)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(
        leaf.dtype, jax.dtypes.prng_key
    )
