"""Powers of decays against float64, up to 2**24 steps."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay, decay_powers, n_step_decay, to_log_decay
from ssm_jax.kernels.powers import multiply_decays
from tests.tiers import tiered

RNG = np.random.default_rng(0)
STEPS = np.concatenate(
    [np.arange(130), RNG.integers(0, 2**24, 400), [2**17, 2**20, 2**24 - 1, 2**24]]
).astype(np.int32)

# Edge cases of the angle reduction, angles of many turns, and random angles.
PHASE = np.concatenate(
    [
        [0.0, 1e-30, 1e-8, -1e-3, 1.0, 3.0, 30.0, -1000.0],
        np.multiply([0.25, 0.5, 1.0, -1.0, 2.0], np.pi),
        RNG.uniform(-np.pi, np.pi, 19),
    ]
).astype(np.float32)
PHASE_LO = (PHASE * RNG.uniform(-3e-8, 3e-8, PHASE.shape)).astype(np.float32)
LOG_ABS = np.resize([0.0, -1e-9, -1e-7, -1e-5, -1e-3, -0.5, 1e-7], PHASE.shape)
LOG_ABS = LOG_ABS.astype(np.float32)
LOGS = {
    "modulus": LogDecay(LOG_ABS),
    "phase": LogDecay(LOG_ABS, PHASE),
    "phase_lo": LogDecay(LOG_ABS, PHASE, PHASE_LO),
}
LOGS = jax.tree.map(jnp.asarray, LOGS)
NUMBERS = {
    "circle": np.exp(1j * RNG.uniform(-np.pi, np.pi, 30)).astype(np.complex64),
    "disc": (RNG.uniform(0.9, 1, 30) * np.exp(6j * RNG.random(30))).astype("c8"),
    "near_one": (1 - RNG.uniform(0, 1e-5, 30) + 1e-4j * RNG.random(30)).astype("c8"),
    "axes": np.array([1, -1, 1j, -1j, 0.5, -0.5, 0.5j, -0.5j], np.complex64),
    "tiny": np.array([1e-30, 1e-37j, -1e-20 + 1e-25j, 1e-12], np.complex64),
    "real": np.array([1, -1, 0.999, -0.99999, 0.5, -1e-8, 1.0000001], np.float32),
}


def exact(log, steps):
    """Returns ``lam**l``; the products of float32 are exact in float64."""
    log_abs, *phases = (np.asarray(leaf, float) for leaf in jax.tree.leaves(log))
    steps = np.asarray(steps, float)
    steps = steps[(..., *[None] * log_abs.ndim)]
    modulus = np.exp(log_abs * steps)
    if not phases:
        return modulus
    high, low = (np.exp(1j * phase * steps) for phase in (phases[0], sum(phases[1:])))
    return modulus * high * low


def exact_logarithm(a):
    """Returns the logarithm; squares of float32 and `math.fsum` are exact here."""
    a = a.astype(complex)
    excess = [math.fsum((z.real * z.real, z.imag * z.imag, -1)) for z in a]
    near_one = 0.5 * np.log1p(np.maximum(excess, -0.9))
    log_abs = np.where(np.abs(excess) < 0.5, near_one, np.log(np.abs(a)))
    return LogDecay(log_abs, np.angle(a))


def assert_powers(actual, expected, tolerance=4e-7):
    """Checks errors relative to the maximum of 1 and the power."""
    scale = np.maximum(1, np.abs(expected))
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS.keys())
def test_powers_are_right_up_to_2_to_24_steps(log):
    assert_powers(decay_powers(log, jnp.asarray(STEPS)), exact(log, STEPS))


COMPILED = {
    "arguments": lambda log: jax.jit(decay_powers)(log, STEPS),
    "constant_steps": lambda log: jax.jit(lambda log: decay_powers(log, STEPS))(log),
    "constant_decay": lambda log: jax.jit(lambda steps: decay_powers(log, steps))(
        STEPS
    ),
    "constants": lambda log: jax.jit(lambda: decay_powers(log, STEPS))(),
    "computed_steps": lambda log: jax.jit(
        lambda log: decay_powers(log, jnp.asarray(STEPS) * jnp.int32(1))
    )(log),
    "vmap_decays": lambda log: jax.jit(
        jax.vmap(decay_powers, in_axes=(0, None), out_axes=1)
    )(log, STEPS),
    "vmap_steps": lambda log: jax.jit(jax.vmap(decay_powers, in_axes=(None, 0)))(
        log, STEPS
    ),
}


@pytest.mark.parametrize("evaluate", COMPILED.values(), ids=COMPILED.keys())
def test_compilation_preserves_the_accuracy(evaluate):
    log = LOGS["phase_lo"]
    assert_powers(evaluate(log), exact(log, STEPS))


def test_axes_of_steps_come_before_axes_of_decays():
    log = jax.tree.map(lambda v: v[:6].reshape(2, 3), LOGS["phase"])
    steps = jnp.asarray(STEPS[:20].reshape(4, 5))
    given = jax.jit(decay_powers)(log, steps)
    chex.assert_shape(given, (4, 5, 2, 3))
    assert_powers(given, exact(log, steps))
    assert_powers(jax.jit(decay_powers)(log, steps[1, 2]), given[1, 2])


@pytest.mark.parametrize("a", tiered(NUMBERS, ["disc", "near_one", "tiny"]))
@pytest.mark.parametrize("known", tiered({"argument": False, "constant": True}))
def test_logarithm_holds_the_number_as_it_stands(a, known):
    log = jax.jit(lambda: to_log_decay(a))() if known else jax.jit(to_log_decay)(a)
    wanted = exact_logarithm(a)
    np.testing.assert_allclose(log.log_abs, wanted.log_abs, rtol=3e-7)
    assert log.phase is not None and log.phase_lo is not None
    phase = np.asarray(log.phase, float) + np.asarray(log.phase_lo, float)
    np.testing.assert_allclose(phase, np.angle(a.astype(complex)), atol=2.0**-44)


@pytest.mark.parametrize("a", tiered(NUMBERS, ["disc", "near_one", "tiny"]))
def test_powers_of_numbers_are_those_of_the_numbers(a):
    given = jax.jit(lambda a: decay_powers(to_log_decay(a), STEPS))(a)
    assert_powers(given, exact(exact_logarithm(a), STEPS), 6e-7)


def test_zero_to_the_zero_is_one():
    for zero in (jnp.zeros(1), jnp.zeros(1, jnp.complex64)):
        power = jax.jit(lambda a: decay_powers(to_log_decay(a), np.arange(4)))(zero)
        np.testing.assert_array_equal(power[:, 0], [1, 0, 0, 0])


def test_derivative_at_zero_is_finite():
    def power(a):
        return jnp.real(decay_powers(to_log_decay(a), jnp.arange(5)))

    @jax.jit
    def derivatives(a):
        return jax.jacfwd(power)(a), jax.jacrev(power)(a), jax.hessian(power)(a)

    chex.assert_tree_all_finite(derivatives(jnp.zeros(2)))


@pytest.mark.full
@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev], ids=["fwd", "rev"])
def test_first_and_second_derivatives_of_powers(derivative):
    log, steps = jax.tree.map(lambda v: v[:8], LOGS["phase_lo"]), STEPS[::20]

    def parts(log_abs, phase):
        power = decay_powers(LogDecay(log_abs, phase, log.phase_lo), steps)
        return jnp.sum(jnp.real(power), -1), jnp.sum(jnp.imag(power), -1)

    @jax.jit
    def jacobians(log_abs, phase):
        first = derivative(parts, argnums=(0, 1))
        second = derivative(lambda *args: first(*args)[0][1], argnums=(0, 1))
        return first(log_abs, phase), second(log_abs, phase)

    (real, imag), mixed = jacobians(log.log_abs, log.phase)
    first = steps[:, None] * exact(log, steps)
    scale = np.maximum(1, np.float64(steps))[:, None]
    for given, wanted in (
        (real[0], np.real(first)),
        (real[1], -np.imag(first)),
        (imag[0], np.imag(first)),
        (imag[1], np.real(first)),
    ):
        assert_powers(given / scale, wanted / scale, 1e-6)
    second = steps[:, None] ** 2.0 * exact(log, steps)
    for given, wanted in zip(mixed, (-np.imag(second), -np.real(second)), strict=True):
        diagonal = np.einsum("snn->sn", given)
        assert_powers(diagonal / scale**2, wanted / scale**2, 1e-6)


@pytest.mark.parametrize("a", [NUMBERS["disc"], NUMBERS["real"]], ids=["disc", "real"])
def test_derivative_through_the_number_is_l_a_to_the_l_minus_1(a):
    steps = np.arange(1, 9, dtype=np.int32)
    is_real = not np.iscomplexobj(a)

    def power(a):
        value = decay_powers(to_log_decay(a), steps)
        return jnp.real(value) if is_real else value

    tangent = jax.jit(lambda a: jax.jvp(power, (a,), (jnp.ones_like(a),))[1])(a)
    wanted = steps[:, None] * a.astype(complex) ** (steps[:, None] - 1)
    np.testing.assert_allclose(tangent, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", tiered([1, 2, 362, 4096, 2**17], (1, 362)))
@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS.keys())
def test_n_step_decay_is_as_accurate_as_the_decay(log, count):
    steps = np.arange(2**20 // count, dtype=np.int32)[:50]
    given = jax.jit(lambda log: decay_powers(n_step_decay(log, count), steps))(log)
    assert_powers(given, exact(log, count * steps), 1e-6)


@pytest.mark.parametrize("log", [[], [jnp.ones(1)]], ids=["modulus", "phase"])
def test_n_step_decay_of_zero_is_zero_but_for_no_steps(log):
    zero = LogDecay(jnp.full(1, -jnp.inf), *log)
    for count, power in ((0, 1), (1, 0), (3, 0)):
        log = n_step_decay(zero, count)
        np.testing.assert_array_equal(decay_powers(log, jnp.ones((), jnp.int32)), power)


@pytest.mark.parametrize("one", ["phase", "phase_lo"])
@pytest.mark.parametrize("other", ["phase", "phase_lo"])
def test_multiply_decays_is_the_product(one, other):
    one, other = LOGS[one], jax.tree.map(lambda v: v[::-1], LOGS[other])
    given = jax.jit(lambda *logs: decay_powers(multiply_decays(*logs), STEPS))(
        one, other
    )
    assert_powers(given, exact(one, STEPS) * exact(other, STEPS), 6e-7)


def test_double_precision_stays_double():
    steps = STEPS[STEPS <= 2**17]
    with jax.enable_x64(True):
        log = jax.tree.map(lambda v: jnp.asarray(v, jnp.float64), LOGS["phase_lo"])
        given = decay_powers(log, jnp.asarray(steps))
        assert given.dtype == jnp.complex128
        # A float64 angle of 1000 radians per step has an error of 1e-8 at 2**17.
        assert_powers(given, exact(log, steps), 2e-8)
        number = jnp.asarray([-0.5, 0.25j, 0.0])
        chex.assert_type(to_log_decay(number), jnp.float64)
        cube = decay_powers(to_log_decay(number), jnp.asarray([3]))
        np.testing.assert_allclose(cube[0], number**3, atol=1e-16)


@pytest.mark.full
def test_single_precision_is_as_exact_among_numbers_of_64_bits():
    with jax.enable_x64(True):
        given = decay_powers(LOGS["phase_lo"], jnp.asarray(STEPS, jnp.int64))
    assert_powers(given, exact(LOGS["phase_lo"], STEPS))
