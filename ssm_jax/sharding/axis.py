"""The mesh axis of the length, as layers read it, and sums and positions along it."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from ssm_jax.recurrences.families.padding import last_valid
from ssm_jax.types import Array, Bool, Float, Int, Outputs, PyTree, Steps

_AXIS: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "length_axis", default=None
)


@contextlib.contextmanager
def sharded_length(axis_name: str | None) -> Iterator[None]:
    """Context manager in which layers take inputs for pieces of longer sequences.

    The models of this package then compute inside `jax.shard_map`, on the piece of each
    device, what they compute on the whole sequence. Parameters and initial states are
    the same along the axis; inputs, flags and outputs at each step are sharded; final
    states and predictions of whole sequences are again the same. Layers that cannot
    raise a ValueError.

    Args:
      axis_name: Name of the mapped axis that the length is sharded over. None means
        that sequences are whole.

    Example:
      >>> from jax.sharding import Mesh, PartitionSpec as P
      >>> from ssm_jax.models import LastHead, RecurrentNetwork
      >>> from ssm_jax.recurrences import GRU
      >>> model = RecurrentNetwork(GRU(d_state=4), LastHead(d_output=1))
      >>> x = jnp.ones((2, 16, 3))
      >>> variables = model.init(jax.random.key(0), x)
      >>> def piece(variables, x):
      ...     with sharded_length("seq"):
      ...         return model.apply(variables, x)[0]
      >>> mesh = Mesh(jax.devices(), ("seq",))
      >>> specs = P(), P(None, "seq")
      >>> mapped = jax.shard_map(piece, mesh=mesh, in_specs=specs, out_specs=P())
      >>> whole, _ = model.apply(variables, x)
      >>> bool(jnp.allclose(jax.jit(mapped)(variables, x), whole, atol=1e-5))
      True
    """
    token = _AXIS.set(axis_name)
    try:
        yield
    finally:
        _AXIS.reset(token)


def length_axis() -> str | None:
    """Returns the axis that `sharded_length` has set, or None."""
    return _AXIS.get()


def refuse_sharded_length(layer: object, instead: str) -> None:
    """Raises a ValueError if the length is sharded.

    Args:
      layer: The layer, which needs whole sequences.
      instead: What to use instead.
    """
    if (axis := length_axis()) is not None:
        raise ValueError(
            f"`layer` must not need whole sequences where the axis {axis!r} shards "
            f"their length, got {type(layer).__name__}; {instead}."
        )


def n_pieces() -> int:
    """Returns the number of pieces of each sequence, 1 for whole sequences."""
    axis = length_axis()
    return 1 if axis is None else jax.lax.axis_size(axis)


def first_step(length: int) -> Array | int:
    """Returns the index of the first step of this device's piece.

    Args:
      length: Number of steps of a piece.
    """
    axis = length_axis()
    return 0 if axis is None else length * jax.lax.axis_index(axis)


def sum_over_pieces(sums: PyTree) -> PyTree:
    """Adds the sums of all pieces."""
    axis = length_axis()
    return sums if axis is None else jax.lax.psum(sums, axis)


def previous_pieces(values: Int[Array, "*b"]) -> Int[Array, "n *#b"]:
    """Returns the values of each piece, zeros for this piece and those after it."""
    axis = length_axis()
    if axis is None:
        return jnp.zeros_like(values)[None]
    pieces = jax.lax.all_gather(values, axis)
    earlier = jnp.arange(len(pieces)) < jax.lax.axis_index(axis)
    return jnp.where(earlier.reshape(-1, *(1,) * values.ndim), pieces, 0)


def any_valid(mask: Steps) -> Bool[Array, "*b 1"]:
    """Returns whether each sequence has a valid step."""
    is_valid = jnp.any(mask, -1, keepdims=True)
    return sum_over_pieces(is_valid.astype(jnp.int32)) > 0


def last_output(y: Outputs, mask: Steps | None) -> Float[Array, "*b 1 o"]:
    """Returns the output of the last valid step of each sequence; see `last_valid`."""
    last, axis = last_valid(y, mask), length_axis()
    if axis is None:
        return last
    place = jax.lax.axis_index(axis)
    if mask is None:
        is_last = place == jax.lax.axis_size(axis) - 1
    else:
        some = jnp.any(jnp.broadcast_to(mask, y.shape[:-1]), -1)[..., None, None]
        is_last = place == jax.lax.pmax(jnp.where(some, place, -1), axis)
    # A sum counts as replicated in `shard_map`; one piece has the last valid step.
    return jax.lax.psum(jnp.where(is_last, last, 0), axis)
