"""Arrays of a step as Orbax writes them, and onto the devices of a target."""

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from orbax.checkpoint import v1 as ocp

from ssm_jax.config import changed_fields, from_json
from ssm_jax.training.checkpointing import integrity
from ssm_jax.training.checkpointing.integrity import CheckpointError, Json
from ssm_jax.training.checkpointing.leaves import (
    abstract,
    check_layouts,
    named_leaves,
)
from ssm_jax.types import PyTree

NAME = "state"
"""The directory of the arrays in that of a step."""

PENDING = "pending"
"""Top-level key of the arrays whose shapes the caller need not know."""


class Restored(NamedTuple):
    """One step as it was saved; `state` is the pytree that was asked for.

    Of ``pending`` of `Checkpoints.save` it has the arrays by name.
    """

    step: int
    state: PyTree
    metrics: dict[str, float | None]
    config: Json
    pending: dict[str, np.ndarray]


def stored(leaves: Json) -> Json:
    """What Orbax writes: dicts of dicts by the parts of the names, of numpy arrays.

    An array of JAX would be written with its devices, and could not be read by Orbax
    alone where there are others; only one that is sharded over several processes is, of
    which each writes its shards. Keys of a PRNG become their data, uint32. Orbax
    rejects arrays of size 0; the record of the step alone says that there is one.
    """

    def to_write(leaf):
        if _is_key(leaf):
            leaf = jax.random.key_data(leaf)
        whole = not isinstance(leaf, jax.Array) or leaf.is_fully_replicated
        return np.asarray(leaf) if whole or leaf.is_fully_addressable else leaf

    arrays = {name: to_write(leaf) for name, leaf in leaves.items() if leaf.size}
    return traverse_util.unflatten_dict(arrays, sep="/")


def read(path: Path, target: PyTree, config: Json | None) -> Restored:
    """Reads a step after comparing each of its files with its checksum.

    Args:
      path: The directory of the step.
      target: As for `Checkpoints.restore`.
      config: Config of the run, with which that of the step is compared. None: not.

    Raises:
      CheckpointError: The step is of another config, was changed, or differs from the
        target.
    """
    leaves, record = named_leaves(target), integrity.read_record(path)
    # The config explains a difference of shapes, so it is compared first.
    _check_config(path, config, record["config"])
    check_layouts(path, leaves, record["leaves"])
    integrity.check_files(path, record)
    pending = abstract(record["leaves"], PENDING)
    _check_memory(path, [*leaves.values(), *pending.values()])
    try:
        arrays = _load(path, {**leaves, **pending}, record)
    except Exception as error:
        rule, got = "be readable by Orbax", integrity.root_cause(error)
        raise CheckpointError(integrity.message(path, rule, got)) from error
    n = len(leaves)
    names = [name.removeprefix(f"{PENDING}/") for name in pending]
    return Restored(
        step=record["step"],
        state=jax.tree.unflatten(jax.tree.structure(target), arrays[:n]),
        metrics=record["metrics"],
        config=record["config"],
        pending=dict(zip(names, arrays[n:], strict=True)),
    )


def _check_config(path, config, step_config):
    """Refuses a step of another config than that of the run."""
    if config is None:
        return
    configs = (from_json(json.dumps(saved)) for saved in (config, step_config))
    if changes := changed_fields(*configs):
        rule = "be of the config of its run"
        got = f"one that differs, config.json -> step: {changes}"
        way_out = "restore config.json or the step from a copy of the run"
        raise CheckpointError(integrity.message(path, rule, got, way_out))


def _check_memory(path, leaves):
    """Refuses a step that does not fit into memory, before any of it is allocated.

    Its files may be small: what is not in them is zero.
    """
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # In Python integers; those of numpy would overflow. Others may be on devices.
    n_bytes = sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize
        for leaf in leaves
        if getattr(leaf, "sharding", None) is None and not _is_key(leaf)
    )
    if n_bytes > there:
        rule = f"fit into the memory of {there / 1e9:.0f} GB"
        got = f"arrays of {n_bytes / 1e9:,.0f} GB"
        raise CheckpointError(integrity.message(path, rule, got))


def _load(path: Path, wanted: Json, record: Json) -> list[Any]:
    """Reads the leaves of a step.

    Args:
      path: The directory of the step.
      wanted: Arrays or `jax.ShapeDtypeStruct` by name; some leaves may be left out.
      record: The integrity record of the step.

    Returns:
      The leaves in the order of ``wanted``, each with its sharding, or as numpy.
    """
    # The first checkpoints were flat, by whole names, and had keys of a PRNG.
    nested = "nested" in record
    target = {
        name: _like(leaf, key_data=nested) for name, leaf in wanted.items() if leaf.size
    }
    read = {}
    if target:
        context = ocp.Context()
        context.pytree.loading.partial_load = True
        tree = traverse_util.unflatten_dict(target, sep="/") if nested else target
        with context:
            tree = ocp.load(str(path), tree, checkpointable_name=NAME)
        read = traverse_util.flatten_dict(tree, sep="/")
    return [_placed(read.get(name), leaf) for name, leaf in wanted.items()]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _like(leaf: Any, *, key_data: bool) -> Any:
    """What Orbax reads for a leaf: numpy unless it has a sharding or is a key."""
    if _is_key(leaf) and key_data:
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    elif getattr(leaf, "sharding", None) is not None or _is_key(leaf):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_sharding(leaf))
    return np.empty(leaf.shape, leaf.dtype)


def _placed(read: Any, leaf: Any) -> Any:
    """What was read for a leaf, None if it is empty, with the sharding of the leaf."""
    if read is None:
        read = np.empty(leaf.shape, leaf.dtype)
    elif _is_key(leaf) and not _is_key(read):
        # Only an array tells its implementation, and `leaf` may be a shape.
        impl = jax.random.key_impl(jnp.empty((), leaf.dtype))
        read = jax.random.wrap_key_data(read, impl=impl)
    # Orbax may choose an equivalent sharding.
    if getattr(leaf, "sharding", None) is not None or _is_key(leaf):
        return jax.device_put(read, _sharding(leaf))
    return read


def _sharding(leaf: Any) -> jax.sharding.Sharding:
    first = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return getattr(leaf, "sharding", None) or first
