"""Gradients through several windows: truncated backpropagation through time."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.tasks.base import Batch
from ssm_jax.types import Array, PRNGKey, PyTree


class Window(NamedTuple):
    """What a model reads of a batch: inputs, and the flags of its call."""

    inputs: PyTree
    mask: PyTree
    reset: PyTree

    @classmethod
    def of(cls, batch: Batch) -> "Window":
        """Takes it from a batch."""
        return cls(batch.inputs, batch.mask, batch.reset)


class TBPTTWindow(NamedTuple):
    """The windows that the gradient of the next one still reaches.

    Where states go on from batch to batch, row ``r`` of a batch is the window after row
    ``r`` of the batch before it. A step on window ``t`` whose gradient is to flow
    through ``k`` windows starts from the state before window ``t - k + 1``, through
    which no gradient passes, reads the ``k - 1`` windows before ``t`` again, with the
    parameters and the dropout of this step, and then ``t``. The loss is that of window
    ``t`` alone. Its gradient is that of one long window of which the last ``l`` steps
    count; it costs the time and the memory of that.

    Attributes:
      states: Before the first of the windows, ``(b, ...)`` leaves.
      windows: What a model reads of them, ``(b, k - 1, l, ...)`` leaves, the latest
        one last.

    References:
      Williams and Peng, `An Efficient Gradient-Based Algorithm for On-Line Training of
      Recurrent Network Trajectories <https://doi.org/10.1162/neco.1990.2.4.490>`_,
      1990: BPTT(h; h') with ``h = k l`` and ``h' = l``
    """

    states: PyTree
    windows: Window

    @classmethod
    def before(cls, first: Batch, states: PyTree, k: int) -> "TBPTTWindow":
        """The past of the first batch.

        Args:
          first: That batch, for the shapes.
          states: States of a fresh start, ``(b, ...)`` leaves.
          k: Windows that the gradient is to flow through, at least 2.

        Returns:
          As many windows of zeros, which nothing comes of.
        """

        def zeros(leaf):
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
        """Reads the windows again.

        Args:
          batch: The window after them, ``(b, l, ...)``.
          step: Its number, from 0.
          start: From the states after a window and the number of the next one to the
            states that it starts from.
          read: From a window, the states before it and a key to the states after it.
          key: For dropout.

        Returns:
          The states that ``batch`` starts from, and the past of the batch after it.
        """
        windows = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), self.windows)
        n = len(windows.inputs)
        numbers = step - n + jnp.arange(n)

        def one(states, of_window):
            number, window, key = of_window
            after = read(window, start(states, number), key)
            # Before window 0 there is none, and it starts from zeros.
            after = jax.tree.map(lambda leaf: jnp.where(number < 0, 0, leaf), after)
            return after, after

        rows = (numbers, windows, jax.random.split(key, n))
        last, each = jax.lax.scan(one, self.states, rows)
        windows = jax.tree.map(
            lambda old, new: jnp.concatenate([old[:, 1:], new[:, None]], 1),
            self.windows,
            Window.of(batch),
        )
        return start(last, step), TBPTTWindow(
            jax.tree.map(lambda leaf: leaf[0], each), windows
        )
