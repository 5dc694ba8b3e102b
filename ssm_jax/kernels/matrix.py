r"""Recurrences whose states are matrices, evaluated by products of matrices.

Of a chunk of the length the states are not formed. With ``G_ij`` the sum of the log
decays after step ``j`` up to step ``i``, a chunk that starts from ``S`` has the outputs

.. math::
  o_i = e^{G_{i0}} S^\top q_i + \sum_{j \le i} e^{G_{ij}} (q_i \cdot k_j) v_j,

products of matrices, and a state is passed from chunk to chunk. ``G_ij`` is never a
difference of cumulative sums, which would lose a decay that follows a much faster one,
and no exponent is positive, so that nothing overflows. Of decays of heads it is the sum
for each pair of steps. Of decays of entries of keys there are too many pairs, but two
steps are in the two halves of one block of ``2 s`` steps, for one ``s`` among 1, 2, 4
and so on. ``exp(G_ij)`` is the decay from ``j`` to the end of its half, by which the
key is scaled, times the decay from there to ``i``, by which the query is. Both are
products of at most a chunk of decays: accurate, since nothing is subtracted.
"""

from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ssm_jax.kernels import plan
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.axes import (
    append_axes,
    join_axis,
    match_varying_axes,
    split_axis,
)
from ssm_jax.kernels.nonfinite import nan_where, propagate_flags
from ssm_jax.kernels.precision import einsum_f32
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.kernels.sharding import broadcast_to_steps, reshard
from ssm_jax.types import Array, Bool, Float, Steps

MatrixMethod = Literal["auto", "sequential", "associative", "chunked", "pallas"]
"""Evaluation method. It affects cost and rounding, not the result."""

LOG_DECAY_MIN = -1e30
"""Lower bound of a log decay. Its exponential is zero, and sums of it are finite."""


