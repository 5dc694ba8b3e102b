"""Initial states of training batches."""

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
