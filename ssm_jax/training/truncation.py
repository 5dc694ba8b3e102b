"""Truncated backpropagation through time over several windows."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.tasks.base import Batch
from ssm_jax.types import Array, PRNGKey, PyTree


class Window(NamedTuple):
    """The inputs of a model in a batch, with the flags of its call."""

    inputs: PyTree
    mask: PyTree
    reset: PyTree

    @classmethod
    def of(cls, batch: Batch) -> "Window":
        """Returns the window of a batch."""
        return cls(batch.inputs, batch.mask, batch.reset)


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