def matrix_recurrence(
    q: Float[Array, "*b l g k"],
    k: Float[Array, "*b l g k"],
    v: Float[Array, "*b l h v"],
    log_decay: Float[Array, "*b l h"] | Float[Array, "*b l g k"] | None = None,
    beta: Float[Array, "*b l h"] | None = None,
    state: Float[Array, "*b h k v"] | None = None,
    *,
    reset: Steps | None = None,
    mask: Steps | None = None,
    method: MatrixMethod = "auto",
) -> tuple[Float[jax.Array, "*b l h v"], Float[jax.Array, "*b h k v"]]:
    r"""Evaluates a linear recurrence of matrices in each head.

    .. math::
      S_t = e^{g_t} S_{t-1} + k_t v_t^\top, \qquad o_t = S_t^\top q_t

    with the log decays ``g_t``. With ``beta`` the delta rule, in which a value replaces
    what the decayed state holds for its key:

    .. math::
      S_t = e^{g_t} S_{t-1} + \beta_t k_t (v_t - (e^{g_t} S_{t-1})^\top k_t)^\top

    All methods compute the same result and are differentiable in all arrays.

    Args:
      q: Queries, ``(*b, l, g, k)``. They are not scaled.
      k: Keys, ``(*b, l, g, k)``. Value head ``i`` has the queries and keys of head
        ``i // (h // g)``; they are not repeated in memory. With ``beta``, keys of a
        norm of at most 1 and ``beta`` in [0, 2] keep the states bounded.
      v: Values, ``(*b, l, h, v)``; ``g`` divides ``h``. Sums are accumulated in
        float32, also for bfloat16.
      log_decay: Logarithms of the decays, at most 0: one for each value head,
        ``(*b, l, h)``, or for each entry of a key, ``(*b, l, g, k)``, which multiplies
        a row of the state. None: the state does not decay.
      beta: Weights of the delta rule, ``(*b, l, h)``. None: values are added.
      state: State before the first step, ``(*b, h, k, v)``. None means zeros.
      reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``. The
        state is zero before such a step. None means one segment.
      mask: True at valid steps, ``(*b, l)`` or ``(l,)``. Padded steps leave the state
        as it is, but for resets; their outputs read it. None means that all steps are
        valid.
      method: ``"sequential"``: `jax.lax.scan` over the steps, which defines the result;
        its gradient stores the states of all steps. ``"chunked"``: products of matrices
        within a chunk, and `jax.lax.scan` over the chunks; the gradient stores one
        state per chunk and evaluates chunks again. ``"associative"``: all chunks at
        once, after `jax.lax.associative_scan` of their states, with the most memory; of
        the delta rule a chunk has a matrix ``(k, k)`` for each head. ``"pallas"``:
        chunks in one kernel for TPUs, or for NVIDIA GPUs with at most 128 entries of a
        key and of a value, which keeps the states on the chip and is interpreted on
        CPUs; without forward-mode derivative.
        ``"auto"``: ``"sequential"`` for a single step, else ``"chunked"``; on CPUs
        small heads are evaluated step by step where no derivative is taken.

    Returns:
      ``(o, state)``: outputs, ``(*b, l, h, v)``, in the dtype of ``v``, and the state
      after the last step, ``(*b, h, k, v)``, at least float32. A key, value, decay or
      weight that is not finite gives NaN at the steps of its heads that it reaches, and
      in the state; it changes no other step, in value or gradient, nor does such a
      state change steps after a reset. A log decay of ``-inf`` is a decay of 0.

    Raises:
      ValueError: An array is not floating-point, flags are not boolean, the shapes do
        not match, ``method`` is unknown or has no kernel for these arrays or this
        platform, or a log decay is positive. Values that are traced are not known;
        there it is not checked.

    Example:
      >>> q = k = jnp.ones((3, 1, 1))
      >>> v, log_decay = jnp.ones((3, 1, 1)), jnp.full((3, 1), jnp.log(0.5))
      >>> o, state = matrix_recurrence(q, k, v, log_decay)
      >>> print(o[:, 0, 0], state[0])
      [1.   1.5  1.75] [[1.75]]

    References:
      Dao and Gu, `Transformers are SSMs <https://arxiv.org/abs/2405.21060>`_, 2024,
      section 6, for decays of heads; Yang, Wang, Shen, Panda and Kim, `Gated Linear
      Attention Transformers with Hardware-Efficient Training
      <https://arxiv.org/abs/2312.06635>`_, 2023, section 4, for decays of entries;
      Yang, Kautz and Hatamizadeh, `Gated Delta Networks
      <https://arxiv.org/abs/2412.06464>`_, 2024, section 3, for the delta rule
    """
    _check(q, k, v, log_decay, beta, state, reset, mask)
    if method not in get_args(MatrixMethod):
        raise ValueError(
            f"`method` must be one of {list(get_args(MatrixMethod))}, got {method!r}; "
            "'auto' chooses by the length."
        )
    return _evaluate(q, k, v, log_decay, beta, state, reset, mask, method=method)


def _check(q, k, v, log_decay, beta, state, reset, mask):
    for name, values in (("q", q), ("k", k), ("v", v)):
        check_floating(name, values)
        if values.ndim < 3 or 0 in values.shape or values.shape[:-2] != q.shape[:-2]:
            raise ValueError(
                f"`{name}` must be (*b, l, heads, n), equal to `q` in `*b` and `l` and "
                f"without empty axes, got {values.shape} with {q.shape}; a single head "
                "is an axis of size 1."
            )
    if k.shape != q.shape:
        raise ValueError(
            f"`k` must be {q.shape} like `q`, got {k.shape}; queries and keys must "
            "have the same heads and entries."
        )
    *batch, length, heads, d_value = v.shape
    if heads % q.shape[-2]:
        raise ValueError(
            "`v` must have a multiple of the heads of `q` as heads, got "
            f"{v.shape} with {q.shape}; a head of keys serves several of values."
        )
    if log_decay is not None:
        check_floating("log_decay", log_decay)
        if log_decay.shape not in (v.shape[:-1], k.shape):
            raise ValueError(
                f"`log_decay` must be {v.shape[:-1]}, one for each head of values, or "
                f"{k.shape} like `k`, got {log_decay.shape}; `jnp.broadcast_to` "
                "repeats what steps or heads share."
            )
        _check_not_positive(log_decay)
    if beta is not None:
        check_floating("beta", beta)
        if beta.shape != v.shape[:-1]:
            raise ValueError(
                f"`beta` must be {v.shape[:-1]}, one for each head of values, got "
                f"{beta.shape}; `jnp.broadcast_to` repeats what steps or heads share."
            )
    if state is not None:
        check_floating("state", state)
        if state.shape != (*batch, heads, k.shape[-1], d_value):
            raise ValueError(
                f"`state` must be {(*batch, heads, k.shape[-1], d_value)}, got "
                f"{state.shape}; it has a row for each entry of a key."
            )
    for name, flags in (("reset", reset), ("mask", mask)):
        check_flags(name, flags, (*batch, length), (length,))


