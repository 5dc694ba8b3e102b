"""Linear attention, evaluated in chunks as a recurrence with matrix states."""

from functools import partial

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.axes import join_axis, match_varying_axes, split_axis
from ssm_jax.kernels.nonfinite import nan_where, propagate_flags
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.kernels.recurrence import linear_recurrence
from ssm_jax.kernels.sharding import broadcast_to_steps
from ssm_jax.types import Array, Float, Steps

# Length of a chunk. Within a chunk the attention matrix is formed explicitly, at a cost
# that is quadratic in the length of the chunk.
_CHUNK = 64

# Lower bound of the normalizer. Its inverse square, which occurs in the gradient of the
# division, does not overflow float32.
_NORMALIZER_MIN = 1e-12


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

    Time and memory are linear in the length. The contribution of previous chunks is a
    product with the state ``h_t = h_{t-1} + k_t [v_t, 1]^T``.

    Args:
      q: Non-negative features of the queries, ``(*b, l, h, k)``.
      k: Non-negative features of the keys, ``(*b, l, h, k)``.
      v: Values, ``(*b, l, h, v)``. Sums are accumulated in float32, also for bfloat16.
      state: State before the first step, ``(*b, h, k, v + 1)``. None means zeros.
      bidirectional: If True, each step attends to all steps of its segment; otherwise
        to itself and to previous steps of the segment.
      reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``. Steps
        do not attend across segment boundaries. None means one segment.
      mask: True at valid steps, ``(*b, l)`` or ``(l,)``. No step attends to padding.
        None means that all steps are valid.

    Returns:
      ``(y, state)``: weighted means, ``(*b, l, h, v)``, in the dtype of ``v``, and the
      state after the last step, at least float32, or None if ``bidirectional``. The
      normalizer is bounded below by 1e-12, so that the output is zero at a step that
      attends to no valid step. A key or a value that is not finite gives NaN at the
      steps of its head that attend to it, and in the state; it changes no other step,
      in value or gradient, nor does such a state change steps after a reset.

    Raises:
      ValueError: ``state`` is given together with ``bidirectional``, an array is not
        floating-point, flags are not boolean, or the shapes do not match.

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
            "`state` must be None if `bidirectional`, got an array; the backward "
            "direction has no previous state."
        )
    _check(q, k, v, state, reset, mask)
    return _evaluate(q, k, v, state, reset, mask, bidirectional=bidirectional)


def _check(q, k, v, state, reset, mask):
    for name, values in (("q", q), ("k", k), ("v", v)):
        check_floating(name, values)
        if values.ndim < 3 or 0 in values.shape or values.shape[:-1] != q.shape[:-1]:
            raise ValueError(
                f"`{name}` must be (*b, l, h, n), equal to `q` in all axes but the "
                f"last and without empty axes, got {values.shape} with {q.shape}; a "
                "single head is an axis of size 1."
            )
    if k.shape != q.shape:
        raise ValueError(
            f"`k` must be {q.shape} like `q`, got {k.shape}; queries and keys must "
            "have the same number of features."
        )
    *batch, _, heads, d_key = q.shape
    for name, flags in (("reset", reset), ("mask", mask)):
        check_flags(name, flags, q.shape[:-2], q.shape[-3:-2])
    if state is None:
        return
    check_floating("state", state)
    if state.shape != (*batch, heads, d_key, v.shape[-1] + 1):
        raise ValueError(
            f"`state` must be {(*batch, heads, d_key, v.shape[-1] + 1)}, got "
            f"{state.shape}; its last column holds the sums of the keys."
        )


@partial(jax.jit, static_argnames="bidirectional")
def _evaluate(q, k, v, state, reset, mask, *, bidirectional):
    v_dtype, arrays = v.dtype, [q, k, v, *([] if state is None else [state])]
    dtype = common_dtype(jnp.float32, *arrays)
    q, k, v = (values.astype(dtype) for values in (q, k, v))
    if mask is not None:
        # A zero key removes a padded step from the numerator and from the normalizer,
        # unless its value is not finite.
        k, v = (jnp.where(mask[..., None, None], values, 0) for values in (k, v))
    q, k, v, state, reached, last = _finite(q, k, v, state, reset, bidirectional)
    # The appended column of ones accumulates the normalizer along with the numerator.
    v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
    if bidirectional and reset is None:
        # Every step attends to the same sum, so no recurrence is needed.
        total = jnp.einsum("...lhk,...lhv->...hkv", k, v)
        sums = jnp.einsum("...lhk,...hkv->...lhv", q, total)
    else:
        segment = jnp.zeros(q.shape[:-2], jnp.int32)
        if reset is not None:
            segment += promoted_like(jnp.cumsum(reset, -1), segment)
        sums, state = _chunked_sums(q, k, v, segment, state, bidirectional)
    y = sums[..., :-1] / jnp.maximum(sums[..., -1:], _NORMALIZER_MIN)
    if state is not None:
        state = nan_where(last[..., None, None], state)
    return nan_where(reached[..., None], y).astype(v_dtype), state


