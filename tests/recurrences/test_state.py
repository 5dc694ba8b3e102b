"""Passing the final state to the next call is the same as a single call."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.recurrences.cases import (
    check,
    evaluation,
    expected,
    problem,
    rows,
)

# Splits after the first step, inside, and before the last; one method per part.
PIECES = [(0, 1, "fft"), (1, 5, "chunked"), (5, 7, "sequential")]


@rows(directions=(1,), fast=(), full=("gru", "s4"))
def test_state_continues_the_sequence(row):
    p = problem(row, 7, start=True)

    def in_pieces(params, x, state):
        y = []
        for start, stop, method in PIECES:
            method = method if method in row.methods else row.methods[-1]
            piece, state = row.recurrence.apply(
                params, x[:, start:stop], state, method=method
            )
            y.append(piece)
        return jnp.concatenate(y, 1), state

    check(jax.jit(evaluation(in_pieces))(*p), expected(row, p))


@rows(
    directions=(1,),
    fast=("selective",),
    full=("dlr", "selective", "gru", "rg_lru"),
)
def test_decoding_gives_the_sequence_token_by_token(row):
    p = problem(row, 7, start=True)

    def decode(params, x, state):
        def step(state, token):
            y, state = row.recurrence.apply(params, token[:, None], state)
            return state, y[:, 0]

        state, y = jax.lax.scan(step, state, jnp.swapaxes(x, 0, 1))
        return jnp.swapaxes(y, 0, 1), state

    check(jax.jit(evaluation(decode))(*p), expected(row, p))


@rows(directions=(1,), fast=(), full=("s4", "selective"))
def test_initial_state_is_a_fresh_start(row):
    p = problem(row, 7)
    start = row.recurrence.initial_state((2,), row.width)
    run = jax.jit(row.recurrence.apply)
    given = run(p.params, p.x, start)
    chex.assert_trees_all_equal_shapes_and_dtypes(given[1], start)
    assert_close(given, run(p.params, p.x), 1e-6)


@rows(directions=(1,))
def test_batch_axes_of_a_state_come_first(row):
    one = row.recurrence.initial_state((), row.width)
    many = row.recurrence.initial_state((3, 2), row.width)
    spread = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (3, 2, *leaf.shape)), one)
    chex.assert_trees_all_equal(many, spread)


@rows(directions=(1,), fast=(), full=("s4", "selective"))
def test_a_start_on_padding_behind_the_data_holds_for_the_next_piece(row):
    p = problem(row, 7)
    mask = np.array([[1, 1, 1, 0, 1, 1, 1]] * 2, bool)
    reset = np.array([[0, 0, 0, 1, 0, 0, 0]] * 2, bool)

    @jax.jit
    def run(params, x, state, reset, mask):
        return row.recurrence.apply(params, x, state, reset=reset, mask=mask)

    whole, last = run(p.params, p.x, None, reset, mask)
    left, state = run(p.params, p.x[:, :4], None, reset[:, :4], mask[:, :4])
    right, state = run(p.params, p.x[:, 4:], state, reset[:, 4:], mask[:, 4:])
    assert_close((np.concatenate([left, right], 1), state), (whole, last), 1e-5)


@rows(
    directions=(2,),
    fast=("dlr_bidirectional",),
    full=("dlr_bidirectional", "s4_bidirectional"),
)
def test_two_directions_take_and_give_no_state(row):
    p = problem(row, 7)
    assert row.recurrence.initial_state((2,), row.width) is None
    _, last = jax.jit(row.recurrence.apply)(p.params, p.x)
    assert last is None
    with refuses("state", rule="None"):
        row.recurrence.apply(p.params, p.x, jnp.zeros((2, row.width, 3), jnp.complex64))