def _check_not_positive(log_decay):
    # Where values are traced, or on other processes, they are not known.
    if isinstance(log_decay, Tracer) or (
        isinstance(log_decay, jax.Array) and not log_decay.is_fully_addressable
    ):
        return
    # By numpy: in a jitted function `jnp` would trace known values, too.
    largest = np.max(np.asarray(log_decay))
    if largest > 0:
        raise ValueError(
            f"`log_decay` must be at most 0, got {largest}; it is the logarithm of a "
            "decay, such as `-jax.nn.softplus(x)`."
        )


class _Inputs(NamedTuple):
    """The arguments by head of keys; ``r`` heads of values share one.

    Axes of steps ``(*b, l, g, r, v)``, of a chunk ``(*b, g, c, r, v)``.

    Attributes:
      q: Queries, ``(*b, l, g, k)``.
      k: Keys, ``(*b, l, g, k)``.
      v: Values, ``(*b, l, g, r, v)``.
      head_decay: Log decays of heads of values, ``(*b, l, g, r)``, or None.
      key_decay: Log decays of entries of keys, ``(*b, l, g, k)``, or None.
      beta: Weights of the delta rule, ``(*b, l, g, r)``, or None.
      reset: ``(*b, l)``, or None.
      q_kept: Which queries are not set to zero, ``(*b, l, g)``.
      k_kept: Which keys are not, and their decays, ``(*b, l, g)``.
      v_kept: Which values are not, ``(*b, l, g, r)``.
    """

    q: Any
    k: Any
    v: Any
    head_decay: Any
    key_decay: Any
    beta: Any
    reset: Any
    q_kept: Any
    k_kept: Any
    v_kept: Any

    def zeroed(self) -> "_Inputs":
        """Zeros in place of padding and of what is not finite.

        Of a chunk, which is in the cache, and not of the whole length.
        """
        key_decay = self.key_decay
        if key_decay is not None:
            key_decay = jnp.maximum(key_decay, LOG_DECAY_MIN)
            key_decay = jnp.where(self.k_kept[..., None], key_decay, 0)
        return self._replace(
            q=jnp.where(self.q_kept[..., None], self.q, 0),
            k=jnp.where(self.k_kept[..., None], self.k, 0),
            v=jnp.where(self.v_kept[..., None], self.v, 0),
            key_decay=key_decay,
        )


@partial(jax.jit, static_argnames="method")
def _evaluate(*arrays, method):
    if method == "pallas":
        return _by_kernel(*arrays)
    o, state, reached, last = unmarked_recurrence(*arrays, method=method)
    state = nan_where(last[..., None, None], state)
    return nan_where(reached[..., None], o).astype(arrays[2].dtype), state


