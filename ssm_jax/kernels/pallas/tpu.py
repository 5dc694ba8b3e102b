"""The recurrence for TPUs: blocks of steps in VMEM, one row of states after another.

Steps are sublanes and states are lanes. A tile of steps is computed in registers; the
state is carried in VMEM from one block of steps to the next.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ssm_jax.kernels import parts
from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.pallas import one_step
from ssm_jax.kernels.pallas.devices import shape_struct
from ssm_jax.kernels.parts import Parts
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array, Bool, PyTree

# Steps and states of a block: two blocks of each operand fit in VMEM.
_STEPS, _STATES = 256, 512

# Sublanes and lanes of a register.
_ROWS, _LANES = 8, 128


def block_length(length: int) -> int:
    """Returns the number of steps of a block."""
    return min(_STEPS, round_up(length, _ROWS))


def input_dependent(
    a: Parts, b: Parts, *, reverse: bool, adjoint: bool, has_resets: bool
) -> Parts:
    """Returns all states for decays and inputs ``(b, l, n)``; see `solver`."""
    blocks = _Blocks(b[0], reverse)

    def kernel(a, b, h, state):
        blocks.start_at_zero(state)

        def one_tile(carry, rows, load):
            a_tile, b_tile = load(a), load(b)
            out = {}
            for r in blocks.order:
                a_row, b_row = _row(a_tile, r), _row(b_tile, r)
                carry, out[r] = one_step.input_dependent(
                    carry, a_row, b_row, adjoint=adjoint, has_resets=has_resets
                )
            _store(h, rows, _concatenate(out))
            return carry

        _write(state, blocks.for_each_tile(one_tile, _read(state)))

    return blocks.call(kernel, (a, blocks.steps), (b, blocks.steps))


def time_invariant(
    decay: tuple[Parts, Parts],
    power: Parts,
    b: Parts,
    reset: Bool[Array, "b l"] | None,
    *,
    reverse: bool,
) -> Parts:
    """Returns all states for a decay of each state.

    A block starts from zero. The state before it is added through accurate powers: a
    rounding error that repeats itself accumulates over the steps of a block only.

    Args:
      decay: The decay and its rounding error, ``(1, n)``.
      power: Powers of the decay from 1 to `block_length`.
      b: Inputs, ``(b, l, n)``.
      reset: Steps that do not depend on the one evaluated before them, or None.
      reverse: Whether the last step is evaluated first.
    """
    blocks = _Blocks(b[0], reverse)
    if reverse:
        power = tuple(jnp.flip(part, 0) for part in power)

    def kernel(flags, decay, power, b, h, state):
        blocks.start_at_zero(state)
        hi, lo = map(_read, decay)

        def one_tile(carry, rows, load):
            local, before, _ = carry
            b_tile, locals_, befores = load(b), {}, {}
            for r in blocks.order:
                if flags is not None:
                    keep = flags[0, 0, rows.start + r] == 0
                    local, before = (
                        parts.zero_unless(keep, local),
                        parts.zero_unless(keep, before),
                    )
                local = one_step.time_invariant(local, hi, lo, _row(b_tile, r))
                locals_[r] = local
                befores[r] = before
            all_before = before if flags is None else _concatenate(befores)
            power_tile = tuple(part[rows, :] for part in power)
            out = parts.multiply_carry(power_tile, all_before)
            out = parts.add(_concatenate(locals_), out)
            _store(h, rows, out)
            return local, before, _row(out, blocks.order[-1])

        before = _read(state)
        zeros = tuple(map(jnp.zeros_like, before))
        *_, last = blocks.for_each_tile(one_tile, (zeros, before, zeros))
        _write(state, last)

    return blocks.call(
        kernel,
        (None if reset is None else blocks.pad_flags(reset), blocks.flags),
        (decay, blocks.states),
        (power, blocks.powers),
        (b, blocks.steps),
    )


class _Blocks:
    """The blocks of sequences ``(b, l, n)``, evaluated in order of the steps.

    Attributes:
      order: The rows of a tile in the order of evaluation.
      steps: Blocks of arrays ``(b, l, n)``.
      states: Blocks of arrays ``(1, n)``.
      powers: Blocks of arrays ``(c, n)``, equal for all blocks of steps.
      flags: Blocks of flags from `pad_flags`, one number per step.
    """

    def __init__(self, like, reverse):
        self._like, self._reverse = like, reverse
        rows, length, n = like.shape
        self._size = size = block_length(length)
        states = n if n < _LANES else min(_STATES, round_up(n, _LANES))
        count = pl.cdiv(length, size)
        self._grid = rows, pl.cdiv(n, states), count
        self.order = [*range(_ROWS)]
        if reverse:
            self.order.reverse()

        def at(k):
            return count - 1 - k if reverse else k

        self.steps = pl.BlockSpec((1, size, states), lambda i, j, k: (i, at(k), j))
        self.states = pl.BlockSpec((1, states), lambda i, j, k: (0, j))
        self.powers = pl.BlockSpec((size, states), lambda i, j, k: (0, j))
        self.flags = pl.BlockSpec(
            (1, 1, size), lambda i, j, k: (i, 0, at(k)), memory_space=pltpu.SMEM
        )
        self._state = pltpu.VMEM((1, states), like.dtype)
        # In reverse order the end of the last block is evaluated first.
        self._masked = reverse and length % size != 0

    def start_at_zero(self, state):
        """Sets the state to zero at the first block of a sequence."""

        @pl.when(pl.program_id(2) == 0)
        def _():
            _write(state, tuple(jnp.zeros_like(part[...]) for part in state))

    def for_each_tile(self, one_tile, carry):
        """Folds ``one_tile(carry, rows, load)`` over the tiles of a block.

        ``load(values)`` returns these rows of a block, 0 after the end of the sequence.
        """
        count, block = self._size // _ROWS, pl.program_id(2)
        if self._reverse:
            block = self._grid[2] - 1 - block

        def body(i, carry):
            i = count - 1 - i if self._reverse else i
            rows = pl.ds(pl.multiple_of(_ROWS * i, _ROWS), _ROWS)

            def load(values):
                tile = tuple(part[0, rows, :] for part in values)
                if not self._masked:
                    return tile
                # What is after the end may be anything, also NaN.
                row = jax.lax.broadcasted_iota(jnp.int32, tile[0].shape, 0)
                step = block * self._size + rows.start + row
                return parts.zero_unless(step < self._like.shape[1], tile)

            return one_tile(carry, rows, load)

        return jax.lax.fori_loop(0, count, body, carry)

    def pad_flags(self, flags):
        """Returns flags ``(b, l)`` as numbers, ``(b, 1, l)`` for whole blocks."""
        padded = self._grid[2] * self._size - flags.shape[1]
        return pad_axis(flags.astype(jnp.int32), 1, after=padded)[:, None]

    def call(self, kernel, *operands):
        """Calls ``kernel(*operands, h, state)`` with blocks of values and their specs.

        Returns:
          ``h``, with the parts of the last operand.
        """
        (b, _), like = operands[-1], self._like
        result = shape_struct(like, like.shape)
        (h,) = call(
            kernel,
            self._grid,
            operands,
            [((result,) * len(b), self.steps)],
            [(self._state,) * len(b)],
        )
        return h


def call(
    kernel: Callable[..., None],
    grid: tuple[int, int, int],
    operands: Sequence[tuple[PyTree, pl.BlockSpec]],
    results: Sequence[tuple[PyTree, pl.BlockSpec]],
    scratch: Sequence[PyTree],
) -> Sequence[PyTree]:
    """Calls a kernel on a grid whose last axis is evaluated in order.

    Args:
      kernel: Function of references to blocks of operands, results and scratch.
      grid: Number of sequences, of blocks of states and of blocks of steps.
      operands: Trees of arrays, or None, with the blocks of their leaves.
      results: Trees from `shape_struct`, with the blocks of their leaves.
      scratch: Trees of memory that is kept from one block to the next.

    Returns:
      The results.
    """

    def of_leaves(pairs):
        return [jax.tree.map(lambda _, spec=spec: spec, tree) for tree, spec in pairs]

    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=of_leaves(operands),
        out_specs=of_leaves(results),
        out_shape=[tree for tree, _ in results],
        scratch_shapes=scratch,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=target_platform() != "tpu",
    )(*(tree for tree, _ in operands))


def _row(tile, r):
    return tuple(part[r : r + 1] for part in tile)


def _concatenate(rows):
    """Returns a tile from its rows, parts by number."""
    ordered = [rows[r] for r in range(_ROWS)]
    return tuple(jnp.concatenate(parts_, 0) for parts_ in zip(*ordered, strict=True))


def _store(refs, rows, tile):
    for ref, part in zip(refs, tile, strict=True):
        ref[0, rows, :] = part


def _read(refs):
    return tuple(ref[...] for ref in refs)


def _write(refs, values):
    for ref, value in zip(refs, values, strict=True):
        ref[...] = value


def round_up(size: int, unit: int) -> int:
    """Returns the smallest multiple of a unit that is not less than a size."""
    return -(-size // unit) * unit