def _finite(q, k, v, state, reset, bidirectional):
    """Zeros in place of steps of a head that are not finite, and what these reach.

    A weight of 0 would not hide them from steps that do not attend to them. Returns
    ``(q, k, v, state, found, last)``, flags of the outputs, ``(*b, l, h)``, and of the
    last state, ``(*b, h)``.
    """
    q_bad = ~jnp.all(jnp.isfinite(q), -1)
    bad = ~jnp.all(jnp.isfinite(k), -1) | ~jnp.all(jnp.isfinite(v), -1)
    before = bad[..., 0, :] & False
    if state is not None:
        before |= ~jnp.all(jnp.isfinite(state), (-2, -1))
        state = jnp.where(before[..., None, None], 0, state)
    if reset is not None:
        reset = broadcast_to_steps(reset, bad)
    bad, before, reset = match_varying_axes(bad, before, reset)

    reached, last = propagate_flags(bad, before, reset, bidirectional=bidirectional)
    k, v = (jnp.where(bad[..., None], 0, values) for values in (k, v))
    return jnp.where(q_bad[..., None], 0, q), k, v, state, reached | q_bad, last


def _chunked_sums(q, k, v, segment, state, bidirectional):
    """Sums ``(q_i . k_j) v_j`` over the steps ``j`` that ``i`` attends to.

    Returns the sums and the state after the last step (None if ``bidirectional``).
    """
    length = q.shape[-3]
    size = min(_CHUNK, length)
    q, k, v = (split_axis(values, -3, size) for values in (q, k, v))
    # Padding of the last chunk continues the last segment, so that the state is not
    # reset there. Its keys are zeros.
    if fill := -length % size:
        last = (*segment.shape[:-1], fill)
        filling = jnp.broadcast_to(segment[..., -1:], last)
        segment = jnp.concatenate([segment, filling], -1)
    segment = split_axis(segment, -1, size)
    attends = segment[..., :, None] == segment[..., None, :]
    if not bidirectional:
        attends &= promoted_like(jnp.tri(size, dtype=bool), attends)
    # Contribution of the same chunk: masked attention matrix times values.
    weights = jnp.einsum("...ihk,...jhk->...hij", q, k)
    weights = jnp.where(attends[..., None, :, :], weights, 0)
    sums = jnp.einsum("...hij,...jhv->...ihv", weights, v)
    past, last = _sums_of_previous_chunks(q, k, v, segment, state)
    sums += past
    if bidirectional:
        # The future is the past of the reversed sequence; the diagonal chunk is counted
        # above and belongs to neither.
        steps = segment.ndim - 2, segment.ndim - 1
        q, k, v, segment = (jnp.flip(values, steps) for values in (q, k, v, segment))
        future, _ = _sums_of_previous_chunks(q, k, v, segment, None)
        sums += jnp.flip(future, steps)
        last = None
    return join_axis(sums, sums.ndim - 4, length), last


def _sums_of_previous_chunks(q, k, v, segment, state):
    """Returns the sums over previous chunks, and the state after the last chunk."""
    end = segment[..., -1]
    previous_end = jnp.concatenate([jnp.zeros_like(end[..., :1]), end[..., :-1]], -1)
    # Only the segment at the end of a chunk contributes to the state that leaves it.
    in_last = (segment == end[..., None])[..., None, None]
    local = jnp.einsum("...jhk,...jhv->...hkv", jnp.where(in_last, k, 0), v)
    flat = local.reshape(*end.shape, -1)
    h0 = jnp.zeros_like(flat[..., 0, :])
    if state is not None:
        h0 = state.reshape(h0.shape)
    # A recurrence over chunks with decay 1: one state per chunk, not one per step.
    decay = jnp.ones(flat.shape[-1:], flat.dtype)
    h, last = linear_recurrence(decay, flat, h0, reset=end != previous_end)
    states = jnp.concatenate([h0[..., None, :], h[..., :-1, :]], -2)
    # Steps after a reset do not read the state of the previous segment.
    in_first = (segment == previous_end[..., None])[..., None, None]
    sums = jnp.einsum(
        "...ihk,...hkv->...ihv", jnp.where(in_first, q, 0), states.reshape(local.shape)
    )
    # Twice, as a state that has overflowed is not finite times 0.
    sums = jnp.where(in_first, sums, 0)
    return sums, last.reshape(*last.shape[:-1], *local.shape[-3:])
