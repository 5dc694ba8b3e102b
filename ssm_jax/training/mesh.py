"""The mesh of a run: its description in a config, and what is sharded over it."""

import collections
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from ssm_jax.tasks.base import Batch, TaskSpec

ROW_AXIS = "data"
"""The mesh axis over which the rows of a batch are sharded."""

LENGTH_AXIS = "seq"
"""The mesh axis over which the length of each sequence is sharded."""


def pieces_of(mesh: str | None, n_devices: int) -> int:
    """Returns the number of devices that share a sequence.

    Args:
      mesh: ``"data=N,seq=M"``: ``N`` shards of the rows times ``M`` pieces of each
        sequence. None means that all devices share the rows.
      n_devices: Number of devices.

    Raises:
      ValueError: ``mesh`` has another form, or ``N M`` is not the number of devices.

    Example:
      >>> pieces_of("data=4,seq=2", 8), pieces_of(None, 8)
      (2, 1)
    """
    if mesh is None:
        return 1
    found = re.fullmatch(r"data=([1-9]\d*),seq=([1-9]\d*)", mesh)
    if found is None:
        raise ValueError(
            f"`mesh` must be of the form data=N,seq=M, got {mesh!r}; "
            f"data={n_devices},seq=1 shards only the rows."
        )
    rows, pieces = map(int, found.groups())
    if rows * pieces != n_devices:
        raise ValueError(
            f"`mesh` must have {n_devices} devices, those of the run, got {mesh!r} "
            f"with {rows * pieces}; data={n_devices},seq=1 shards only the rows."
        )
    return pieces


def check_pieces(pieces: int, kind: str, n_local: int) -> None:
    """Checks the number of devices that share a sequence.

    Args:
      pieces: That number.
      kind: Transformation that maps the step.
      n_local: Number of devices of a process.

    Raises:
      ValueError: It is not 1 without ``"shard_map"``, or does not divide ``n_local``.
    """
    if pieces > 1 and kind != "shard_map":
        raise ValueError(
            f"`parallel` must be 'shard_map' to shard the length, got {kind!r} with "
            f"{pieces} devices per sequence; set --config.training.parallel=shard_map."
        )
    if n_local % pieces:
        raise ValueError(
            f"`seq` must divide {n_local}, the number of devices of a process, got "
            f"{pieces}; sequences are not shared by processes."
        )


def check_sharded_length(spec: TaskSpec, pieces: int, windows: int = 1) -> None:
    """Checks that the sequences of a task can be cut into pieces.

    Args:
      spec: Spec of the task.
      pieces: Number of devices that share a sequence.
      windows: Number of windows that a gradient flows through.

    Raises:
      ValueError: The length is not a multiple of the number of pieces, some but not
        all steps have targets, or there are several windows.
    """
    if spec.length % pieces:
        raise ValueError(
            f"`seq` must divide {spec.length}, the length of the sequences, got "
            f"{pieces}; choose another length or mesh."
        )
    if pieces > 1 and windows > 1:
        raise ValueError(
            f"`gradient_windows` must be 1 with `seq` devices per sequence, got "
            f"{windows}; use a longer window instead."
        )
    if pieces > 1 and spec.l_output not in (None, spec.length):
        raise ValueError(
            f"`seq` must be 1 for a task with targets at {spec.l_output} of "
            f"{spec.length} steps, got {pieces}; targets at all steps or one per "
            "sequence can be sharded."
        )


def batch_specs(spec: TaskSpec, pieces: int) -> Any:
    """Returns how the arrays of a batch are sharded.

    Args:
      spec: Spec of the task.
      pieces: Number of devices that share a sequence.

    Returns:
      A `Batch` of ``PartitionSpec``.
    """
    rows = P(ROW_AXIS)
    steps = targets = rows
    if pieces > 1:
        steps = P(ROW_AXIS, LENGTH_AXIS)
        targets = rows if spec.l_output is None else steps
        steps = P(ROW_AXIS, None, LENGTH_AXIS) if spec.pair else steps
    found: Any = (steps, targets, targets, steps, steps)
    return Batch(*found)


def replicated(leaf, sharding):
    """An array on the devices of all processes, each of which has its value."""
    # JAX transfers arrays of the host to devices of other processes, no other arrays.
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.device_put(np.asarray(leaf), sharding)
    data = jax.device_put(np.asarray(jax.random.key_data(leaf)), sharding)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))


def check_even(devices):
    """Checks that all processes have equally many devices, and so equally many rows."""
    counts = collections.Counter(of.process_index for of in devices)
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"every process must have equally many devices, got {dict(counts)} by "
            "process; hide some by CUDA_VISIBLE_DEVICES or JAX_LOCAL_DEVICE_IDS."
        )


def mesh_of(devices: Sequence[Any], pieces: int) -> Mesh:
    """Returns a mesh of devices.

    Args:
      devices: The devices.
      pieces: Number of consecutive devices that share a sequence. With 1 the mesh has
        only the axis of the rows.
    """
    if pieces == 1:
        return Mesh(np.array(devices), (ROW_AXIS,))
    return Mesh(np.array(devices).reshape(-1, pieces), (ROW_AXIS, LENGTH_AXIS))


def map_over(
    kind: str,
    mesh: Mesh,
    devices: Sequence[Any],
    step: Any,
    specs: tuple[Any, Any],
    donate: tuple[int, ...],
    *,
    wait: bool,
) -> Any:
    """Maps a step over devices and compiles it.

    Args:
      kind: The transformation; see `DataParallel`.
      mesh: The mesh, for ``shard_map``.
      devices: The devices, for ``pmap``.
      step: The step as each device computes it.
      specs: How arguments and results are sharded: ``in_axes`` and ``out_axes``, or
        ``in_specs`` and ``out_specs``.
      donate: Indices of the arguments that are donated.
      wait: Whether each call waits for its results: the collectives of CPUs (Gloo) may
        wait for ever if steps are dispatched without waiting for those before.
    """
    inputs, outputs = specs
    if kind == "jit":
        return jax.jit(step)
    if kind == "pmap":
        run: Any = jax.pmap(
            step,
            axis_name=ROW_AXIS,
            in_axes=inputs,
            out_axes=outputs,
            devices=devices,
            donate_argnums=donate,
        )
    else:
        # `check_vma` verifies that the outputs declared as replicated are so.
        mapped = jax.shard_map(
            step, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=True
        )
        run = jax.jit(mapped, donate_argnums=donate)
    return (lambda *of: jax.block_until_ready(run(*of))) if wait else run