def unmarked_recurrence(
    q: Float[Array, "*b l g k"],
    k: Float[Array, "*b l g k"],
    v: Float[Array, "*b l h v"],
    log_decay: Float[Array, "*b l h"] | Float[Array, "*b l g k"] | None,
    beta: Float[Array, "*b l h"] | None,
    state: Float[Array, "*b h k v"] | None,
    reset: Steps | None,
    mask: Steps | None,
    *,
    method: MatrixMethod,
) -> tuple[
    Float[jax.Array, "*b l h v"],
    Float[jax.Array, "*b h k v"],
    Bool[jax.Array, "*b l h"],
    Bool[jax.Array, "*b h"],
]:
    """Evaluates `matrix_recurrence` with zeros in place of what is not finite.

    Args:
      q: As for `matrix_recurrence`, like the others, which are not checked.
      k: Keys.
      v: Values.
      log_decay: Log decays.
      beta: Weights of the delta rule.
      state: State before the first step.
      reset: Resets.
      mask: Valid steps.
      method: The method.

    Returns:
      ``(o, state, reached, last)``: outputs and last state, at least float32, and what
      values that are not finite reach of them: flags ``(*b, l, h)`` and ``(*b, h)``.
    """
    *batch, length, heads, d_value = v.shape
    n_batch, groups, d_key = len(batch), q.shape[-2], q.shape[-1]
    by_entry = log_decay is not None and log_decay.ndim == k.ndim
    steps_in_value = False
    if method == "auto":
        method = plan.matrix_method(length)
        steps_in_value = method == "chunked" and plan.steps_give_values(
            d_key * d_value, by_entry=by_entry
        )
    dtype, start = _sums(q, k, v, log_decay, beta, state)
    arrays: Any = q, k, v, log_decay, beta
    arrays = jax.tree.map(lambda x: jnp.asarray(x, dtype), arrays)
    q, k, v, log_decay, beta, start, reset, mask = match_varying_axes(
        *arrays, start, *_flags_of_steps(v, reset, mask)
    )
    bad = _not_finite(q, k, v, log_decay, beta, mask)
    before = bad.v[..., 0, :] & False
    # Of zeros, which are constant, XLA would compute it while it compiles.
    if state is not None:
        before |= ~_all_finite(start, (-2, -1))
        start = jnp.where(before[..., None, None], 0, start)
    reached, last = propagate_flags(_of_values(bad.k, heads) | bad.v, before, reset)
    reached |= _of_values(bad.q, heads)
    k_kept, v_kept = ~bad.k, ~bad.v
    if mask is not None:
        # Without a key, a decay and a weight a padded step leaves the state as it is.
        k_kept, v_kept = k_kept & mask[..., None], v_kept & mask[..., None]
    if beta is not None:
        beta = jnp.where(v_kept, beta, 0)
    if log_decay is not None and not by_entry:
        log_decay = jnp.where(v_kept, jnp.maximum(log_decay, LOG_DECAY_MIN), 0)

    def by_group(x, axis):
        """Splits the axis of the heads of values, ``h``, into ``(g, r)``."""
        if heads == groups:
            return jnp.expand_dims(x, axis + 1)
        shape = *x.shape[:axis], groups, heads // groups, *x.shape[axis + 1 :]
        return x.reshape(shape)

    axis = n_batch + 1
    inputs = _Inputs(
        q,
        k,
        by_group(v, axis),
        None if log_decay is None or by_entry else by_group(log_decay, axis),
        log_decay if by_entry else None,
        None if beta is None else by_group(beta, axis),
        reset,
        ~bad.q,
        k_kept,
        by_group(v_kept, axis),
    )
    # (*b, g, k, r, v): a row of an entry of a key, as a query reads all its values.
    start = jnp.swapaxes(by_group(start, n_batch), -3, -2)
    if steps_in_value:
        run = _value_by_steps
    elif method == "sequential":
        run = _by_steps
    else:
        run = partial(_by_chunks, method=method)
    o, after = run(inputs, start)
    o = o.reshape(v.shape)
    after = jnp.swapaxes(after, -3, -2).reshape(*batch, heads, d_key, d_value)
    return o, after, reached, last


def _by_kernel(q, k, v, log_decay, beta, state, reset, mask):
    """Evaluates `matrix_recurrence` in a kernel, which marks what is not finite."""
    # Imported where it is used: Pallas takes longer to import than all kernels.
    from ssm_jax.kernels.pallas.matrix import matrix_scan

    dtype, state = _sums(q, k, v, log_decay, beta, state)
    arrays: Any = jax.tree.map(jnp.asarray, (q, k, v))
    numbers: Any = jax.tree.map(lambda x: jnp.asarray(x, dtype), (log_decay, beta))
    flags = _flags_of_steps(v, reset, mask)
    return matrix_scan(*match_varying_axes(*arrays, *numbers, state, *flags))


