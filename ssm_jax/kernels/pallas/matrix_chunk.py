"""A chunk of the recurrence of matrices, which the kernels for GPUs and TPUs share.

All arrays have two axes. Each kernel loads them, keeps the states on its chip and
differentiates `evaluate` within its backward pass.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.matrix import LOG_DECAY_MIN
from ssm_jax.types import Array


class Head(NamedTuple):
    """A head of keys in a chunk of ``c`` steps, and the values that share it.

    Attributes:
      q: Queries, ``(c, k)``.
      k: Keys, ``(c, k)``.
      v: Values of each head, ``(c, v)``.
      decay: Log decays of each head of values, ``(1, c)``, or None.
      key_decay: Log decays of entries of keys, ``(c, k)``, or None. If there are some,
        ``c`` is a power of two.
      beta: Weights of the delta rule of each of them, ``(1, c)``, or None.
    """

    q: Any
    k: Any
    v: Any
    decay: Any
    key_decay: Any
    beta: Any


class Seen(NamedTuple):
    """What the steps of a chunk see; all but the first are None in one segment.

    Attributes:
      steps: Whether a step sees another one, ``(c, c)``.
      before: Whether it sees the state before the chunk, ``(c, 1)``.
      after: Whether the state after the chunk sees it, ``(c, 1)``.
      across: Whether the state after sees the one before, ``(1, 1)``.
    """

    steps: Any
    before: Any
    after: Any
    across: Any


class Bad(NamedTuple):
    """Which rows of arrays have a number that is not finite, 1 or 0.

    Attributes:
      q: Of the queries, ``(c, 1)``.
      k: Of the keys and of the decays of their entries, ``(c, 1)``.
      v: Of the values of each head, ``(c, 1)``.
      states: Of the state of each head before the chunk, ``(1, 1)``.
    """

    q: Any
    k: Any
    v: Any
    states: Any


class OfValues(NamedTuple):
    """Marks of a head of values, 1 or 0.

    Attributes:
      v: Which values are zeros, ``(c, 1)``.
      decay: Which log decays are, ``(1, c)``, or None.
      beta: Which weights of the delta rule are, ``(1, c)``, or None.
      reached: Which outputs are not finite, ``(c, 1)``.
      after: Whether the state after the chunk is not, ``(1, 1)``.
    """

    v: Any
    decay: Any
    beta: Any
    reached: Any
    after: Any


class Marks(NamedTuple):
    """What is replaced in a chunk of a head of keys, 1 or 0.

    Attributes:
      q: Which queries are zeros, ``(c, 1)``.
      k: Which keys are, and the log decays of their entries, ``(c, 1)``.
      values: The marks of each head of values.
    """

    q: Any
    k: Any
    values: Any


def seen_steps(size: int, resets: Array | None) -> Seen:
    """Returns what the steps of a chunk see.

    Args:
      size: Number of steps.
      resets: 1 where a segment starts, else 0, ``(1, c)``. None: one segment.
    """
    step, other = _indices(size)
    if resets is None:
        return Seen(other <= step, None, None, None)
    # By comparison, so that no weight across a reset depends on a decay.
    segment = jnp.sum(jnp.where(other <= step, resets, 0), 1, keepdims=True)
    last = jnp.sum(resets, 1, keepdims=True)
    return Seen(
        (other <= step) & (segment == _row(segment)),
        segment == 0,
        segment == last,
        last == 0,
    )


def find_bad(head: Head, states: Sequence[Array]) -> Bad:
    """Returns what is not finite in a head of keys and in the states before a chunk."""
    of_states = [jnp.max(_bad(state), 0, keepdims=True) for state in states]
    of_keys = _bad(head.k)
    if head.key_decay is not None:
        # The smallest of them may be -inf.
        of_keys = jnp.maximum(of_keys, _bad(jnp.maximum(head.key_decay, LOG_DECAY_MIN)))
    return Bad(_bad(head.q), of_keys, [*map(_bad, head.v)], of_states)


def find_reached(bad: Bad, head: Head, seen: Seen, valid: Array | None) -> Marks:
    """Returns the marks of a chunk.

    Args:
      bad: What is not finite.
      head: A head of keys and its values.
      seen: What the steps see.
      valid: 1 at valid steps, else 0, ``(1, c)``. None: all are.
    """
    padding, padding_row, values = 0, 0, []
    if valid is not None:
        padding_row = 1 - valid
        padding = _column(padding_row)
    for i, (bad_v, before) in enumerate(zip(bad.v, bad.states, strict=True)):
        row, decay, beta = _row(jnp.maximum(bad.k, bad_v)), None, None
        if head.decay is not None:
            # The smallest of them may be -inf.
            bad_decay = jnp.where(head.decay[i] < jnp.inf, 0, 1).astype(row.dtype)
            row = jnp.maximum(row, bad_decay)
            decay = jnp.maximum(bad_decay, padding_row)
        if head.beta is not None:
            bad_beta = jnp.where(jnp.abs(head.beta[i]) < jnp.inf, 0, 1)
            bad_beta = bad_beta.astype(row.dtype)
            row = jnp.maximum(row, bad_beta)
            beta = jnp.maximum(bad_beta, padding_row)
        # Nothing reads what is not finite at padding.
        row = row * (1 - padding_row)
        reached = jnp.max(jnp.where(seen.steps, row, 0), 1, keepdims=True)
        if seen.before is not None:
            before = jnp.where(seen.before, before, 0)
        reached, v_zero = jnp.maximum(reached, before), jnp.maximum(bad_v, padding)
        of_outputs, after = jnp.maximum(reached, bad.q), _last_row(reached)
        values.append(OfValues(v_zero, decay, beta, of_outputs, after))
    return Marks(bad.q, jnp.maximum(bad.k, padding), values)


def evaluate(
    head: Head, states: Sequence[Array], *, seen: Seen, marks: Marks, precision: Any
) -> tuple[list[jax.Array], list[jax.Array]]:
    """Evaluates a chunk as `ssm_jax.kernels.matrix` does.

    Args:
      head: A head of keys and its values.
      states: State of each of them before the chunk, ``(k, v)``.
      seen: What its steps see.
      marks: What is replaced by zeros.
      precision: Of the products of matrices, at least that of float32.

    Returns:
      Outputs of each of them, ``(c, v)``, and the states after the chunk.
    """
    dtype, (step, other) = states[0].dtype, _indices(len(head.q))
    dot = partial(_dot, precision)
    q = zero_where(marks.q, head.q.astype(dtype))
    k = zero_where(marks.k, head.k.astype(dtype))
    # With the delta rule keys read, too: what the state holds for them.
    readers = [q] if head.beta is None else [q, k]
    if head.key_decay is None:
        products, k_after, kept = [dot(x, k, 1, 1) for x in readers], k, None
    else:
        decay = jnp.maximum(head.key_decay.astype(dtype), LOG_DECAY_MIN)
        decay = zero_where(marks.k, decay)
        products, readers, k_after = _decay_entries(precision, readers, k, decay)
        # Not a product: its rounding would grow with the number of chunks.
        kept = _column(jnp.exp(jnp.sum(decay, 0, keepdims=True)))
    products = [jnp.where(seen.steps, y, 0) for y in products]
    if seen.after is not None:
        k_after = jnp.where(seen.after, k_after, 0)
    outputs, after = [], []
    for i, (flags, state) in enumerate(zip(marks.values, states, strict=True)):
        v = zero_where(flags.v, head.v[i].astype(dtype))
        scores, reading, since = products, readers, None
        left = state if kept is None else state * kept
        if head.decay is not None:
            decay = jnp.maximum(head.decay[i], LOG_DECAY_MIN)
            decay = jnp.where(flags.decay > 0, 0, decay)
            until = jnp.where(other <= step, decay, 0)
            # Of each pair of steps, the decays after the one up to the other.
            sums = dot(until, (other < step).astype(dtype), 1, 0)
            # Zero before the exponential, whose gradient would be infinity times zero.
            weights = jnp.exp(jnp.where(seen.steps, sums, 0))
            scores = [weights * y for y in scores]
            from_start = jnp.exp(jnp.sum(until, 1, keepdims=True))
            reading = [x * from_start for x in reading]
            since = jnp.sum(jnp.where(step < other, decay, 0), 1, keepdims=True)
            left = state * jnp.exp(jnp.sum(decay, 1, keepdims=True))
        if seen.before is not None:
            reading = [jnp.where(seen.before, x, 0) for x in reading]
            left = jnp.where(seen.across, left, 0)
        if head.beta is not None:
            # Values that are added: (I + N) v' = beta (v - S^T k).
            beta = _column(jnp.where(flags.beta > 0, 0, head.beta[i]))
            system = beta * jnp.where(other < step, scores[1], 0)
            v = _solve(precision, system, beta * (v - dot(reading[1], state, 1, 0)))
        outputs.append(dot(reading[0], state, 1, 0) + dot(scores[0], v, 1, 0))
        written = v if since is None else v * jnp.exp(since)
        after.append(left + dot(k_after, written, 0, 0))
    return outputs, after


def _decay_entries(precision, readers, k, decay):
    """Returns products and keys with decays of entries, as `ssm_jax.kernels.matrix`.

    Two steps are in the two halves of one block of ``2 s`` steps, where ``s`` is the
    highest bit in which their numbers differ. Both sides are scaled to its middle.

    Args:
      precision: Of the products of matrices.
      readers: Queries, or queries and keys, ``(c, k)``.
      k: Keys, ``(c, k)``.
      decay: Log decays of their entries, ``(c, k)``.

    Returns:
      The products of readers and keys, ``(c, c)``, of a step with itself and with
      those before; the readers with the decays since the start of the chunk, and the
      keys with those until its end.
    """
    dot, (step, other) = partial(_dot, precision), _indices(len(k))
    row = jax.lax.broadcasted_iota(jnp.int32, decay.shape, 0)
    # From the start of a block of a step, which is included, and to its end.
    before, after = jnp.exp(decay), jnp.ones_like(decay)
    products = [jnp.sum(x * k, 1, keepdims=True) for x in readers]
    products = [jnp.where(step == other, y, 0) for y in products]
    for level in range((len(k) - 1).bit_length()):
        size, k_after = 2**level, k * after
        apart = (step ^ other) >> level == 1
        products = [
            jnp.where(apart, dot(x * before, k_after, 1, 1), y)
            for x, y in zip(readers, products, strict=True)
        ]
        # Of all of the other half, what is before its last step.
        end = jnp.where(other == (step ^ size | size - 1), 1, 0).astype(decay.dtype)
        whole, is_second = dot(end, before, 1, 0), row >> level & 1 == 1
        after = jnp.where(is_second, after, after * whole)
        before = jnp.where(is_second, before * whole, before)
    return products, [x * before for x in readers], k * after


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solve(precision, system, values):
    """Solves ``(I + N) x = v`` for a strictly lower triangular ``N``, ``(c, c)``."""
    return _dot(precision, _inverse(precision, system), values, 1, 0)


@_solve.defjvp
def _derivative_of_solve(precision, primals, tangents):
    # That of the system; none goes through the inverse.
    (system, values), (of_system, of_values) = primals, tangents
    dot, inverse = partial(_dot, precision), _inverse(precision, system)
    solution = dot(inverse, values, 1, 0)
    change = of_values - dot(of_system, solution, 1, 0)
    return solution, dot(inverse, change, 1, 0)


def _inverse(precision, system):
    """Returns the inverse of ``I + N``, as `ssm_jax.kernels.matrix` does.

    From the inverses of the diagonal blocks of a size, that of the blocks of two of
    them. Nothing is sliced: what is between two halves is masked instead, by the
    highest bit in which the numbers of the row and the column differ.
    """
    dot, (step, other) = partial(_dot, precision), _indices(len(system))
    inverse = jnp.where(step == other, 1, 0).astype(system.dtype)
    for level in range((len(system) - 1).bit_length()):
        below = jnp.where((step ^ other) >> level == 1, system, 0)
        if level > 0:
            below = dot(dot(inverse, below, 1, 0), inverse, 1, 0)
        inverse = inverse - below
    return inverse


def _indices(size):
    """Returns the number of the row and of the column of each of ``(c, c)`` entries."""
    return (
        jax.lax.broadcasted_iota(jnp.int32, (size, size), 0),
        jax.lax.broadcasted_iota(jnp.int32, (size, size), 1),
    )


def _column(row):
    """Returns the numbers ``(1, c)`` as ``(c, 1)``."""
    step, other = _indices(row.shape[1])
    return jnp.sum(jnp.where(step == other, row, 0), 1, keepdims=True)


def _row(column):
    """Returns the numbers ``(c, 1)`` as ``(1, c)``."""
    step, other = _indices(column.shape[0])
    return jnp.sum(jnp.where(step == other, column, 0), 0, keepdims=True)


def _last_row(column):
    """Returns the last of the numbers ``(c, 1)`` as ``(1, 1)``: GPUs slice nothing."""
    step = jax.lax.broadcasted_iota(jnp.int32, column.shape, 0)
    return jnp.max(jnp.where(step == len(column) - 1, column, 0), 0, keepdims=True)


def _bad(x):
    """Returns 1 for the rows with a number that is not finite, else 0: ``(c, 1)``."""
    # TPUs may compare no bfloat16, and their maximum may ignore NaN.
    x = jnp.abs(x.astype(jnp.promote_types(x.dtype, jnp.float32)))
    return jnp.max(jnp.where(x < jnp.inf, 0.0, 1.0), 1, keepdims=True)


def zero_where(flags: Array, x: Array) -> jax.Array:
    """Returns 0 where flags, which are broadcast, are 1, else ``x``."""
    return jnp.where(jnp.broadcast_to(flags, x.shape) > 0, 0, x)


def mark(flags: Array, x: Array) -> jax.Array:
    """Returns NaN where flags, which are broadcast, are 1, else ``x``."""
    return jnp.where(jnp.broadcast_to(flags, x.shape) > 0, jnp.nan, x)


def mark_dependent(flags: Array, gradient: Array) -> jax.Array:
    """Returns a gradient, NaN in what is NaN unless it is 0, as of `nan_where`."""
    return mark(jnp.where(gradient != 0, flags, 0), gradient)


def _dot(precision, x, y, axis, of_y):
    """Sums the products over an axis of each of two matrices."""
    return jax.lax.dot_general(
        x, y, (((axis,), (of_y,)), ((), ())), precision=precision
    )
