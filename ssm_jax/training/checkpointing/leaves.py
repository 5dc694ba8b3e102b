"""Leaves of a pytree by name: what is saved, and whether it is what was asked for."""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ssm_jax.training.checkpointing.integrity import CheckpointError, Json
from ssm_jax.types import PyTree

_MAX_DEPTH = 100  # of a tree, of which functions on trees are recursive


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """The leaves by their paths, as arrays or abstract arrays."""
    leaves = {}
    names = []
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        is_array = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)
        leaves[name] = leaf if is_array else np.asarray(leaf)
        names.append(name)
    _check_paths(names)
    return leaves


def _check_paths(names: Iterable[str]) -> None:
    # Orbax joins the keys by dots, and overwrites an array by another of that name.
    keys = sorted((re.split("[./]", name), name) for name in names)
    for (one, first), (other, second) in itertools.pairwise(keys):
        if other[: len(one)] == one:
            raise ValueError(
                f"`tree` must have one path for each leaf, got `{first}` and "
                f"`{second}`; rename one of the keys."
            )


def layout(leaf: Any) -> str:
    """The dtype and shape of a leaf, in one string."""
    return f"{leaf.dtype}{leaf.shape}"


def abstract(saved: Json, top: str) -> dict[str, jax.ShapeDtypeStruct]:
    """What was saved below a top-level key, by name, from the layouts of a record.

    Raises:
      CheckpointError: A layout is none of an array, or a name is not one of a tree.
    """
    leaves = {}
    for name, text in saved.items():
        if not name.startswith(f"{top}/"):
            continue
        dtype, _, shape = text.partition("(")
        try:
            if not re.fullmatch(r"[\d, ]*\)", shape):
                raise ValueError(shape)
            shape = tuple(map(int, re.findall(r"\d+", shape)))
            leaves[name] = jax.ShapeDtypeStruct(shape, np.dtype(dtype))
        except (TypeError, ValueError) as error:
            raise _bad_leaf(name, "have a layout as float32(2, 3)", text) from error
        if (depth := name.count("/")) > _MAX_DEPTH:
            raise _bad_leaf(name, f"be at most {_MAX_DEPTH} levels deep", f"{depth}")
    _check_paths(leaves)
    return leaves


def _bad_leaf(name, rule, got):
    return CheckpointError(
        f"leaf `{name[:80]}` must {rule}, got {got[:80]}; restore the checkpoint from "
        "a copy."
    )


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
