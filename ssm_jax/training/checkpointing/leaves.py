"""Leaves of a pytree by name: what is saved, and whether it is what was asked for."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.training.checkpointing.integrity import CheckpointError, Json
from ssm_jax.types import PyTree


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves by their paths, as arrays or abstract arrays."""
    leaves = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name in leaves:
            raise ValueError(
                f"`tree` must have one path for each leaf, got `{name}` twice; "
                "rename one of the keys."
            )
        is_array = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
        leaves[name] = leaf if is_array else np.asarray(leaf)
    return leaves


def layout(leaf: Any) -> str:
    """The dtype and shape of a leaf, in one string."""
    return f"{leaf.dtype}{leaf.shape}"


def check_layouts(path: Path, wanted: Json, saved: Json) -> None:
    """Refuses a target that is not what was saved, below its top-level keys."""
    asked = {name: layout(leaf) for name, leaf in wanted.items()}
    tops = {name.split("/")[0] for name in asked}
    saved = {name: v for name, v in saved.items() if name.split("/")[0] in tops}
    for name in sorted(asked.keys() | saved.keys()):
        if asked.get(name) != saved.get(name):
            raise CheckpointError(
                f"leaf `{name}` must be {saved.get(name, 'absent')} as in step "
                f"{path.name} of {path.parent}, got {asked.get(name, 'none')}; "
                "build the model from the config of that run."
            )


def abstract(leaf: Any) -> Any:
    """What Orbax reads for a leaf: numpy unless it has a sharding or is a key."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.empty(leaf.shape, leaf.dtype)
    sharding = sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
