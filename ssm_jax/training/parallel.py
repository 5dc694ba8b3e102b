"""The per-device steps mapped over devices, by ``jax.pmap`` or ``jax.shard_map``."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ssm_jax.tasks.base import Batch
from ssm_jax.training.losses import Sums
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.training.step import evaluation_step, train_step
from ssm_jax.types import PyTree

_AXIS = "data"


class DataParallel:
    """Every device holds the whole state and takes its share of each batch.

    Parameters are never stacked along an axis of devices, so a state is the same
    arrays under both maps, and on any number of devices.

    Args:
      kind: ``"pmap"`` or ``"shard_map"``: what maps the step.
      devices: The `jax.Device`s. None means all of this process.
    """

    def __init__(
        self,
        kind: Literal["pmap", "shard_map"] = "pmap",
        devices: Sequence[Any] | None = None,
    ):
        """Lays the devices out along one axis."""
        self._kind = kind
        self._devices = list(devices or jax.local_devices())
        self._mesh = Mesh(np.array(self._devices), (_AXIS,))

    @property
    def n_devices(self) -> int:
        """Number of devices that share a batch."""
        return len(self._devices)

    def train_step(
        self, run: RunSpec
    ) -> Callable[[TrainState, Batch], tuple[TrainState, Sums]]:
        """The mapped step of training; it donates the state that it is given.

        A model with a field ``axis_name`` learns in it what it is mapped over.
        """
        if hasattr(run.model, "axis_name"):
            run = dataclasses.replace(run, model=run.model.clone(axis_name=_AXIS))

        def step(state, carry, batch):
            state, sums = train_step(
                run, state.replace(carry=carry), batch, axes=(_AXIS,)
            )
            return state.replace(carry=None), state.carry, sums

        whole, split = (None, 0) if self._kind == "pmap" else (P(), P(_AXIS))
        mapped = self._map(
            step, (whole, split, split), (whole, split, whole), donate=(0, 1)
        )

        def take(state, batch):
            state, carry, sums = mapped(state.replace(carry=None), state.carry, batch)
            return state.replace(carry=carry), sums

        return take

    def evaluation_step(
        self, run: RunSpec
    ) -> Callable[[PyTree, PyTree, Batch, PyTree], tuple[Sums, PyTree]]:
        """The mapped step of evaluation; its states are split as the batch is."""
        step = partial(evaluation_step, run, axes=(_AXIS,))
        whole, split = (None, 0) if self._kind == "pmap" else (P(), P(_AXIS))
        return self._map(step, (whole, whole, split, split), (whole, split), donate=())

    def place(self, state: TrainState) -> TrainState:
        """Copies a state to all devices; ``carry`` is split by its batch axis."""
        # `device_put` alone shares buffers, which the mapped step would donate.
        state = jax.tree.map(jnp.copy, state)
        whole, split = (NamedSharding(self._mesh, P(*axes)) for axes in ((), (_AXIS,)))
        carry = jax.device_put(self.split(state.carry), split)
        return jax.device_put(state.replace(carry=None), whole).replace(carry=carry)

    def gather(self, state: TrainState) -> TrainState:
        """The inverse of `place`: ``carry`` has one batch axis again."""
        if self._kind == "shard_map":
            return state
        merged = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), state.carry)
        return state.replace(carry=merged)

    def split(self, batch: PyTree) -> PyTree:
        """Gives each device its share of arrays ``(b, ...)``.

        Args:
          batch: Arrays with the batch axis first.

        Returns:
          The arrays as the mapped steps take them.

        Raises:
          ValueError: The batch does not divide by the number of devices.
        """
        return jax.tree.map(self._split, batch)

    def check(self, batch_size: int) -> None:
        """Checks that a batch divides among the devices, before anything is begun.

        Raises:
          ValueError: It does not.
        """
        n = self.n_devices
        if batch_size % n:
            raise ValueError(
                f"`batch_size` must be a multiple of {n}, the number of devices, got "
                f"{batch_size}; {batch_size - batch_size % n or n} is one."
            )

    def _split(self, values):
        rows, n = values.shape[0], self.n_devices
        self.check(rows)
        if self._kind == "shard_map":
            return jax.device_put(values, NamedSharding(self._mesh, P(_AXIS)))
        return values.reshape(n, rows // n, *values.shape[1:])

    def _map(self, step, in_axes, out_axes, donate):
        if self._kind == "pmap":
            return jax.pmap(
                step,
                axis_name=_AXIS,
                in_axes=in_axes,
                out_axes=out_axes,
                devices=self._devices,
                donate_argnums=donate,
            )
        mapped = jax.shard_map(
            step, mesh=self._mesh, in_specs=in_axes, out_specs=out_axes, check_vma=True
        )
        return jax.jit(mapped, donate_argnums=donate)