def _sums(q, k, v, log_decay, beta, state):
    """Returns the dtype of sums and the state before the first step in it."""
    *batch, _, heads, d_value = v.shape
    arrays = q, k, v, log_decay, beta, state
    dtype = common_dtype(jnp.float32, *jax.tree.leaves(arrays))
    if state is not None:
        return dtype, jnp.asarray(state, dtype)
    n_batch = len(batch)
    start = jnp.zeros((*batch, heads, k.shape[-1], d_value), dtype)
    axes = [*range(n_batch), n_batch + 1, None, n_batch + 2]
    return dtype, reshard(start, v, axes)


def _flags_of_steps(v, reset, mask):
    """Returns resets and mask of all rows, ``(*b, l)``, or None."""
    return tuple(
        None if flags is None else broadcast_to_steps(flags, v[..., 0])
        for flags in (reset, mask)
    )


class _Bad(NamedTuple):
    """Flags of queries and keys, ``(*b, l, g)``, and of values, ``(*b, l, h)``."""

    q: jax.Array
    k: jax.Array
    v: jax.Array


def _not_finite(q, k, v, log_decay, beta, mask):
    """Flags what is not finite at a step, but not on padding, which nothing reads.

    A weight of 0 would not hide it from steps that do not attend to it.
    """
    bad = _Bad(*(~_all_finite(x, -1) for x in (q, k, v)))
    if log_decay is not None and log_decay.ndim == k.ndim:
        # The smallest of them may be -inf.
        bad = bad._replace(k=bad.k | ~(jnp.max(log_decay, -1) < jnp.inf))
    elif log_decay is not None:
        bad = bad._replace(v=bad.v | ~(log_decay < jnp.inf))
    if beta is not None:
        bad = bad._replace(v=bad.v | ~jnp.isfinite(beta))
    if mask is not None:
        bad = bad._replace(k=bad.k & mask[..., None], v=bad.v & mask[..., None])
    return bad


def _all_finite(x, axes):
    # A maximum, which is NaN if a value is: on CPUs a third of the time of `all`.
    return jnp.max(jnp.abs(x), axes) < jnp.inf


