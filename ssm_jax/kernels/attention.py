"""Attention with weights that factor: a recurrence of matrices, evaluated by chunks."""

from functools import partial

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.types import Array, Float, Steps

# Steps of a chunk; inside a chunk the evaluation is quadratic.
_CHUNK = 64

# Least sum of weights that is divided by; its inverse square is still a float32.
_LEAST = 1e-12


def linear_attention(
    q: Float[Array, "*b l h k"],
    k: Float[Array, "*b l h k"],
    v: Float[Array, "*b l h v"],
    state: Float[Array, "*b h k v1"] | None = None,
    *,
    bidirectional: bool = False,
    reset: Steps | None = None,
    mask: Steps | None = None,
) -> tuple[Float[jax.Array, "*b l h v"], Float[jax.Array, "*b h k v1"] | None]:
    """Evaluates ``y_i = sum_j (q_i . k_j) v_j / sum_j (q_i . k_j)`` in each head.

    Time and memory grow with the length: what a step sees of the chunks before its own
    is a product with a state, ``h_t = h_{t-1} + k_t [v_t, 1]^T``.

    Args:
      q: Features of the queries, not negative, ``(*b, l, h, k)``.
      k: Features of the keys, not negative, ``(*b, l, h, k)``.
      v: Values, ``(*b, l, h, v)``.
      state: State before the first step, ``(*b, h, k, v + 1)``. None means zeros.
      bidirectional: Every step sees all of its segment; else itself and what is before
        it.
      reset: True where a segment starts, ``(*b, l)``; steps of different segments do
        not see each other. None means one segment.
      mask: True where a step is data, ``(*b, l)``; the others are seen by none. None
        means all are.

    Returns:
      ``(y, state)``: means, ``(*b, l, h, v)``, and the state after the last step; None
      in place of the state if bidirectional. A step whose weights sum up to less than
      1e-12 gets less than the mean, and zeros where it sees nothing.

    Raises:
      ValueError: A state is given to an evaluation in two directions, an array is not
        floating-point or a flag not boolean, or a shape does not fit.

    Example:
      >>> q, k = jnp.ones((3, 1, 1)), jnp.array([1.0, 1.0, 2.0])[:, None, None]
      >>> y, state = linear_attention(q, k, jnp.array([3.0, 5.0, 4.0])[:, None, None])
      >>> print(y[:, 0, 0], state[0])
      [3. 4. 4.] [[16.  4.]]

    References:
      Katharopoulos et al., `Transformers are RNNs <https://arxiv.org/abs/2006.16236>`_,
      2020, equations 5 and 16 to 20
    """
    if bidirectional and state is not None:
        raise ValueError(
            "`state` must be None for linear attention in two directions, got one; the "
            "second direction starts where the sequence ends."
        )
    _check(q, k, v, state, reset, mask)
    return _evaluate(q, k, v, state, reset, mask, bidirectional=bidirectional)


def _check(q, k, v, state, reset, mask):
    for name, values in (("q", q), ("k", k), ("v", v)):
        check_floating(name, values)
        if values.ndim < 3 or 0 in values.shape or values.shape[:-1] != q.shape[:-1]:
            raise ValueError(
                f"`{name}` must be (*b, l, h, n), in all but n like `q` and with no "
                f"axis empty, got {values.shape} with {q.shape}; one head is an axis "
                "of size 1."
            )
    if k.shape != q.shape:
        raise ValueError(
            f"`k` must be {q.shape} like `q`, got {k.shape}; queries meet keys of "
            "their size."
        )
    *batch, _, heads, d_key = q.shape
    check_flags("reset", reset, q.shape[:-2])
    check_flags("mask", mask, q.shape[:-2])
    if state is None:
        return
    check_floating("state", state)
    if state.shape != (*batch, heads, d_key, v.shape[-1] + 1):
        raise ValueError(
            f"`state` must be {(*batch, heads, d_key, v.shape[-1] + 1)}, got "
            f"{state.shape}; its last column is that of the sums of weights."
        )


@partial(jax.jit, static_argnames="bidirectional")
def _evaluate(q, k, v, state, reset, mask, *, bidirectional):
    if mask is not None:
        k = jnp.where(mask[..., None, None], k, 0)
    # With a one at its end a value sums up to the sum of weights, too.
    v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
    if bidirectional and reset is None:
        total = jnp.einsum("...lhk,...lhv->...hkv", k, v)
        sums = jnp.einsum("...lhk,...hkv->...lhv", q, total)
    else:
        segment = jnp.zeros(q.shape[:-2], jnp.int32)
        segment = segment if reset is None else jnp.cumsum(reset, -1)
        sums, state = _in_chunks_of_input(q, k, v, segment, state, bidirectional)
    return sums[..., :-1] / jnp.maximum(sums[..., -1:], _LEAST), state


def _in_chunks_of_input(q, k, v, segment, state, bidirectional):
    """Sums ``(q_i . k_j) v_j`` over the ``j`` that ``i`` sees; and the last state."""
    length = q.shape[-3]
    size = min(_CHUNK, length)
    q, k, v = (_chunks(values, size, -3) for values in (q, k, v))
    segment = _chunks(segment, size, -1, mode="edge")
    sees = segment[..., :, None] == segment[..., None, :]
    if not bidirectional:
        sees &= jnp.tri(size, dtype=bool)
    weights = jnp.einsum("...ihk,...jhk->...hij", q, k)
    weights = jnp.where(sees[..., None, :, :], weights, 0)
    sums = jnp.einsum("...hij,...jhv->...ihv", weights, v)
    earlier, last = _from_earlier_chunks(q, k, v, segment, state)
    sums += earlier
    if bidirectional:
        steps = segment.ndim - 2, segment.ndim - 1
        q, k, v, segment = (jnp.flip(values, steps) for values in (q, k, v, segment))
        later, _ = _from_earlier_chunks(q, k, v, segment, None)
        sums += jnp.flip(later, steps)
        last = None
    sums = sums.reshape(*sums.shape[:-4], -1, *sums.shape[-2:])
    return sums[..., :length, :, :], last


def _chunks(values, size, axis, mode="constant"):
    """Splits the axis of steps into chunks and their steps, filled up at the end."""
    fill = [(0, 0)] * values.ndim
    fill[axis] = (0, -values.shape[axis] % size)
    values = jnp.pad(values, fill, mode=mode)
    axis += values.ndim
    return values.reshape(*values.shape[:axis], -1, size, *values.shape[axis + 1 :])


def _from_earlier_chunks(q, k, v, segment, state):
    """What steps see of the chunks before theirs, and the state after the last."""
    end = segment[..., -1]
    end_before = jnp.concatenate([jnp.zeros_like(end[..., :1]), end[..., :-1]], -1)
    handed_on = (segment == end[..., None])[..., None, None]
    local = jnp.einsum("...jhk,...jhv->...hkv", jnp.where(handed_on, k, 0), v)
    flat = local.reshape(*end.shape, -1)
    before = jnp.zeros_like(flat[..., 0, :])
    if state is not None:
        before = state.reshape(before.shape)
    keep = jnp.ones(flat.shape[-1:], flat.dtype)
    after, last = linear_recurrence(keep, flat, before, reset=end != end_before)
    states = jnp.concatenate([before[..., None, :], after[..., :-1, :]], -2)
    reads = (segment == end_before[..., None])[..., None, None]
    sums = jnp.einsum(
        "...ihk,...hkv->...ihv", jnp.where(reads, q, 0), states.reshape(local.shape)
    )
    return sums, last.reshape(*last.shape[:-1], *local.shape[-3:])
