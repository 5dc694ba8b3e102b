"""The states that a batch of training starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from ssm_jax.layers.dropout import row_keys
from ssm_jax.types import Array, PRNGKey, PyTree

Kind = Literal["zero", "carry", "noise", "state_passing"]


@dataclass(frozen=True)
class StateInit:
    """What becomes of the states after a batch before the next one starts from them.

    The states carry no gradient between steps; `TBPTTWindow` lets one pass.

    Attributes:
      kind: ``"zero"``: every batch starts afresh. ``"carry"``: each row goes on from
        its own state (LongSSM's "previous"). ``"state_passing"``: each row starts from
        the state of the row before it, which is of another sequence. ``"noise"``: from
        normal numbers, of which only the size is that of states.
      std: Standard deviation of the noise. None: in each number of the state the
        root mean square over the rows of what it was after the last batch, which before
        the first one is zero.
      epoch: Batches after which ``"carry"`` starts afresh. None: it never does.

    References:
      Wang, `LongSSM: On the Length Extension of State-space Models in Language
      Modelling <https://arxiv.org/abs/2406.02080>`_, 2024, for ``"carry"``; Buitrago
      Ruiz and Gu, `Understanding and Improving Length Generalization in Recurrent
      Models <https://arxiv.org/abs/2507.02782>`_, 2025, for the other two
    """

    kind: Kind = "carry"
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
        """Gives the states to start from.

        Args:
          carry: States after the last batch, ``(b, ...)`` leaves; None where there are
            none.
          step: Batches so far, ``()``.
          key: For the noise; another one at each step, the same on all devices.
          axes: The mapped axes that the rows are spread over.

        Returns:
          States as ``carry``; None, a fresh start of all rows, where that is.
        """
        leaves, structure = jax.tree.flatten(carry)
        if self.kind == "zero" or not leaves:
            return None
        if self.kind == "noise":
            keys = jax.random.split(key, len(leaves))
            pairs = zip(keys, leaves, strict=True)
            leaves = [self._noise(key, leaf, axes) for key, leaf in pairs]
        elif self.kind == "state_passing":
            leaves = [_of_row_before(leaf, axes) for leaf in leaves]
        elif self.epoch is not None:
            fresh = step % self.epoch == 0
            leaves = [jnp.where(fresh, 0, leaf).astype(leaf.dtype) for leaf in leaves]
        return jax.tree.unflatten(structure, leaves)

    def _noise(self, key, leaf, axes):
        # Of complex states the deviation is that of both parts together.
        rows, *shape = leaf.shape
        keys = row_keys(key, rows, first_row_of(rows, axes))
        noise = jax.vmap(lambda key: jax.random.normal(key, shape, leaf.dtype))(keys)
        if self.std is not None:
            return self.std * noise
        square = jnp.mean(jnp.square(jnp.abs(leaf)), 0)
        return jnp.sqrt(jax.lax.pmean(square, axes) if axes else square) * noise


def zero_states(model: Any, batch_size: int) -> PyTree:
    """The states of a model before its first batch, where they are carried on.

    Args:
      model: A model with an ``initial_state``.
      batch_size: Rows, ``b``.

    Returns:
      Zeros, ``(b, ...)`` leaves.

    Raises:
      ValueError: The model has no state.
    """
    states = model.initial_state((batch_size,))
    if not jax.tree.leaves(states):
        raise ValueError(
            "`initial_state` must be 'zero' for a model that has no state to carry on, "
            f"got another with {type(model).__name__}; recurrences in one direction "
            "have one."
        )
    return states


def first_row_of(n: int, axes: Sequence[str] = ()) -> Array | int:
    """Number of this device's first row in a batch that is spread over devices.

    Args:
      n: Rows of each device.
      axes: The mapped axes that the rows are spread over; empty where they are not.
    """
    return n * jax.lax.axis_index(tuple(axes)) if axes else 0


def _of_row_before(leaf, axes):
    """Rolls the rows by one, over all devices."""
    last = leaf[-1:]
    if axes := tuple(axes):
        n = jax.lax.axis_size(axes)
        last = jax.lax.ppermute(last, axes, [(i, (i + 1) % n) for i in range(n)])
    return jnp.concatenate([last, leaf[:-1]])