def _of_values(flags, heads):
    """Flags of the heads of values, ``(*b, l, h)``, by those of their keys."""
    groups = flags.shape[-1]
    if heads == groups:
        return flags
    # Not `repeat`, which asks for a sharding where heads are sharded explicitly.
    shared = jnp.broadcast_to(flags[..., None], (*flags.shape, heads // groups))
    return shared.reshape(*flags.shape[:-1], heads)


def _by_steps(inputs, state):
    """Evaluates step by step; returns outputs ``(*b, l, g, r, v)``, last state."""
    axis = inputs.q.ndim - 3

    def step(state, x):
        x = x.zeroed()
        if x.reset is not None:
            state = jnp.where(append_axes(x.reset, state.ndim), 0, state)
        if x.head_decay is not None:
            state = state * jnp.exp(x.head_decay)[..., None, :, None]
        if x.key_decay is not None:
            state = state * jnp.exp(x.key_decay)[..., None, None]
        v = x.v
        if x.beta is not None:
            v = x.beta[..., None] * (v - einsum_f32("...k,...krv->...rv", x.k, state))
        state = state + x.k[..., None, None] * v[..., None, :, :]
        return state, einsum_f32("...k,...krv->...rv", x.q, state)

    steps = jax.tree.map(lambda x: jnp.moveaxis(x, axis, 0), inputs)
    state, o = jax.lax.scan(step, state, steps)
    return jnp.moveaxis(o, 0, axis), state


@jax.custom_jvp
def _value_by_steps(inputs, state):
    """Evaluates step by step, or by chunks where a derivative is taken."""
    return _by_steps(inputs, state)


@_value_by_steps.defjvp
def _derivative_by_chunks(primals, tangents):
    return jax.jvp(partial(_by_chunks, method="chunked"), primals, tangents)


def _by_chunks(inputs, state, *, method):
    """Evaluates chunk by chunk, or all chunks at once; results as `_by_steps`."""
    axis, length = inputs.q.ndim - 3, inputs.q.shape[-3]
    size = plan.matrix_chunk(length, inputs.k.shape[-1] * inputs.v.shape[-1])

    def split(x):
        return jnp.moveaxis(split_axis(x, axis, size), axis, 0)

    def heads_first(x):
        return jnp.swapaxes(split(x), axis + 1, axis + 2)

    def steps_last(x):
        return jnp.moveaxis(split(x), axis + 1, -1)

    # Zeros that fill the last chunk leave the state as it is.
    layout = _Inputs(
        q=heads_first,
        k=heads_first,
        v=heads_first,
        head_decay=steps_last,
        key_decay=heads_first,
        beta=steps_last,
        reset=split,
        q_kept=steps_last,
        k_kept=steps_last,
        v_kept=heads_first,
    )
    pairs = zip(layout, inputs, strict=True)
    chunks = _Inputs(*(None if x is None else change(x) for change, x in pairs))
    if length <= size:
        o, state = _chunk(state, jax.tree.map(lambda x: x[0], chunks))
        o = o[None]
    elif method == "chunked":
        # The gradient stores one state per chunk. The scan already prevents that
        # forward and recomputed operations are merged.
        one_chunk = jax.checkpoint(
            lambda state, chunk: _chunk(state, chunk)[::-1], prevent_cse=False
        )
        state, o = jax.lax.scan(one_chunk, state, chunks)
    else:
        before, state = _states_of_chunks(state, chunks)
        o, _ = _chunk(before, chunks)
    # (n, *b, g, c, r, v) to (*b, l, g, r, v)
    o = jnp.moveaxis(jnp.swapaxes(o, axis + 1, axis + 2), 0, axis)
    return join_axis(o, axis, length), state


def _states_of_chunks(state, chunks):
    """Returns the states before each chunk, and the one after the last chunk."""
    zeros = jnp.zeros_like(state, shape=(len(chunks.q), *state.shape))
    _, states = _chunk(zeros, chunks)
    if chunks.beta is None:
        decays = _Weights(chunks.zeroed()).carry(jnp.ones_like(states[..., :1]))
        multiply = jnp.multiply
    else:
        # A chunk is a linear map of the state; of the identity it gives its matrix.
        d_key, r = state.shape[-3:-1]
        identity = jnp.eye(d_key, dtype=state.dtype)[:, None]
        identity = jnp.broadcast_to(identity, (*states.shape[:-2], r, d_key))
        no_values = jnp.zeros_like(chunks.v, shape=(*chunks.v.shape[:-1], d_key))
        _, decays = _chunk(identity, chunks._replace(v=no_values))
        multiply = partial(einsum_f32, "...krm,...mrv->...krv")

    def combine(left, right):
        return multiply(right[0], left[0]), multiply(right[0], left[1]) + right[1]

    states = states.at[0].add(multiply(decays[0], state))
    _, states = jax.lax.associative_scan(combine, (decays, states))
    return jnp.concatenate([state[None], states[:-1]]), states[-1]


def _chunk(state, x):
    """Evaluates a chunk.

    Args:
      state: State before it, ``(*b, g, k, r, v)``.
      x: Its inputs; `head_decay` and `beta` are ``(*b, g, r, c)``.

    Returns:
      Outputs, ``(*b, g, c, r, v)``, and the state after it.
    """
    x = x.zeroed()
    weights, v = _Weights(x), x.v
    if x.beta is None:
        (scores,) = weights.pairs(x.q)
    else:
        # Values that are added, of the steps before: (I + N) v' = beta (v - S^T k).
        scores, products = weights.pairs(x.q, x.k)
        products = jnp.tril(products, -1) * x.beta[..., None]
        beta = jnp.swapaxes(x.beta, -2, -1)[..., None]
        v = _solve(products, beta * (v - weights.read(x.k, state)))
    o = weights.read(x.q, state) + _sum_of_steps(scores, v)
    return o, weights.carry(state) + weights.write(v)


def _sum_of_steps(scores, v):
    """Sums values ``(*b, g, c, r, v)`` by scores ``(*b, g, r, c, c)``, or of all r."""
    if scores.shape[-3] == 1:
        return einsum_f32("...ij,...jrv->...irv", scores[..., 0, :, :], v)
    return einsum_f32("...rij,...jrv->...irv", scores, v)


class _Weights:
    """How the steps of a chunk see each other, the state before and the one after.

    Args:
      x: Inputs of the chunk, as for `_chunk`.
    """

    def __init__(self, x: _Inputs):
        size = x.k.shape[-2]
        self._k = x.k
        self._by_head, self._by_key = x.head_decay is not None, x.key_decay is not None
        axes = tuple(range(x.k.ndim - 1))
        attends = jnp.expand_dims(jnp.tri(size, dtype=bool), axes)
        self._first = self._last = self._kept = None
        if x.reset is not None:
            # By comparison, so that no weight across a reset depends on a decay.
            segment = jnp.cumsum(x.reset, -1)
            same = segment[..., :, None] == segment[..., None, :]
            attends &= same[..., None, None, :, :]
            self._first = (segment == 0)[..., None, :, None]
            self._last = (segment == segment[..., -1:])[..., None, :, None]
            self._kept = (segment[..., -1] == 0)[..., None, None, None, None]
        self._attends = attends
        if x.head_decay is not None:
            steps = np.arange(size)
            # Of each pair of steps, the steps after the one up to the other.
            later = steps > steps[:, None]
            between = later[:, :, None] & ~later.T
            decay = x.head_decay
            self._sums = einsum_f32(
                "...t,jti->...ij", decay, between.astype(decay.dtype)
            )
            self._before = jnp.cumsum(decay, -1)
            self._after = self._sums[..., -1, :]
            self._total = jnp.exp(self._before[..., -1:])
        if x.key_decay is not None:
            self._levels = []
            # From the start of a block of a step, which is included, and to its end.
            before, after = jnp.exp(x.key_decay), jnp.ones_like(x.key_decay)
            while len(self._levels) < size.bit_length() - 1:
                self._levels.append((before, after))
                before, after = _merge(before, after, 2 ** len(self._levels))
            self._before, self._after = before, after
            # Not a product: its rounding would grow with the number of chunks.
            self._total = jnp.exp(jnp.sum(x.key_decay, -2))

    def pairs(self, *xs):
        """Products of each of several queries with the keys that they see, decayed.

        Args:
          *xs: ``(*b, g, c, k)``.

        Returns:
          For each ``(*b, g, r, c, c)``, or with ``r`` of 1, zero where nothing is seen.
        """
        if self._by_key:
            products = [_decayed_products(x, self._k, self._levels) for x in xs]
        else:
            products = [einsum_f32("...ik,...jk->...ij", x, self._k) for x in xs]
        if not self._by_head:
            return [jnp.where(self._attends, y[..., None, :, :], 0) for y in products]
        # Zero before the exponential, whose gradient would be infinity times zero.
        exponent = jnp.where(self._attends, self._sums, 0)
        weights = jnp.where(self._attends, jnp.exp(exponent), 0)
        return [weights * y[..., None, :, :] for y in products]

    def read(self, x, state):
        """Products of queries with the state before the chunk, decayed.

        Args:
          x: ``(*b, g, c, k)``.
          state: ``(*b, g, k, r, v)``.

        Returns:
          ``(*b, g, c, r, v)``.
        """
        if self._by_key:
            x = x * self._before
        decay = None
        if self._by_head:
            decay = jnp.swapaxes(jnp.exp(self._before), -2, -1)  # (*b, g, c, r)
            if decay.shape[-1] == 1:
                # Of the query, so that the gradient does not need the product again.
                x, decay = x * decay, None
        y = einsum_f32("...ik,...krv->...irv", x, state)
        if decay is not None:
            y *= decay[..., None]
        return y if self._first is None else jnp.where(self._first[..., None], y, 0)

    def write(self, v):
        """Sum of the products of keys and values that the state after the chunk has.

        Args:
          v: ``(*b, g, c, r, v)``.

        Returns:
          ``(*b, g, k, r, v)``.
        """
        k = self._k
        if self._by_key:
            k = k * self._after
        if self._by_head:
            v = v * jnp.swapaxes(jnp.exp(self._after), -2, -1)[..., None]
        if self._last is not None:
            k = jnp.where(self._last, k, 0)
        return einsum_f32("...jk,...jrv->...krv", k, v)

    def carry(self, state):
        """What is left of the state before the chunk, ``(*b, g, k, r, v)``."""
        if self._by_key:
            state = state * self._total[..., None, None]
        if self._by_head:
            state = state * self._total[..., None, :, :]
        return state if self._kept is None else jnp.where(self._kept, state, 0)


def _halves(x, size):
    """Splits an axis of steps into the halves of blocks of ``2 * size`` steps."""
    x = x.reshape(*x.shape[:-2], -1, 2, size, x.shape[-1])
    return x[..., 0, :, :], x[..., 1, :, :]


def _merge(before, after, size):
    """Decays from the start and to the end of blocks of ``size``, of those of halves.

    Products of numbers of at most 1: at most a chunk of them, and far cheaper than the
    exponential of a sum for each size of a block.
    """
    shape, half = before.shape, size // 2
    (before_0, before_1), (after_0, after_1) = (
        _halves(before, half),
        _halves(after, half),
    )
    before = jnp.concatenate([before_0, before_1 * before_0[..., -1:, :]], -2)
    after = jnp.concatenate([after_0 * before_1[..., -1:, :], after_1], -2)
    return before.reshape(shape), after.reshape(shape)


def _decayed_products(x, k, levels):
    """Products ``sum_k x_i k_j exp(G_ij)`` with the keys of this and earlier steps.

    Both sides are scaled to the middle of the block whose halves they are in.
    """
    products = jnp.sum(x * k, -1)[..., None, None]
    for level, (before, after) in enumerate(levels):
        (_, x_1), (k_0, _) = _halves(x, 2**level), _halves(k, 2**level)
        (_, before_1), (after_0, _) = (_halves(y, 2**level) for y in (before, after))
        apart = einsum_f32("...ik,...jk->...ij", x_1 * before_1, k_0 * after_0)
        products = products.reshape(*apart.shape[:-2], 2, 2**level, 2**level)
        upper = jnp.concatenate([products[..., 0, :, :], jnp.zeros_like(apart)], -1)
        lower = jnp.concatenate([apart, products[..., 1, :, :]], -1)
        products = jnp.concatenate([upper, lower], -2)
    return products[..., 0, :, :]


def _solve(products, values):
    """Solves ``(I + N) x = v`` for a strictly lower triangular ``N``.

    Args:
      products: ``N``, ``(*b, g, r, c, c)``.
      values: ``v``, ``(*b, g, c, r, v)``.
    """
    inverse = _inverse(jax.lax.stop_gradient(products))

    def system(x):
        return x + _sum_of_steps(products, x)

    def solve(_, v):
        return _sum_of_steps(inverse, v)

    def solve_transposed(_, v):
        return _sum_of_steps(jnp.swapaxes(inverse, -2, -1), v)

    # The gradient is that of the system; none goes through the inverse.
    return jax.lax.custom_linear_solve(system, values, solve, solve_transposed)


def _inverse(products):
    """Returns the inverse of ``I + N`` for a strictly lower triangular ``N``.

    From the inverses of diagonal blocks that of the block of two of them: as accurate
    as a substitution, since all of them are as small as the inverse. Powers of ``N``,
    which other schemes form, are not.
    """
    size = products.shape[-1]
    # Of products, which may be sharded: (*b, c, 1, 1).
    inverse = jnp.ones_like(products[..., None, :1])
    for level in range(size.bit_length() - 1):
        half = 2**level
        # Diagonal blocks of two halves: (*b, n, n, 2, half, 2, half). One axis is split
        # after the other, as JAX requires on explicit axes of a mesh.
        halves = size // half // 2, 2, half
        blocks = products.reshape(*products.shape[:-1], *halves)
        blocks = blocks.reshape(*products.shape[:-2], *halves, *halves)
        below = jnp.diagonal(blocks[..., 1, :, :, 0, :], axis1=-4, axis2=-2)
        below = jnp.moveaxis(below, -1, -3)
        inverse = inverse.reshape(*below.shape[:-2], 2, half, half)
        first, second = inverse[..., 0, :, :], inverse[..., 1, :, :]
        below = -einsum_f32("...ij,...jk,...kl->...il", second, below, first)
        upper = jnp.concatenate([first, jnp.zeros_like(first)], -1)
        inverse = jnp.concatenate([upper, jnp.concatenate([below, second], -1)], -2)
    return inverse[..., 0, :, :]
