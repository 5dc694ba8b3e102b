"""The per-device steps mapped over a mesh of devices, by pmap or shard_map."""

import collections
import contextlib
import dataclasses
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from ssm_jax.kernels.axes import pad_axis
from ssm_jax.sharding.parameters import (
    box_shards,
    bytes_of_device,
    shard_specs,
    strip_boxes,
)
from ssm_jax.tasks.base import Batch, Split, Task, TaskSpec, rows_of_batch
from ssm_jax.training.hosts import check_one_process
from ssm_jax.training.losses import Reductions
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.training.step import (
    evaluation_step,
    gather_outside_blocks,
    gradients,
    prediction_step,
    train_step,
    update,
)
from ssm_jax.types import PyTree

ROW_AXIS = "data"
"""The mesh axis over which the rows of a batch are sharded."""

PARAMETER_AXIS = "model"
"""The mesh axis over which parameters are sharded; the rows of a batch are, too."""

LENGTH_AXIS = "seq"
"""The mesh axis over which the length of each sequence is sharded."""

_JAX = Path(jax.__file__).parent

_PARAMS = object()
"""In place of a spec: that of each parameter follows from its shape."""


class MeshShape(NamedTuple):
    """How devices share a step.

    Attributes:
      pieces: Number of devices that share a sequence.
      shards: Number of devices that share the parameters.
    """

    pieces: int = 1
    shards: int = 1


