"""Blocks and slices bound the memory of long sequences and do not change results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import plan
from ssm_jax.recurrences import DLR, S4D, S5
from tests.recurrences.cases import (
    MASK,
    RESET,
    check,
    evaluate_anew,
    expected,
    problem,
    rows,
)
from tests.recurrences.table import ROWS
from tests.tiers import tiered

STATES = ("s5", "s5_bidirectional", "lru")
CONVOLVED = ("s4d", "dlr_prod", "dlr_bidirectional", "s4", "dlr", "dss")

starts = pytest.mark.parametrize("start", tiered([True, False], full=1))


@pytest.fixture
def split(monkeypatch):
    """Returns a function that sets blocks of some steps for a recurrence and rows."""

    def into(size, recurrence, rows, width):
        monkeypatch.setattr(plan, "_LONGEST_FFT", size)
        monkeypatch.setattr(plan, "_FFT_BLOCK", size)
        # Bidirectional recurrences have no states; they are evaluated at once.
        state = recurrence.initial_state((rows,), width)
        bytes_per_step = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        monkeypatch.setattr(plan, "_MIN_BLOCKS", 1)
        monkeypatch.setattr(plan, "_STATE_BYTES", size * bytes_per_step)

    return into


@starts
@pytest.mark.parametrize("name", tiered(STATES, 0, full=["lru"]))
def test_states_by_blocks(name, start, split):
    row, p = ROWS[name], problem(ROWS[name], 7, batch=5, start=start)
    split(3, row.recurrence, len(p.x), p.x.shape[-1])
    given = evaluate_anew(row, p, method="sequential", reset=RESET, mask=MASK)
    check(given, expected(row, p, RESET, MASK))


@starts
@pytest.mark.parametrize("name", tiered(CONVOLVED, 0, full=1))
def test_convolutions_by_blocks(name, start, split):
    row, p = ROWS[name], problem(ROWS[name], 7, batch=5, start=start)
    split(3, row.recurrence, len(p.x), p.x.shape[-1])
    check(evaluate_anew(row, p, method="fft", mask=MASK), expected(row, p, None, MASK))
    check(evaluate_anew(row, p, method="fft"), expected(row, p))


@pytest.mark.parametrize(
    "recurrence", tiered([S4D(d_state=64), S5(d_state=32, blocks=1)], 0, full=1)
)
def test_gradient_holds_the_memory_of_a_block(recurrence, split):
    length, width = 4096, 2

    def memory(size):
        split(size, recurrence, 1, width)

        def total(params, x):
            return jnp.sum(recurrence.apply(params, x)[0] ** 2)

        params = jax.eval_shape(lambda: recurrence.init(jax.random.key(0), width))
        x = jax.ShapeDtypeStruct((1, length, width), jnp.float32)
        compiled = jax.jit(jax.grad(total, (0, 1))).lower(params, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(256) < 0.6 * memory(length)


@pytest.mark.parametrize("name", tiered(["s5", "dlr"], 0, full=["dlr"]))
def test_blocks_in_shard_map(name, split):
    row, p = ROWS[name], problem(ROWS[name], 17)
    split(5, row.recurrence, 1, p.x.shape[-1])
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def loss(params, x, c):
        return jnp.sum(c * row.recurrence.apply(params, x)[0])

    def of_device(params, x, c):
        # The sum over devices is that of the gradient of replicated parameters.
        return jax.grad(loss)(params, x, c)

    same, rows = jax.P(), jax.P("data")
    mapped = jax.shard_map(
        of_device, mesh=mesh, in_specs=(same, rows, rows), out_specs=same
    )
    given = jax.jit(mapped)(p.params, p.x, p.weights[0])
    wanted = jax.jit(jax.grad(loss))(p.params, p.x, p.weights[0])
    for key, value in wanted.items():
        scale = np.abs(value).max()
        np.testing.assert_allclose(given[key], value, rtol=1e-3, atol=1e-4 * scale)


@rows(fast=(), full=("s5", "dss_softmax"))
def test_slices_of_the_modes_change_nothing(row, monkeypatch):
    p = problem(row, 7, batch=5, start=True)
    # Two modes per slice, three or six in total: one slice may be padded.
    monkeypatch.setattr(BOUND, 2 * p.x.size)

    given = evaluate_anew(row, p, reset=RESET, mask=MASK, method="sequential")
    check(given, expected(row, p, RESET, MASK))


BOUND = "ssm_jax.kernels.plan.STATES_AT_ONCE"


@pytest.mark.parametrize("method", tiered(["sequential", "associative"], 0, full=1))
def test_bound_holds_the_memory_of_the_gradient(method, monkeypatch):
    n, length, width = 512, 512, 4
    dlr = DLR(d_state=n)
    all_states = length * width * n * jnp.dtype(jnp.complex64).itemsize

    def memory(bound):
        monkeypatch.setattr(BOUND, bound)

        def total(params, x):
            return jnp.sum(dlr.apply(params, x, method=method)[0])

        params = jax.eval_shape(lambda: dlr.init(jax.random.key(0), width))
        x = jax.ShapeDtypeStruct((length, width), jnp.float32)
        compiled = jax.jit(jax.grad(total, (0, 1))).lower(params, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(n * length * width) >= all_states
    assert memory(n * length * width // 64) < all_states / 8
