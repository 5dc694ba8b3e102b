"""The recurrence for GPUs: a warpgroup per sequence and 128 states, by Mosaic GPU.

A thread holds one state in its registers. The operands of a group of steps are loaded
while the group before them is computed.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from ssm_jax.kernels import parts
from ssm_jax.kernels.axes import match_varying_axes, pad_axis
from ssm_jax.kernels.pallas import one_step
from ssm_jax.kernels.parts import Parts
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array, Bool

# States of a block, one per thread of a warpgroup.
_STATES = 128

# Steps whose operands are loaded at once, of real and of complex states.
_AT_ONCE = 32, 16

# Steps that a time-invariant decay is multiplied over without its powers.
_STEPS = 64


def block_length(length: int) -> int:
    """Returns the number of steps of a block."""
    return min(_STEPS, length)


def input_dependent(
    a: Parts, b: Parts, *, reverse: bool, adjoint: bool, has_resets: bool
) -> Parts:
    """Returns all states for decays and inputs ``(b, l, n)``; see `solver`."""
    length = b[0].shape[1]

    def kernel(a, b, h):
        row, states = _block()

        def load(first, count):
            at = [_at(first + u, length, reverse) for u in range(count)]
            return [(_load(a, row, t, states), _load(b, row, t, states)) for t in at]

        def steps(first, loaded, carry):
            at = [_at(first + u, length, reverse) for u in range(len(loaded))]
            out = []
            for a_t, b_t in loaded:
                carry, h_t = one_step.input_dependent(
                    carry, a_t, b_t, adjoint=adjoint, has_resets=has_resets
                )
                out.append(h_t)
            for t, h_t in zip(at, out, strict=True):
                _store(h, row, t, states, h_t)
            return carry

        _in_groups(load, steps, length, _at_once(b), _zeros(b))

    return _call(kernel, b, a, b)


def time_invariant(
    decay: tuple[Parts, Parts],
    power: Parts,
    b: Parts,
    reset: Bool[Array, "b l"] | None,
    *,
    reverse: bool,
) -> Parts:
    """Returns all states for a decay of each state, as the kernel of the TPU does."""
    length = b[0].shape[1]
    size = block_length(length)

    def kernel(flags, decay, power, b, h):
        row, states = _block()
        hi, lo = (tuple(part[0, states] for part in value) for value in decay)
        zeros = _zeros(b)

        def load(begin, first, count):
            at = [_at(begin + first + u, length, reverse) for u in range(count)]
            return [
                (_load(b, row, t, states), tuple(p[first + u, states] for p in power))
                for u, t in enumerate(at)
            ]

        def steps(begin, first, loaded, carry):
            local, before, _ = carry
            at = [_at(begin + first + u, length, reverse) for u in range(len(loaded))]
            out = []
            for t, (b_t, power_t) in zip(at, loaded, strict=True):
                if flags is not None:
                    keep = jnp.full(_STATES, flags[row, t] == 0)
                    local, before = (
                        parts.zero_unless(keep, local),
                        parts.zero_unless(keep, before),
                    )
                local = one_step.time_invariant(local, hi, lo, b_t)
                out.append(parts.add(local, parts.multiply_carry(power_t, before)))
            for t, h_t in zip(at, out, strict=True):
                _store(h, row, t, states, h_t)
            return local, before, out[-1]

        def block(begin, count, before):
            carry = zeros, before, zeros
            read, step = partial(load, begin), partial(steps, begin)
            return _in_groups(read, step, count, _at_once(b), carry)[2]

        before = jax.lax.fori_loop(
            0, length // size, lambda k, before: block(k * size, size, before), zeros
        )
        if rest := length % size:
            block(length - rest, rest, before)

    flags = None if reset is None else reset.astype(jnp.int32)
    return _call(kernel, b, flags, decay, power, b)


def interpreted() -> Any:
    """Returns how the kernels are interpreted where there is no GPU, else None."""
    if target_platform() in ("gpu", "cuda"):
        return None
    # From JAX 0.11 on.
    return plgpu.InterpretGPUParams()  # pyright: ignore[reportAttributeAccessIssue]


def _in_groups(load, steps, count, size, carry):
    """Folds ``steps(first, load(first, n), carry)`` over groups of ``n`` steps.

    All groups are of ``size`` steps, but for the last one.
    """
    groups, rest = divmod(count, size)

    def body(k, carry):
        carry, loaded = carry
        # The last group is loaded once more, in vain.
        after = load(jnp.minimum(k + 1, groups - 1) * size, size)
        return steps(k * size, loaded, carry), after

    if groups:
        carry, _ = jax.lax.fori_loop(0, groups, body, (carry, load(0, size)))
    if rest:
        carry = steps(groups * size, load(groups * size, rest), carry)
    return carry


def _block():
    """Returns the sequence and the states of this warpgroup."""
    states = pl.ds(jax.lax.axis_index("states") * _STATES, _STATES)
    return jax.lax.axis_index("sequences"), states


def _at(step, length, reverse):
    return length - 1 - step if reverse else step


def _at_once(values):
    return _AT_ONCE[len(values) - 1]


def _zeros(like):
    return tuple(jnp.zeros(_STATES, part.dtype) for part in like)


def _load(refs, row, t, states):
    return tuple(ref[row, t, states] for ref in refs)


def _store(refs, row, t, states, values):
    for ref, value in zip(refs, values, strict=True):
        ref[row, t, states] = value


def _call(kernel, like, *operands):
    """Calls a kernel with states padded to whole warpgroups."""
    rows, length, n = like[0].shape
    fill = -n % _STATES

    def pad(values):
        if values.dtype == jnp.int32:  # flags
            return values
        return pad_axis(values, -1, after=fill)

    shape = jax.ShapeDtypeStruct((rows, length, n + fill), like[0].dtype)
    (h,) = plgpu.kernel(
        kernel,
        out_type=[(shape,) * len(like)],
        grid=(rows, (n + fill) // _STATES),
        grid_names=("sequences", "states"),
        interpret=interpreted(),
    )(*jax.tree.map(pad, operands))
    # In `shard_map` results of a kernel are not marked as varying, which they are.
    _, h = match_varying_axes(like, h)
    return tuple(part[..., :n] for part in h)
