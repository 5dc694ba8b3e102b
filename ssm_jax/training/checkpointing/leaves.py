"""Leaves of a pytree by name: what is saved, and whether it is what was asked for."""

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ssm_jax.training.checkpointing.integrity import CheckpointError, Json
from ssm_jax.types import PyTree


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves by their paths, as arrays or abstract arrays."""
    leaves = {}
    names = []
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        is_array = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
        leaves[name] = leaf if is_array else np.asarray(leaf)
        names.append(name)
    # Orbax joins the keys by dots, and overwrites an array by another of that name.
    keys = sorted((re.split("[./]", name), name) for name in names)
    for (one, first), (other, second) in itertools.pairwise(keys):
        if other[: len(one)] == one:
            raise ValueError(
                f"`tree` must have one path for each leaf, got `{first}` and "
                f"`{second}`; rename one of the keys."
            )
    return leaves


def layout(leaf: Any) -> str:
    """The dtype and shape of a leaf, in one string."""
    return f"{leaf.dtype}{leaf.shape}"


def abstract(saved: Json, top: str) -> dict[str, jax.ShapeDtypeStruct]:
    """What was saved below a top-level key, by name, from the layouts of a record."""
    found = {}
    for name, text in saved.items():
        if name.startswith(f"{top}/"):
            dtype, _, shape = text.partition("(")
            found[name] = jax.ShapeDtypeStruct(ast.literal_eval(f"({shape}"), dtype)
    return found


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
