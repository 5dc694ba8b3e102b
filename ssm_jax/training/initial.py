"""States that training batches start from, and gradients through earlier batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.layers.dropout import row_keys
from ssm_jax.tasks.base import Batch
from ssm_jax.types import Array, PRNGKey, PyTree

StateInitKind = Literal["zero", "carry", "noise", "state_passing"]


@dataclass(frozen=True)
class StateInit:
    """Computes the initial states of a batch from the final states of the last one.

    The states carry no gradient between steps; `TBPTTWindow` lets one pass.

    Attributes:
      kind: ``"zero"``: zero states. ``"carry"``: the final state of the same row
        (LongSSM's "previous"). ``"state_passing"``: the final state of the preceding
        row, which belongs to another sequence. ``"noise"``: normal noise.
      std: Standard deviation of the noise. None means, per element of the state, the
        root mean square over the rows of the last final states, which is zero before
        the first batch.
      epoch: Number of batches after which ``"carry"`` resets to zeros, or None.

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, for ``"carry"``; Buitrago
      Ruiz and Gu, `Understanding and Improving Length Generalization in Recurrent
      Models <https://arxiv.org/abs/2507.02782>`_, 2025, for the other two
    """

    kind: StateInitKind = "carry"
    std: float | None = None
    epoch: int | None = None

    def __call__(
        self,
        carry: PyTree,
        *,
        step: Array | int,
        key: PRNGKey,
        axes: Sequence[str] = (),
    ) -> PyTree:
        """Returns the initial states.

        Args:
          carry: States after the last batch, ``(b, ...)`` leaves, or None.
          step: Number of batches so far, ``()``.
          key: Key of the noise, different at each step and the same on all devices.
          axes: Names of the mapped axes that the rows are sharded over.

        Returns:
          States like ``carry``, or None for zero states.
        """
        leaves, structure = jax.tree.flatten(carry)
        if self.kind == "zero" or not leaves:
            return None
        if self.kind == "noise":
            # With one key for all leaves, leaves of one shape would get the same noise.
            keys = jax.random.split(key, len(leaves))
            pairs = zip(keys, leaves, strict=True)
            leaves = [self._noise(key, leaf, axes) for key, leaf in pairs]
        elif self.kind == "state_passing":
            leaves = [_of_row_before(leaf, axes) for leaf in leaves]
        elif self.epoch is not None:
            # `where` instead of a branch, because `step` is traced.
            fresh = step % self.epoch == 0
            leaves = [jnp.where(fresh, 0, leaf).astype(leaf.dtype) for leaf in leaves]
        return jax.tree.unflatten(structure, leaves)

    def _noise(self, key, leaf, axes):
        # For complex states `std` is that of both parts together. Keys are those of
        # rows of the global batch: the noise does not depend on the number of devices.
        rows, *shape = leaf.shape
        keys = row_keys(key, rows, first_row_of(rows, axes))
        noise = jax.vmap(lambda key: jax.random.normal(key, shape, leaf.dtype))(keys)
        if self.std is not None:
            return self.std * noise
        # Devices hold equally many rows: the mean of their means is that over all rows.
        square = jnp.mean(jnp.square(jnp.abs(leaf)), 0)
        return jnp.sqrt(jax.lax.pmean(square, axes) if axes else square) * noise


def zero_states(model: Any, batch_size: int) -> PyTree:
    """Returns the states that a model carries into its first batch.

    Args:
      model: Model with an ``initial_state``.
      batch_size: Number of rows, ``b``.

    Returns:
      Zeros, ``(b, ...)`` leaves.

    Raises:
      ValueError: The model has no state.
    """
    states = model.initial_state((batch_size,))
    if not jax.tree.leaves(states):
        raise ValueError(
            "`initial_state` must be 'zero' for a model that has no state to carry, "
            f"got another with {type(model).__name__}; causal recurrences have one."
        )
    return strongly_typed(states)


def strongly_typed(tree: PyTree) -> PyTree:
    """Removes weak types, as an array of ``jnp.full(shape, 0.5)`` has.

    The arrays after a step have none, and the step would be compiled again for them.

    Args:
      tree: Arrays and PRNG keys.
    """

    def strong(leaf):
        weak = jax.typeof(leaf).weak_type
        return jax.lax.convert_element_type(leaf, leaf.dtype) if weak else leaf

    return jax.tree.map(strong, tree)


def first_row_of(n: int, axes: Sequence[str] = ()) -> Array | int:
    """Returns the index in the global batch of this device's first row.

    Args:
      n: Number of rows per device.
      axes: Names of the mapped axes that the rows are sharded over; empty for none.
    """
    return n * jax.lax.axis_index(tuple(axes)) if axes else 0


def _of_row_before(leaf, axes):
    """Rolls the rows of the global batch by one."""
    # The first row of a device receives the last row of the preceding device.
    last = leaf[-1:]
    if axes := tuple(axes):
        n = jax.lax.axis_size(axes)
        last = jax.lax.ppermute(last, axes, [(i, (i + 1) % n) for i in range(n)])
    return jnp.concatenate([last, leaf[:-1]])


class Window(NamedTuple):
    """The inputs of a model in a batch, with the further arguments of its call."""

    inputs: PyTree
    mask: PyTree
    reset: PyTree
    dt: PyTree = None

    @classmethod
    def of(cls, batch: Batch) -> "Window":
        """Returns the window of a batch."""
        return cls(batch.inputs, batch.mask, batch.reset, batch.dt)

    @property
    def flags(self) -> dict[str, PyTree]:
        """`Batch.flags` of the window."""
        flags = {"reset": self.reset, "mask": self.mask}
        return flags if self.dt is None else flags | {"dt": self.dt}


class TBPTTWindow(NamedTuple):
    """The preceding windows that the gradient of the next window flows through.

    If states are carried between batches, row ``r`` of a batch is the window after row
    ``r`` of the preceding batch. A step on window ``t`` with a gradient through ``k``
    windows starts from the state before window ``t - k + 1``, which is a constant,
    evaluates the ``k - 1`` windows before ``t`` again with the current parameters and
    dropout key, and then window ``t``. The loss is that of window ``t`` alone. Its
    gradient is that of one window of ``k l`` steps with a loss on the last ``l``, at
    the same cost in time and memory.

    Attributes:
      states: States before the first window, ``(b, ...)`` leaves.
      windows: Inputs of the windows, ``(b, k - 1, l, ...)`` leaves, the latest last.

    References:
      Williams and Peng, `An Efficient Gradient-Based Algorithm for On-Line Training of
      Recurrent Network Trajectories <https://doi.org/10.1162/neco.1990.2.4.490>`_,
      1990: BPTT(h; h') with ``h = k l`` and ``h' = l``
    """

    states: PyTree
    windows: Window

    @classmethod
    def before(cls, first: Batch, states: PyTree, k: int) -> "TBPTTWindow":
        """Returns the windows before the first batch.

        Args:
          first: The first batch, of which only the shapes are used.
          states: Zero states, ``(b, ...)`` leaves.
          k: Number of windows that the gradient flows through, at least 2.

        Returns:
          ``k - 1`` windows of zeros; `read` ignores their states.
        """

        def zeros(leaf):
            # On the host: `DataParallel.place` transfers each shard to its device.
            return np.zeros((len(leaf), k - 1, *leaf.shape[1:]), leaf.dtype)

        return cls(states, jax.tree.map(zeros, Window.of(first)))

    def read(
        self,
        batch: Batch,
        step: Array | int,
        start: Callable[[PyTree, Array | int], PyTree],
        read: Callable[[Window, PyTree, PRNGKey], PyTree],
        key: PRNGKey,
    ) -> tuple[PyTree, "TBPTTWindow"]:
        """Evaluates the windows again.

        Args:
          batch: The window after them, ``(b, l, ...)``.
          step: Number of that window, from 0.
          start: Maps the states after a window and the number of the next one to the
            initial states of the next one.
          read: Maps a window, its initial states and a key to its final states.
          key: Key for dropout.

        Returns:
          The initial states of ``batch``, and the windows before the batch after it.
        """
        # `scan` needs the windows on the first axis; they are stored behind the rows,
        # which are sharded over devices.
        windows = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), self.windows)
        n = len(windows.inputs)
        numbers = step - n + jnp.arange(n)

        def one(states, of_window):
            number, window, key = of_window
            after = read(window, start(states, number), key)
            # Windows before number 0 do not exist: number 0 starts from zeros.
            after = jax.tree.map(lambda leaf: jnp.where(number < 0, 0, leaf), after)
            return after, after

        rows = (numbers, windows, jax.random.split(key, n))
        # `scan` compiles the model once for all windows, not once per window.
        last, each = jax.lax.scan(one, self.states, rows)
        windows = jax.tree.map(
            lambda old, new: jnp.concatenate([old[:, 1:], new[:, None]], 1),
            self.windows,
            Window.of(batch),
        )
        # The next step starts from the states after the oldest window, as constants:
        # they leave the loss as an auxiliary output.
        return start(last, step), TBPTTWindow(
            jax.tree.map(lambda leaf: leaf[0], each), windows
        )
