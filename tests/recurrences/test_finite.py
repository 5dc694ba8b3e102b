"""Values and gradients are finite over wide ranges of parameters, and accurate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import finite
from ssm_jax.kernels.precision import MAX_EXPONENT, bounded_exp, divided, sigmoid
from ssm_jax.recurrences import (
    CES,
    FRU,
    GRU,
    LSTM,
    SRU,
    DampedEMA,
    ExponentialSmoothing,
    GatedLinearAttention,
)
from tests.recurrences import oracle_rnn
from tests.tiers import tiered

# Short: through the states, whose programs compile fastest.
LENGTH = 8

# Of the suite one of each kind; standard deviations of what is added to parameters.
SCALES = {
    "dlr": (20, 100),
    "smoothing_unbounded": (20, 100),
    "smoothing_real": (20, 100),
    "ema": (20, 100),
    "damped_ema": (20, 100),
    "dss_softmax": (20, 100),
    "s4d": (20, 100),
    "s4d_bilinear": (20, 100),
    "s4": (20, 100),
    "s5_exp": (20, 100),
    "bounded_lru": (20, 100),
    "selective": (20, 100),
    "gated_attention": (20, 100),
    "rnn": (5, 20),
    "gru": (5, 20),
    "lstm": (5, 20),
    "fru": (5,),
}


@pytest.mark.parametrize("name", tiered(list(SCALES), ("gru",), full=4))
def test_values_and_gradients_are_finite(name):
    for scale in SCALES[name]:
        found = finite.count(finite.RECURRENCES[name], scale, 50, length=LENGTH)
        assert (found["values"], found["gradients"]) == (0, 0), found


@pytest.mark.full
def test_generating_function_of_s4_is_finite():
    for scale in (20, 100):
        s4 = finite.RECURRENCES["s4"]
        found = finite.count(s4, scale, 50, length=LENGTH, method="fft")
        assert (found["values"], found["gradients"]) == (0, 0), found


@pytest.mark.full
@pytest.mark.parametrize("method", ["sequential", "associative"])
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
        params = init | {named.feedback: one, named.statistic: one * np.float32(weight)}
        params |= {named.input: one, named.output: one}
        params |= {"theta": np.zeros(1, np.float32)} if kind == "fru" else {}
        given = finite.step_growth(unit, params, length)
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
    np.testing.assert_array_equal(divided(one, z), one / z)
    wanted = np.complex128(one) / np.complex128(1e22 * z)
    np.testing.assert_allclose(divided(one, 1e22 * z), wanted, rtol=1e-6)
