"""Values and gradients are finite over wide ranges of parameters, and accurate."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels.precision import MAX_EXPONENT, bounded_exp, divide, sigmoid
from ssm_jax.recurrences import (
    CES,
    DLR,
    DSS,
    FRU,
    GRU,
    LRU,
    LSTM,
    RNN,
    S4,
    S4D,
    S5,
    SRU,
    BoundedEigenvalues,
    DampedEMA,
    ExponentialSmoothing,
    GatedLinearAttention,
    Nonlinear,
    Recurrence,
    SelectiveSSM,
)
from ssm_jax.types import Method
from tests.recurrences import oracle_rnn
from tests.tiers import tiered

# Short: through the states, whose programs compile fastest.
LENGTH = 8

# One recurrence of each kind, and standard deviations of what is added to parameters.
CASES: dict[str, tuple[Recurrence, tuple[int, ...]]] = {
    "dlr": (DLR(d_state=3), (20, 100)),
    "smoothing_unbounded": (CES(small_change=True, max_modulus=1.0), (20, 100)),
    "smoothing_real": (CES(eigenvalues="real"), (20, 100)),
    "ema": (ExponentialSmoothing(), (20, 100)),
    "damped_ema": (DampedEMA(d_state=3), (20, 100)),
    "dss_softmax": (DSS(d_state=3, kernel="softmax", length=32), (20, 100)),
    "s4d": (S4D(d_state=4), (20, 100)),
    "s4d_bilinear": (
        S4D(
            d_state=4,
            eigenvalue_init="inv",
            discretization="bilinear",
            bidirectional=True,
        ),
        (20, 100),
    ),
    "s4": (S4(d_state=4), (20, 100)),
    "s5_exp": (S5(d_state=4, blocks=1, real_part="exp"), (20, 100)),
    "bounded_lru": (
        BoundedEigenvalues(recurrence=LRU(d_state=3), largest_state=10.0),
        (20, 100),
    ),
    "selective": (SelectiveSSM(d_state=3, dt_rank=2), (20, 100)),
    "gated_attention": (GatedLinearAttention(n_heads=1, d_key=2, rank=2), (20, 100)),
    "rnn": (RNN(d_state=3), (5, 20)),
    "gru": (GRU(d_state=3), (5, 20)),
    "lstm": (LSTM(d_state=2), (5, 20)),
    "fru": (
        FRU(
            frequencies=(0.0, 0.25, 3.0),
            horizon=48,
            d_statistic=2,
            d_feedback=3,
            d_output=3,
        ),
        (5,),
    ),
}


def count(recurrence, scale, *, draws=50, method: Method = "sequential"):
    """Numbers of draws whose values, and whose gradients, are not finite.

    A draw is ``init`` with one key plus ``scale`` times normal numbers, a normal input
    and, if the recurrence has a state, a normal initial state. The gradient is that of
    a sum of outputs and final state, weighted by normal numbers, in all of them.
    """
    rng = np.random.default_rng(0)
    init = recurrence.init(jax.random.key(0), 2)
    params = {
        name: leaf + np.float32(scale * rng.standard_normal((draws, *leaf.shape)))
        for name, leaf in init.items()
    }
    x = rng.standard_normal((draws, LENGTH, 2)).astype(np.float32)
    state = recurrence.initial_state((), 2)
    if state is not None:
        state = normal(rng, (draws,), state)
        if isinstance(recurrence, Nonlinear) and recurrence.tracks_position:
            state[..., -1] = 0  # the number of the first step
    weights = jax.tree.map(
        functools.partial(normal, rng, ()), jax.eval_shape(recurrence.apply, init, x[0])
    )

    def total(params, x, state):
        out = recurrence.apply(params, x, state, method=method)
        weighted = jax.tree.map(jnp.multiply, weights, out)
        return sum(jnp.sum(jnp.real(leaf)) for leaf in jax.tree.leaves(weighted)), out

    argnums = (0, 1) if state is None else (0, 1, 2)
    gradient = jax.vmap(jax.grad(total, argnums, has_aux=True))
    gradients, values = jax.jit(gradient)(params, x, state)
    return n_not_finite(values), n_not_finite(gradients)


def normal(rng, axes, like):
    """Standard normal numbers in the shape of ``like``, with leading axes."""
    drawn = rng.standard_normal((*axes, *like.shape))
    if jnp.iscomplexobj(like):
        drawn = drawn + 1j * rng.standard_normal(drawn.shape)
    return drawn.astype(like.dtype)


def n_not_finite(tree):
    leaves = (np.reshape(leaf, (len(leaf), -1)) for leaf in jax.tree.leaves(tree))
    return np.sum(np.any([~np.isfinite(leaf).all(1) for leaf in leaves], 0))


@pytest.mark.parametrize(
    "name", tiered(list(CASES), ("gru",), full=("smoothing_real", "gru"))
)
def test_values_and_gradients_are_finite(name):
    recurrence, scales = CASES[name]
    for scale in scales:
        assert count(recurrence, scale) == (0, 0), scale


@pytest.mark.full
def test_generating_function_of_s4_is_finite():
    for scale in (20, 100):
        assert count(CASES["s4"][0], scale, method="fft") == (0, 0)


@pytest.mark.full
def test_draws_that_are_not_finite_are_counted():
    unit = SRU(d_statistic=2, d_feedback=3, d_output=3)
    n_values, n_gradients = count(unit, 1e9)
    assert 0 < n_values <= n_gradients


def step_growth(unit, params, length):
    """Bound of the factor by which a step multiplies the sums of a unit.

    It is ``rho = max(a) + max_t |c_t| |W_r| |W_phi|`` as in the docstring of `SRU`,
    with spectral norms.
    """
    named = unit.named(params)
    steps = jnp.arange(length if unit.tracks_position else 1)
    phase = {"theta": params.get("theta", np.zeros(1, np.float32))}
    size = np.linalg.norm(unit.weights(phase, steps), axis=-1).max()
    norms = (np.linalg.norm(each, ord=2) for each in (named.feedback, named.statistic))
    return max(unit.decays) + size * math.prod(norms)


@pytest.mark.full
@pytest.mark.parametrize("method", tiered(["sequential", "associative"], full=1))
@pytest.mark.parametrize("kind", ["sru", "fru"])
def test_units_are_finite_up_to_the_bound_of_their_weights(kind, method):
    length = 32
    sizes: dict[str, Any] = {"d_statistic": 1, "d_feedback": 1, "d_output": 1}
    waves: dict[str, Any] = {"frequencies": (0.0,), "horizon": length}
    unit = SRU(scales=(0.0,), **sizes) if kind == "sru" else FRU(**waves, **sizes)
    init = unit.init(jax.random.key(0), 1)
    x, one = jnp.ones((length, 1)), np.ones((1, 1), np.float32)

    @jax.jit
    def evaluate(params):
        def total(params, x):
            y, state = unit.apply(params, x, method=method)
            return jnp.sum(y), (y, state)

        return jax.value_and_grad(total, (0, 1), has_aux=True)(params, x)

    for log_growth in (60, 130):
        rho = np.exp(log_growth / length)
        weight = rho if kind == "sru" else length * (rho - 1)
        named = unit.letters
        params = dict(init) | {
            named.feedback: one,
            named.statistic: one * np.float32(weight),
        }
        params |= {named.input: one, named.output: one}
        params |= {"theta": np.zeros(1, np.float32)} if kind == "fru" else {}
        given = step_growth(unit, params, length)
        np.testing.assert_allclose(given, rho, rtol=1e-5)
        leaves = jax.tree.leaves(evaluate(params))
        is_finite = all(np.all(np.isfinite(leaf)) for leaf in leaves)
        assert is_finite == (log_growth == 60)


@pytest.mark.full
def test_units_overflow_where_their_equations_do():
    unit = FRU(frequencies=(0.0, 0.25, 3.0), horizon=32, d_feedback=20, d_output=3)
    init = unit.init(jax.random.key(0), 2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 2)).astype(np.float32)
    run, seen = jax.jit(unit.apply), set()
    for scale in np.linspace(3, 9, 30):
        params = {
            name: leaf + np.float32(scale * rng.normal(size=leaf.shape))
            for name, leaf in init.items()
        }
        y, state = run(params, x)
        exact = oracle_rnn.statistics(
            unit, params, np.asarray(x, np.float64)[None], None
        )
        largest = max(np.abs(value).max() for value in exact)
        is_finite = bool(np.all(np.isfinite(y)) and np.all(np.isfinite(state)))
        seen.add(is_finite)
        assert is_finite or largest > 1e36, scale
    assert seen == {True, False}


LOGITS = np.linspace(-20, 20, 41).astype(np.float32)


def exact(function, *logits):
    """Value and derivative by the first argument, in float64."""
    logits = [np.complex128(logit) for logit in logits]
    value = function(logits[0] + 1e-30j, *logits[1:])
    return np.real(value), np.imag(value) / 1e-30


def of_sigmoid(x):
    """The logistic function of complex numbers, accurate for small values."""
    return 1 / (1 + np.exp(-x))


def of_logits(function, *logits):
    """Value and derivative by the first argument, elementwise."""
    one = jax.value_and_grad(function)
    return jax.jit(jax.vmap(one))(*logits)


def check(function, wanted, *logits):
    given = of_logits(function, *logits)
    for value, exactly in zip(given, exact(wanted, *logits), strict=True):
        np.testing.assert_allclose(value, exactly, rtol=1e-5, atol=0)


def test_sigmoid_is_accurate_with_its_derivatives():
    np.testing.assert_array_equal(sigmoid(LOGITS), jax.nn.sigmoid(LOGITS))
    check(sigmoid, of_sigmoid, LOGITS)
    slope = jax.grad(sigmoid)
    check(slope, lambda x: of_sigmoid(x) * of_sigmoid(-x), LOGITS[np.abs(LOGITS) > 1])


def test_simple_smoothing_is_accurate_at_all_logits():
    ema = ExponentialSmoothing()

    def run(logit):
        x = jnp.array([[1.0], [-2.0], [3.0]])
        y, _ = ema.apply({"logit_smoothing": logit[None]}, x)
        return jnp.sum(jnp.array([[1.0], [-0.5], [0.25]]) * y)

    def wanted(logit):
        keep, total, y = of_sigmoid(-logit), 0, 0
        for x, weight in ((1, 1), (-2, -0.5), (3, 0.25)):
            y = of_sigmoid(logit) * x + keep * y
            total = total + weight * y
        return total

    check(run, wanted, LOGITS)

    def log_decay(logit):
        return ema.modes({"logit_smoothing": logit[None]}).log_decay.log_abs[0, 0]

    check(log_decay, lambda logit: -np.log1p(np.exp(logit)), LOGITS)


PAIRS = [grid.ravel() for grid in np.meshgrid(LOGITS[::4], LOGITS[::4])]


@pytest.mark.full
@pytest.mark.parametrize("damping_first", [False, True])
@pytest.mark.parametrize("kind", ["damped_ema", "smoothing_real"])
def test_damped_smoothing_is_accurate_at_all_logits(kind, damping_first):
    def modes(one, other):
        smoothing, damping = (other, one) if damping_first else (one, other)
        if kind == "damped_ema":
            params = {name: jnp.ones((1, 1)) for name in ("expansion", "projection")}
            params |= {"logit_smoothing": smoothing[None, None]}
            params |= {"logit_damping": damping[None, None]}
            of = DampedEMA(d_state=1).modes
        else:
            params = {"gain": jnp.ones(1), "logit_smoothing": smoothing[None]}
            params |= {"logit_damping": damping[None]}
            of = CES(eigenvalues="real").modes
        return of(params | {"feedthrough": jnp.ones(1), "shortcut": jnp.ones(1)})

    def log_abs(one, other):
        return modes(one, other).log_decay.log_abs[0, 0]

    # 1 - sigmoid(a) sigmoid(b) without a difference, where that is small.
    one, other = np.asarray(PAIRS, np.float64)
    a, b = np.exp(-one), np.exp(-other)
    product, left = 1 / ((1 + a) * (1 + b)), (a + b + a * b) / ((1 + a) * (1 + b))
    log_left = np.where(product < 0.5, np.log1p(-product), np.log(left))
    value, slope = of_logits(log_abs, *PAIRS)
    np.testing.assert_allclose(value, log_left, rtol=1e-5)
    np.testing.assert_allclose(slope, -product * a / (1 + a) / left, rtol=1e-5)
    if not damping_first:
        check(lambda a, b: modes(a, b).w[0, 0], lambda a, b: of_sigmoid(a), *PAIRS)


@pytest.mark.full
def test_gates_that_keep_a_state_are_accurate_at_all_logits():
    x = jnp.zeros((1, 1))

    def gru(logit):
        zeros = jnp.zeros((1, 3))
        params = {"input_kernel": zeros, "recurrent_kernel": zeros}
        params["bias"] = jnp.stack([jnp.zeros(()), logit, jnp.zeros(())])
        params["recurrent_bias"] = jnp.zeros(1)
        return GRU(d_state=1).apply(params, x, jnp.ones(1))[1][0]

    def renewed(logit):
        zeros = jnp.zeros((1, 3))
        params = {"input_kernel": zeros, "recurrent_kernel": zeros}
        params["bias"] = jnp.stack([jnp.zeros(()), logit, jnp.ones(())])
        params["recurrent_bias"] = jnp.zeros(1)
        return GRU(d_state=1).apply(params, x, jnp.zeros(1))[1][0]

    def lstm(logit):
        zeros = jnp.zeros((1, 4))
        params = {"input_kernel": zeros, "recurrent_kernel": zeros}
        params["bias"] = jnp.zeros(4).at[1].set(logit)
        unit = LSTM(d_state=1, forget_bias=0.0)
        return unit.apply(params, x, jnp.ones(2))[1][0]

    def attention(logit):
        unit = GatedLinearAttention(n_heads=1, d_key=1, rank=1, temperature=2.0)
        params = dict.fromkeys(unit.init(jax.random.key(0), 1), jnp.ones((1, 1)))
        params["decay_bias"] = logit[None]
        return unit.apply(params, x, jnp.ones((1, 1, 1)))[1][0, 0, 0]

    check(gru, of_sigmoid, LOGITS)
    check(renewed, lambda x: of_sigmoid(-x) * np.tanh(1), LOGITS)
    check(lstm, of_sigmoid, LOGITS)
    check(attention, lambda x: np.sqrt(of_sigmoid(x)), LOGITS)


def test_ordinary_numbers_are_unchanged(key):
    exponent = jnp.linspace(-90, MAX_EXPONENT, 1001)
    np.testing.assert_array_equal(bounded_exp(exponent), jnp.exp(exponent))
    np.testing.assert_array_equal(bounded_exp(exponent + 150) <= np.exp(30.1), True)
    parts = 10 ** jax.random.uniform(key, (4, 1000), minval=-10.0, maxval=4.5)
    one, z = (jax.lax.complex(*parts[i : i + 2]) for i in (0, 2))
    np.testing.assert_array_equal(divide(one, z), one / z)
    wanted = np.complex128(one) / np.complex128(1e22 * z)
    np.testing.assert_allclose(divide(one, 1e22 * z), wanted, rtol=1e-6)
