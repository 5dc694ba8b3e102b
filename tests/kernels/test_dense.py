"""Dense recurrences against loops in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels.dense import DenseSSM, block_by_block, n_step_change, step_by_step
from tests.tiers import tiered

WIDTH, N, ROWS = 2, 3, 2
LENGTHS = (1, 2, 16, 17, 127)


def drawn(length):
    """Returns a stable oscillating system, inputs, a state and weights of a loss."""
    rng = np.random.default_rng(length)
    change = rng.normal(size=(WIDTH, N, N))
    change = change - np.swapaxes(change, 1, 2) - 0.3 * np.eye(N)
    change = np.linalg.solve(np.eye(N) - change / 4, change / 2)
    shapes = [(WIDTH, N)] * 2 + [(ROWS, length, WIDTH), (ROWS, WIDTH, N)] * 2
    B, C, *others = (np.float32(rng.normal(size=shape)) for shape in shapes)
    return DenseSSM(np.float32(change), B, C), *others


def definition(system, x, state):
    change, B, C = (np.float64(part) for part in system)
    h, y = np.float64(state), []
    for t in range(x.shape[-2]):
        h = h + np.einsum("dnm,...dm->...dn", change, h) + B * x[..., t, :, None]
        y.append(np.sum(C * h, -1))
    return np.stack(y, -2), h


def assert_near(given, expected, tolerance):
    for one, other in zip(given, expected, strict=True):
        atol = tolerance * np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize("evaluate", [step_by_step, block_by_block])
@pytest.mark.parametrize("length", tiered(LENGTHS, (17,)))
def test_outputs_and_last_state_are_those_of_the_definition(evaluate, length):
    system, x, state, *_ = drawn(length)
    given = jax.jit(evaluate)(system, x, state)
    assert_near(given, definition(system, x, state), 2e-6)
    given = jax.jit(evaluate)(system, x)
    assert_near(given, definition(system, x, 0 * state), 2e-6)


@pytest.mark.full
@pytest.mark.parametrize("length", tiered(LENGTHS[2:], (17,), full=(17,)))
def test_blocks_have_the_gradients_of_steps(length):
    system, x, state, c, c_last = drawn(length)

    def gradients(evaluate):
        def loss(*args):
            y, last = evaluate(*args)
            return jnp.sum(c * y) + jnp.sum(c_last * last)

        return jax.jit(jax.grad(loss, (0, 1, 2)))(system, x, state)

    given, expected = gradients(block_by_block), gradients(step_by_step)
    assert_near(jax.tree.leaves(given), jax.tree.leaves(expected), 1e-5)


@pytest.mark.parametrize("evaluate", [step_by_step, block_by_block])
@pytest.mark.parametrize("lengths", [(0, 17), (16, 5), (8, 3)])
def test_padding_leaves_the_state_unchanged(evaluate, lengths):
    system, x, state, *_ = drawn(17)
    _, last = jax.jit(evaluate)(system, x, state, lengths=np.array(lengths))
    for row, length in enumerate(lengths):
        expected = (
            definition(system, x[row, :length], state[row])[1] if length else state[row]
        )
        assert_near([last[row]], [expected], 2e-6)


def test_reset_zeroes_the_state():
    system, x, state, *_ = drawn(17)
    reset = np.broadcast_to(np.arange(17) == 6, (ROWS, 17))
    y, last = jax.jit(step_by_step)(system, x, state, reset=reset)
    first, _ = definition(system, x[:, :6], state)
    second, h = definition(system, x[:, 6:], 0 * state)
    assert_near([y[:, :6], y[:, 6:], last], [first, second, h], 2e-6)


@pytest.mark.parametrize("steps", [0, 1, 2, 13, 2**20])
def test_small_changes_accumulate_accurately(steps):
    change = np.float32([[[-1e-7, 3e-6], [-3e-6, -1e-7]]])
    given = jax.jit(n_step_change, static_argnums=1)(change, steps)
    expected = np.linalg.matrix_power(np.eye(2) + np.float64(change[0]), steps)
    assert_near(given, [expected - np.eye(2)], 5e-7)


@pytest.mark.full
def test_steps_keep_the_states_between_blocks_only():
    length, width, n = 4096, 2, 64
    system = DenseSSM(jnp.zeros((width, n, n)), *[jnp.ones((width, n))] * 2)

    def loss(system, x):
        return jnp.sum(step_by_step(system, x)[0])

    x = jax.ShapeDtypeStruct((length, width), jnp.float32)
    compiled = jax.jit(jax.grad(loss, (0, 1))).lower(system, x).compile()
    memory = compiled.memory_analysis().temp_size_in_bytes
    assert memory < length * width * n * 4 / 2
