"""States at the boundaries of a sequence whose length is sharded over devices."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from ssm_jax.kernels.recurrence import match_varying_axes
from ssm_jax.types import Array, PyTree

_FinalState = Callable[[Array], Array]


def boundary_state(
    final_state: _FinalState,
    state: Array,
    axis_name: str,
    *,
    diagonal: bool,
    reverse: bool = False,
    reach: int | None = None,
) -> Array:
    """Returns the state before the first step of this device's piece.

    Only states are communicated: ``2 (log2 n + 1)`` of them per sequence and device if
    the state is diagonal, else ``n - 1``, for ``n`` devices.

    Args:
      final_state: Maps the state before the first step of the piece to the one after
        its last step.
      state: State before the whole sequence, of equal value on all devices.
      axis_name: Name of the mapped axis that the length is sharded over.
      diagonal: Whether each entry of the final state is an affine function of the same
        entry of the initial state, ``A h + s``. Pieces are then evaluated at the same
        time, and the pairs ``(A, s)`` of all pieces are combined by a prefix scan over
        devices. Otherwise all pieces are evaluated ``n - 1`` times, each time from the
        final states of the time before, which are exact for one piece more.
      reach: Number of pieces that the final state of a piece depends on, including it,
        if it is not diagonal. None means that it depends on all pieces before it.
      reverse: Whether the sequence runs from the last device to the first.

    References:
      Blelloch, `Prefix Sums and Their Applications
      <https://www.cs.cmu.edu/~guyb/papers/Ble93.pdf>`_, 1990, for the scan
    """
    n = jax.lax.axis_size(axis_name)
    place = jax.lax.axis_index(axis_name)
    place = n - 1 - place if reverse else place

    def from_before(values: PyTree, distance: int) -> PyTree:
        """The values of the device that is ``distance`` pieces earlier, else zeros."""
        pairs = [(i, i + distance) for i in range(n - distance)]
        if reverse:
            pairs = [(n - 1 - i, n - 1 - j) for i, j in pairs]
        return jax.lax.ppermute(values, axis_name, pairs)

    state, place = match_varying_axes(state, place)
    if not diagonal:
        # The first piece starts from the given state, so that each round makes the
        # state before one more piece exact.
        @jax.checkpoint
        def improved(before, _):
            before = from_before(final_state(before), 1)
            return jnp.where(place == 0, state, before), None

        first = jnp.where(place == 0, state, jnp.zeros_like(state))
        rounds = n - 1 if reach is None else min(n - 1, reach)
        return jax.lax.scan(improved, first, length=rounds)[0]
    # The tangent of the final state is the diagonal: a difference of two final states
    # would lose its digits.
    zeros, ones = jnp.zeros_like(state), jnp.ones_like(state)
    s, A = jax.jvp(final_state, (zeros,), (ones,))
    for level in range(math.ceil(math.log2(n))):
        distance = 2**level
        A_before, s_before = from_before((A, s), distance)
        s = jnp.where(place >= distance, A * s_before + s, s)
        A = jnp.where(place >= distance, A * A_before, A)
    A, s = from_before((A, s), 1)
    return jnp.where(place == 0, state, A * state + s)


def of_last(values: PyTree, axis_name: str) -> PyTree:
    """Returns the values of the last device on all devices."""
    last = jax.lax.axis_index(axis_name) == jax.lax.axis_size(axis_name) - 1

    def spread(leaf):
        # A sum counts as replicated in `shard_map`, a copy by `ppermute` does not.
        return jax.lax.psum(jnp.where(last, leaf, 0), axis_name)

    return jax.tree.map(spread, values)
