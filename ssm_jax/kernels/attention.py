"""Linear attention, a recurrence of matrices without decays, and its normalizer."""

from functools import partial

import jax
import jax.numpy as jnp

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.matrix import unmarked_recurrence
from ssm_jax.kernels.nonfinite import last_of_segments, nan_where
from ssm_jax.kernels.precision import einsum_f32
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.kernels.sharding import broadcast_to_steps
from ssm_jax.kernels.shift import shift_left
from ssm_jax.types import Array, Float, Steps

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
    # The appended column of ones accumulates the normalizer along with the numerator.
    v = jnp.concatenate([v, jnp.ones_like(v[..., :1])], -1)
    if not bidirectional:
        sums, state, reached, last = _sums(q, k, v, state, reset, mask)
        state = nan_where(last[..., None, None], state)
    else:
        if mask is not None:
            # A zero key removes a padded step from the numerator and from the
            # normalizer, unless its value is not finite.
            mask = broadcast_to_steps(mask, v[..., 0])[..., None, None]
            k, v = (jnp.where(mask, values, 0) for values in (k, v))
        both = _sums_of_all if reset is None else _sums_of_segments
        sums, reached = both(q, k, v, reset)
    y = sums[..., :-1] / jnp.maximum(sums[..., -1:], _NORMALIZER_MIN)
    return nan_where(reached[..., None], y).astype(v_dtype), state


def _sums(q, k, v, state=None, reset=None, mask=None):
    """Sums ``(q_i . k_j) v_j`` over the steps up to ``i``, of `unmarked_recurrence`."""
    return unmarked_recurrence(q, k, v, None, None, state, reset, mask, method="auto")


def _sums_of_all(q, k, v, reset):
    """Sums over all steps, and what values that are not finite reach."""
    del reset
    # Every step attends to the same sum.
    _, total, _, last = _sums(q, k, v)
    finite = jnp.all(jnp.isfinite(q), -1)
    q = jnp.where(finite[..., None], q, 0)
    sums = einsum_f32("...lhk,...hkv->...lhv", q, total)
    return sums, last[..., None, :] | ~finite


def _sums_of_segments(q, k, v, reset):
    """Sums over all steps of the segments, and what is reached."""
    reset = broadcast_to_steps(reset, v[..., 0])
    sums, _, reached, _ = _sums(q, k, v, reset=reset)
    # The future is the past of the reversed sequence, where a segment starts at its
    # last step. The step itself is counted above.
    steps = reset.ndim - 1
    ends = last_of_segments(reset)
    following = (
        shift_left(values.reshape(*reset.shape, -1), reset=reset).reshape(values.shape)
        for values in (k, v)
    )
    q, k, v, ends = (jnp.flip(values, steps) for values in (q, *following, ends))
    future = _sums(q, k, v, reset=ends)
    return sums + jnp.flip(future[0], steps), reached | jnp.flip(future[2], steps)