class DataParallel:
    """Data parallelism: batches are sharded over devices, the state is replicated.

    Parameters have no axis of devices, so that the arrays of a state are the same with
    both transformations and on any number of devices. Several processes, as
    `jax.distributed` connects them, share a batch: each makes, transfers and gets back
    its own rows, while the state and what is reduced is the same in all.

    With ``pieces`` the length of each sequence is sharded too, by ``jax.shard_map``,
    over that many devices that share their rows; see `sharded_length`.

    With ``shards`` large parameters, their moving average and the state of the
    optimizer are sharded over that many devices, which have different rows; see
    `shard_specs`. The blocks of a `SequenceModel` gather their parameters one after the
    other, anything else all at once. The optimizer computes with whole arrays, of which
    each device has its shard.

    Args:
      kind: ``"pmap"`` or ``"shard_map"``: transformation that maps the step. ``"jit"``
        maps nothing and donates nothing: with ``jax_debug_nans``, JAX then names the
        operation that made a NaN, which it cannot for the others.
      devices: The `jax.Device`s. None means those of all processes, with ``"jit"`` the
        first. Those of a call are of this process alone.
      pieces: Number of devices that share a sequence.
      shards: Number of devices that share the parameters, times ``pieces`` a divisor
        of the number of devices.

    Raises:
      ValueError: ``pieces`` or ``shards`` is not 1 without ``"shard_map"``, ``pieces``
        does not divide the number of devices of a process, ``"jit"`` with several
        processes, or these have different numbers of devices.
    """

    def __init__(
        self,
        kind: Literal["pmap", "shard_map", "jit"] = "pmap",
        devices: Sequence[Any] | None = None,
        pieces: int = 1,
        shards: int = 1,
    ):
        """Creates the mesh."""
        self._kind = kind
        if kind == "jit":
            check_one_process()
            devices = devices or jax.local_devices()[:1]
        # By process, so that the rows of a process are consecutive.
        all_devices = sorted(
            jax.devices(), key=lambda device: (device.process_index, device.id)
        )
        self._devices = list(devices or all_devices)
        local = [
            device
            for device in self._devices
            if device.process_index == jax.process_index()
        ]
        self._n_local = len(local)
        _check_even(self._devices)
        _check_pieces(pieces, kind, self._n_local)
        _check_shards(shards, kind, len(self._devices) // pieces)
        self._pieces, self._n_param_shards = pieces, shards
        self._n_row_shards = len(self._devices) // pieces
        self._length_axis = LENGTH_AXIS if pieces > 1 else None
        # The arrays of `pmap` are those of a process, the others are global.
        mesh_devices = local if kind == "pmap" else self._devices
        self._mesh = mesh_of(mesh_devices, pieces, shards)
        self._axes = () if kind == "jit" else row_axes(self._mesh)

    @property
    def n_devices(self) -> int:
        """Number of devices that share a batch, of all processes."""
        return len(self._devices)

    def rows(self, batch_size: int) -> slice | None:
        """Returns the rows of a batch that this process makes; None for all rows.

        Args:
          batch_size: Number of rows of the whole batch.
        """
        if self._n_local == self.n_devices:
            return None
        n = batch_size // self._n_row_shards * (self._n_local // self._pieces)
        first = n * (jax.process_index() - self._devices[0].process_index)
        return slice(first, first + n)

    def batch(
        self, task: Task, split: Split, index: int, batch_size: int, seed: int
    ) -> PyTree:
        """Makes the rows of this process and shards them; see `Task.batch`."""
        rows = self.rows(batch_size)
        batch = rows_of_batch(task, split, index, batch_size, seed, rows)
        return self.split(batch, task.spec)

    def train_step(
        self, run: RunSpec
    ) -> Callable[[TrainState, Batch], tuple[TrainState, Reductions]]:
        """Returns the mapped training step, which donates its state.

        If the model has a field ``axis_name``, it is set to the mapped axis.
        """
        mapped = self._mapped_train_step(run)

        def take(state, batch):
            state, carry, sums = mapped(state.replace(carry=None), state.carry, batch)
            return state.replace(carry=carry), sums

        return take

    def compiled_train_step(
        self, run: RunSpec, state: TrainState, batch: Batch
    ) -> jax.stages.Compiled:
        """Compiles the mapped training step, for its memory and its operations.

        Args:
          run: The constant parts of the run.
          state: A state as `place` returns it; it is not donated.
          batch: A batch as `split` returns it.
        """
        mapped: Any = self._mapped_train_step(run)
        return mapped.lower(state.replace(carry=None), state.carry, batch).compile()

    def _mapped_train_step(self, run):
        # Without the axis, BatchNorm would use the moments of each device's shard.
        if hasattr(run.model, "axis_name") and self._axes:
            names = self._mesh.axis_names
            names = names if len(names) > 1 else ROW_AXIS
            run = dataclasses.replace(run, model=run.model.clone(axis_name=names))
        if self._n_param_shards > 1:
            return self._sharded_train_step(run)

        # The carry is an argument of its own, because it is sharded and the rest of the
        # state is replicated.
        def step(state, carry, batch):
            state, sums = train_step(
                run,
                state.replace(carry=carry),
                batch,
                axes=self._axes,
                length_axis=self._length_axis,
            )
            return state.replace(carry=None), state.carry, sums

        whole, split, batch = self._specs(run.spec)
        # Donated buffers are reused for the outputs, so that parameters and optimizer
        # state exist only once in memory.
        return self._map(
            step, (whole, split, batch), (whole, split, whole), donate=(0, 1)
        )

    def _sharded_train_step(self, run):
        """The step of sharded parameters: only the gradients are mapped."""
        whole, split, batch_spec = self._specs(run.spec)

        def shard_gradients(params, state, carry, batch):
            state = state.replace(params=params, carry=carry)
            result = gradients(
                run, state, batch, axes=self._axes, length_axis=self._length_axis
            )
            rest = result._replace(gradient=None, carry=None)
            return strip_boxes(result.gradient), rest, result.carry

        mapped = self._shard_map(
            shard_gradients,
            (_PARAMS, whole, split, batch_spec),
            (_PARAMS, whole, split),
        )

        def step(state, carry, batch):
            rest = state.replace(params=None, opt_state=None, ema=None)
            gradient, result, carry = mapped(state.params, rest, carry, batch)
            # Outside of the map, because norms, factors and signs of matrices are those
            # of whole arrays.
            state, sums = update(run, state, result._replace(gradient=gradient))
            state = jax.lax.with_sharding_constraint(state, self.shardings(state))
            return state, carry, sums

        return self._jit(step, donate=(0, 1))

    def _specs(self, spec):
        """Specs of what is replicated, of what is sharded by rows, and of a batch."""
        if self._kind == "pmap":
            return None, 0, 0
        rows = P(_row_entry(self._mesh))
        if self._pieces == 1:
            return P(), rows, rows
        return P(), rows, batch_specs(spec, self._mesh)

    def evaluation_step(
        self, run: RunSpec
    ) -> Callable[[PyTree, PyTree, Batch, PyTree], tuple[Reductions, PyTree]]:
        """Returns the mapped evaluation step; its states are sharded like the batch."""
        step = partial(
            evaluation_step, run, axes=self._axes, length_axis=self._length_axis
        )
        whole, split, batch = self._specs(run.spec)
        # Nothing is donated: training continues with these parameters.
        return self._map(
            step, (self._params, whole, batch, split), (whole, split), donate=()
        )

    def prediction_step(
        self, run: RunSpec
    ) -> Callable[[PyTree, PyTree, Batch, PyTree], tuple[PyTree, PyTree]]:
        """Returns the mapped prediction step; its outputs are sharded like batches."""
        whole, split, batch = self._specs(run.spec)
        # Predictions are sharded like the targets. Without a carry the second output
        # has no leaves.
        outputs = batch.targets if isinstance(batch, Batch) else batch
        return self._map(
            partial(prediction_step, run, length_axis=self._length_axis),
            (self._params, whole, batch, split),
            (outputs, split),
            donate=(),
        )

    def apply(self, model: Any) -> Callable[..., PyTree]:
        """Returns the function ``(variables, inputs, **flags)`` of predictions.

        Args:
          model: The model. Its rows are padded to a multiple of the devices.
        """
        # Also where lengths are sharded: then several devices compute the same.
        whole, split = P(), P(_row_entry(self._mesh))

        def predict(params, others, inputs, flags):
            variables = {"params": gather_outside_blocks(model, params), **others}
            return model.apply(variables, inputs, **flags)[0]

        mapped = self._shard_map(predict, (self._params, whole, split, split), split)

        def apply(variables, inputs, **flags):
            n = len(inputs)
            inputs, flags = jax.tree.map(
                lambda x: pad_axis(x, 0, after=-n % self._n_row_shards), (inputs, flags)
            )
            others = {name: v for name, v in variables.items() if name != "params"}
            predictions = mapped(variables["params"], others, inputs, flags)
            return jax.tree.map(lambda x: x[:n], predictions)

        return jax.jit(apply)

    @property
    def _params(self):
        """The spec of parameters."""
        return None if self._kind == "pmap" else _PARAMS

    def shardings(self, tree: PyTree) -> PyTree:
        """Returns how the arrays of a state, but for ``carry``, lie on the devices.

        Args:
          tree: Arrays or `jax.ShapeDtypeStruct`.
        """
        specs = shard_specs(tree, PARAMETER_AXIS, self._n_param_shards)
        return jax.tree.map(partial(NamedSharding, self._mesh), specs)

    def abstract(self, tree: PyTree) -> PyTree:
        """Returns the shapes of a tree, with the shardings of what is sharded.

        Args:
          tree: Parameters or a state without ``carry``, arrays or shapes.
        """

        def shape(leaf, sharding):
            if sharding.is_fully_replicated:
                return leaf
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

        shapes = jax.eval_shape(lambda: tree)
        return jax.tree.map(shape, shapes, self.shardings(shapes))

    def describe(self, state: TrainState) -> str:
        """Says how much of a state each device holds, but for ``carry``."""
        state = state.replace(carry=None)
        whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
        shard = bytes_of_device(state, self.shardings(state))
        return (
            f"of {whole / 2**20:,.1f} MiB of parameters and optimizer each device has "
            f"{shard / 2**20:,.1f} MiB"
        )

    def sharding_of(self) -> Callable[[PyTree], PyTree] | None:
        """Returns `shardings` if a state is initialized with them, or None."""
        return self.shardings if self._n_param_shards > 1 else None

    def place(self, state: TrainState) -> TrainState:
        """Copies a state to its devices; ``carry`` is sharded by its batch axis."""
        carry, state = self.place_carry(_copy(state.carry)), state.replace(carry=None)
        shardings = self.shardings(state)
        state = jax.tree.map(put_on, state, shardings)
        # `device_put` alone shares buffers, which the mapped step would donate.
        return jax.jit(_copied, out_shardings=shardings)(state).replace(carry=carry)

    def place_carry(self, carry: PyTree) -> PyTree:
        """Shards the states before the first batch, as those after a batch are.

        Args:
          carry: States ``(b, ...)`` with the rows of all processes, or None.
        """
        carry = self.split_whole(carry)
        if self._kind == "pmap":
            # A step is compiled again for arguments that lie on other devices.
            carry = jax.device_put(carry, NamedSharding(self._mesh, P(ROW_AXIS)))
        return carry

    def gather(self, state: TrainState) -> TrainState:
        """Inverse of `place`: ``carry`` has the rows of the whole batch again."""
        # Checkpoints must not depend on the number of devices and processes.
        carry = self.merge(state.carry)
        if self._n_local < self.n_devices:
            carry = multihost_utils.process_allgather(carry, tiled=True)
        return state.replace(carry=jax.tree.map(np.asarray, carry))

    def local(self, tree: PyTree) -> PyTree:
        """Returns the whole arrays of parameters, on one device of this process."""
        if self._n_param_shards > 1:
            whole = NamedSharding(self._mesh, P())
            tree = jax.jit(lambda tree: tree, out_shardings=whole)(tree)
        return jax.tree.map(lambda v: v.addressable_data(0), tree)

    def on_params(self, function: Callable[[PyTree], Any]) -> Callable[[PyTree], Any]:
        """Returns a jitted function of parameters, whose result is the same in all."""
        if self._n_param_shards > 1:
            return jax.jit(function, out_shardings=NamedSharding(self._mesh, P()))
        jitted = jax.jit(function)
        return lambda params: jitted(self.local(params))

    def split(self, batch: PyTree, spec: TaskSpec | None = None) -> PyTree:
        """Shards arrays ``(b, ...)`` over devices.

        Args:
          batch: Arrays with the batch axis first, with the rows of this process.
          spec: Spec of the task of a `Batch`, to shard its steps too. None: only
            rows are sharded, of any arrays.

        Returns:
          The arrays as the mapped steps expect them.

        Raises:
          ValueError: The batch size is not a multiple of the number of devices.
        """
        if self._pieces == 1 or spec is None:
            return jax.tree.map(self._split, batch)
        specs = batch_specs(spec, self._mesh)
        pairs = zip(batch, specs, strict=True)
        parts: Any = [
            v if v is None else self._split(v, step_axes) for v, step_axes in pairs
        ]
        return Batch(*parts)

    def split_whole(self, batch: PyTree) -> PyTree:
        """As `split`, of arrays with the rows of all processes."""

        def local_rows(values):
            rows = self.rows(len(values))
            return values if rows is None else np.asarray(values[rows])

        return self.split(jax.tree.map(local_rows, batch))

    def merge(self, outputs: PyTree) -> PyTree:
        """Inverse of `split`, for outputs of a mapped step: one batch axis in front."""
        if self._kind != "pmap":
            return outputs
        # `pmap` adds an axis of devices.
        return jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), outputs)

    def check(self, batch_size: int, accumulate: int = 1) -> None:
        """Checks that a batch can be sharded over the devices.

        Args:
          batch_size: Number of rows of the batch.
          accumulate: Number of parts that each device divides its rows into.

        Raises:
          ValueError: The batch size is not a multiple of the number of shards of its
            rows, or the rows of a shard are not a multiple of the number of parts.
        """
        n = self._n_row_shards
        if batch_size % n:
            unit = n * accumulate
            below = batch_size // unit * unit
            near = f"{below} or {below + unit}" if below else str(unit)
            raise ValueError(
                f"`batch_size` must be a multiple of {n}, the number of shards of its "
                f"rows on {self.n_devices} devices, got {batch_size}; take {near}, or "
                "fewer devices, as by CUDA_VISIBLE_DEVICES."
            )
        if (rows := batch_size // n) % accumulate:
            raise ValueError(
                f"`accumulate` must divide {rows}, the rows of a batch per shard, got "
                f"{accumulate}; 1 always does."
            )

    def _split(self, values, spec=None):
        rows, n = values.shape[0], self._n_local
        self.check(rows * (self.n_devices // n))
        if self._kind == "pmap":
            # `pmap` maps over a leading axis of devices; on host arrays this is a view.
            return values.reshape(n, rows // n, *values.shape[1:])
        sharding = NamedSharding(self._mesh, spec or P(_row_entry(self._mesh)))
        # Sharded on transfer, so that each device receives only its rows.
        if n == self.n_devices:
            return jax.device_put(values, sharding)
        return jax.make_array_from_process_local_data(sharding, values)

    def _map(self, step, inputs, outputs, donate):
        """Maps a step over the devices and compiles it; ``donate`` are arguments."""
        if self._kind == "jit":
            return jax.jit(step)
        if self._kind == "pmap":
            run: Any = jax.pmap(
                step,
                axis_name=ROW_AXIS,
                in_axes=inputs,
                out_axes=outputs,
                devices=self._devices,
                donate_argnums=donate,
            )
            return self._synchronized(run)
        return self._jit(self._shard_map(step, inputs, outputs), donate)

    def _shard_map(self, step, inputs, outputs):
        """Maps a step by `jax.shard_map`.

        The first argument may be parameters, which are shards in boxes within the step.
        """
        has_params = inputs[0] is _PARAMS

        def run(first, *others):
            spec = inputs[0]
            if has_params:
                spec = shard_specs(first, PARAMETER_AXIS, self._n_param_shards)

            def boxed(first, *others):
                return step(box_shards(first, spec) if has_params else first, *others)

            # `check_vma` verifies that the outputs declared as replicated are so.
            return jax.shard_map(
                boxed,
                mesh=self._mesh,
                in_specs=(spec, *inputs[1:]),
                out_specs=jax.tree.map(
                    lambda output: spec if output is _PARAMS else output, outputs
                ),
                check_vma=True,
            )(first, *others)

        return run

    def _jit(self, function, donate):
        return self._synchronized(jax.jit(function, donate_argnums=donate))

    def _synchronized(self, run: Any) -> Any:
        """Waits for each call where several processes of CPUs take part."""
        several = self.n_devices != self._n_local
        if not several or self._devices[0].platform != "cpu":
            return run
        # The collectives of CPUs (Gloo) may wait for ever if steps are dispatched
        # without waiting for those before.
        return lambda *of: jax.block_until_ready(run(*of))


def mesh_shape(mesh: str | None, n_devices: int) -> MeshShape:
    """Returns how the devices of a run share its steps.

    Args:
      mesh: ``"data=N,model=M,seq=K"``, in this order: the rows of a batch are sharded
        over ``N M`` devices, the parameters over ``M`` and each sequence over ``K``.
        What is left out is 1, ``data`` the number of devices that is left. None means
        that all devices share the rows.
      n_devices: Number of devices.

    Raises:
      ValueError: ``mesh`` has another form, or ``N M K`` is not the number of devices.

    Example:
      >>> mesh_shape("data=4,seq=2", 8), mesh_shape("model=4", 8)
      (MeshShape(pieces=2, shards=1), MeshShape(pieces=1, shards=4))
    """
    if mesh is None:
        return MeshShape()
    sizes = {}
    for name, text in re.findall(r"(\w+)=([1-9]\d*)(?:,|$)", mesh):
        sizes[name] = int(text)
    names = [name for name in (ROW_AXIS, PARAMETER_AXIS, LENGTH_AXIS) if name in sizes]
    if not sizes or mesh != ",".join(f"{name}={sizes[name]}" for name in names):
        raise ValueError(
            "`mesh` must be of the form data=N,model=M,seq=K, without what is 1, got "
            f"{mesh!r}; data={n_devices} shards only the rows."
        )
    shards, pieces = sizes.get(PARAMETER_AXIS, 1), sizes.get(LENGTH_AXIS, 1)
    rows = sizes.get(ROW_AXIS, max(n_devices // (shards * pieces), 1))
    if (size := rows * shards * pieces) != n_devices:
        raise ValueError(
            f"`mesh` must have {n_devices} devices, those of the run, got {mesh!r} "
            f"with {size}; data={n_devices} shards only the rows."
        )
    return MeshShape(pieces, shards)


def local_mesh(mesh: str) -> DataParallel:
    """Returns the map over the devices of this process by `jax.shard_map`.

    Args:
      mesh: As for `mesh_shape`.
    """
    devices = jax.local_devices()
    return DataParallel("shard_map", devices, *mesh_shape(mesh, len(devices)))


def _check_pieces(pieces, kind, n_local):
    """Checks the number of devices that share a sequence, for those of a process."""
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


def _check_shards(shards, kind, n_rows):
    """Checks the number of devices that share the parameters."""
    if shards > 1 and kind != "shard_map":
        raise ValueError(
            f"`parallel` must be 'shard_map' to shard parameters, got {kind!r} with "
            f"{shards} devices; set --config.training.parallel=shard_map."
        )
    if n_rows % shards:
        raise ValueError(
            f"`model` must divide {n_rows}, the number of devices by `seq`, got "
            f"{shards}; take a divisor, or other devices."
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


def batch_specs(spec: TaskSpec, mesh: Mesh) -> Any:
    """Returns how the arrays of a batch are sharded.

    Args:
      spec: Spec of the task.
      mesh: A mesh of `mesh_of`.

    Returns:
      A `Batch` of ``PartitionSpec``.
    """
    axes = _row_entry(mesh)
    rows = P(axes)
    steps = targets = rows
    if LENGTH_AXIS in mesh.axis_names:
        steps = P(axes, LENGTH_AXIS)
        targets = rows if spec.l_output is None else steps
        steps = P(axes, None, LENGTH_AXIS) if spec.pair else steps
    found: Any = (steps, targets, targets, steps, steps, steps)
    return Batch(*found)


def _copied(tree):
    """Copies of arrays, by one program for all of them."""
    return jax.tree.map(jnp.copy, tree)


_copy = jax.jit(_copied)


def put_on(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """Puts an array, whose value each process has, on the devices of all processes."""
    if getattr(leaf, "sharding", None) == sharding or sharding.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    # JAX transfers arrays of the host to devices of other processes, no other arrays.
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.device_put(np.asarray(leaf), sharding)
    data = jax.device_put(np.asarray(jax.random.key_data(leaf)), sharding)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))


def _check_even(devices):
    """Checks that all processes have equally many devices, and so equally many rows."""
    counts = collections.Counter(device.process_index for device in devices)
    if len(set(counts.values())) > 1:
        raise ValueError(
            f"every process must have equally many devices, got {dict(counts)} by "
            "process; hide some by CUDA_VISIBLE_DEVICES or JAX_LOCAL_DEVICE_IDS."
        )


def mesh_of(devices: Sequence[Any], pieces: int, shards: int = 1) -> Mesh:
    """Returns a mesh of devices; it has an axis only for what is shared.

    Args:
      devices: The devices.
      pieces: Number of consecutive devices that share a sequence.
      shards: Number of devices that share the parameters.
    """
    sizes = {PARAMETER_AXIS: shards, LENGTH_AXIS: pieces}
    sizes = {ROW_AXIS: -1} | {name: size for name, size in sizes.items() if size > 1}
    return Mesh(np.array(devices).reshape(*sizes.values()), (*sizes,))


def row_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes of a mesh that the rows of a batch are sharded over."""
    return tuple(name for name in mesh.axis_names if name != LENGTH_AXIS)


def _row_entry(mesh):
    """The entry of a spec for the rows: of one axis its name, as JAX returns it."""
    first, *others = row_axes(mesh)
    return (first, *others) if others else first


def is_debugging() -> bool:
    """Returns whether the flag ``jax_debug_nans`` is set."""
    # Configs of JAX declare only some of their fields.
    return bool(jax.config.jax_debug_nans)  # pyright: ignore[reportAttributeAccessIssue]


@contextlib.contextmanager
def locate_nans(step: int) -> Iterator[None]:
    """Locates the operation that makes a NaN in the block.

    Without ``jax_debug_nans`` it does nothing.

    Args:
      step: The number of the step that is taken in the block.

    Raises:
      FloatingPointError: An operation made a NaN; the error names it and its line.
    """
    if not is_debugging():
        yield
        return
    try:
        # Set anew by a context: JAX drops its check of results once it has traced
        # functions that turn the flag off and on, such as those of `jnp.linalg`.
        with jax.debug_nans(True):
            yield
    except FloatingPointError as error:
        frames = traceback.extract_tb(error.__traceback__)
        outside = [at for at in frames if _JAX not in Path(at.filename).parents]
        at = (outside or frames)[-1]
        raise FloatingPointError(
            f"no operation may make a NaN, got {error} at step {step}, in "
            f"{at.filename}:{at.lineno}: {at.line}; the traceback shows its callers."
        ) from error
