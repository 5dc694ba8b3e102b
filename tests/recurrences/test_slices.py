"""The bound on simultaneous states limits memory and does not change results."""

import jax
import jax.numpy as jnp
import pytest

from ssm_jax.recurrences import DLR
from tests.recurrences.cases import (
    MASK,
    RESET,
    check,
    evaluate_anew,
    expected,
    problem,
    rows,
)


@rows(fast=(), full=("dlr", "s5", "dss_softmax"))
def test_slices_of_the_modes_change_nothing(row, monkeypatch):
    p = problem(row, 7, batch=5, start=True)
    # Two modes per slice, three or six in total: one slice may be padded.
    monkeypatch.setattr(BOUND, 2 * p.x.size)

    given = evaluate_anew(row, p, reset=RESET, mask=MASK, method="sequential")
    check(given, expected(row, p, RESET, MASK))


BOUND = "ssm_jax.kernels.plan.STATES_AT_ONCE"


@pytest.mark.full
@pytest.mark.parametrize("method", ["sequential", "associative"])
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
