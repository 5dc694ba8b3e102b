"""States at the boundaries of a sequence whose length is sharded over devices."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import append_axes, match_varying_axes
from ssm_jax.kernels.nonfinite import nan_where
from ssm_jax.types import Array, PyTree, Steps

_FinalState = Callable[[Array], Array]


def boundary_state(
    final_state: _FinalState,
    state: Array,
    axis_name: str,
    *,
    diagonal: bool,
    reset: Steps | None = None,
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
      reset: Resets of this device's piece, ``(*b, l)``; used if the state is diagonal.
        States before the last one, also those that are not finite, have no effect.
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

    def shift_pieces(values: PyTree, distance: int) -> PyTree:
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
        def refine(before, _):
            before = shift_pieces(final_state(before), 1)
            return jnp.where(place == 0, state, before), None

        first = jnp.where(place == 0, state, jnp.zeros_like(state))
        rounds = n - 1 if reach is None else min(n - 1, reach)
        return jax.lax.scan(refine, first, length=rounds)[0]
    # The tangent of the final state is the diagonal: a difference of two final states
    # would lose its digits.
    zeros, ones = jnp.zeros_like(state), jnp.ones_like(state)
    s, A = jax.jvp(final_state, (zeros,), (ones,))
    # Whether a reset separates the end of the piece from what comes before it.
    cut = None
    if reset is not None:
        rows = jnp.any(reset, -1).astype(jnp.int32)
        cut = match_varying_axes(jnp.broadcast_to(rows, A.shape[: reset.ndim - 1]), A)[
            0
        ]

    def apply(values, A, cut):
        """``A values``, and 0 behind a reset, even if one of them is not finite."""
        if cut is None:
            return A * values
        finite = jnp.isfinite(A) & jnp.isfinite(values)
        not_cut = append_axes(cut == 0, A.ndim)
        # Both factors, as the gradient of each is a product with the other.
        A, values = (jnp.where(finite & not_cut, v, 0) for v in (A, values))
        return nan_where(~finite & not_cut, A * values)

    for level in range(math.ceil(math.log2(n))):
        distance = 2**level
        A_before, s_before, cut_before = shift_pieces((A, s, cut), distance)
        s = jnp.where(place >= distance, apply(s_before, A, cut) + s, s)
        A = jnp.where(place >= distance, apply(A_before, A, cut), A)
        if cut is not None:
            cut |= cut_before  # Zeros from before the first piece.
    A, s, cut = shift_pieces((A, s, cut), 1)
    return jnp.where(place == 0, state, apply(state, A, cut) + s)


def broadcast_last(values: PyTree, axis_name: str) -> PyTree:
    """Returns the values of the last device on all devices."""
    last = jax.lax.axis_index(axis_name) == jax.lax.axis_size(axis_name) - 1

    def broadcast(leaf):
        # A sum counts as replicated in `shard_map`, a copy by `ppermute` does not.
        return jax.lax.psum(jnp.where(last, leaf, 0), axis_name)

    return jax.tree.map(broadcast, values)
