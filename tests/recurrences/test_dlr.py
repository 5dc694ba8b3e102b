"""DLR: initialization, expressiveness, long sequences and invalid arguments."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.signal import lfilter

from ssm_jax.recurrences import DLR, ParamGroup, convolution_kernel
from tests.bad_inputs import refuses
from tests.tiers import tiered

WIDTH, N = 16, 512
PARAMS = {
    "dlr": ({}, {"phase", "w_re", "w_im"}),
    "prod": ({"readout": "prod"}, {"phase", "w_re", "w_im"}),
    "real": ({"eigenvalues": "real"}, {"w_re"}),
    "bidirectional": (
        {"bidirectional": True},
        {"phase", "w_re", "w_im", "w_backward_re", "w_backward_im"},
    ),
    "bidirectional_real": (
        {"bidirectional": True, "eigenvalues": "real"},
        {"w_re", "w_backward_re"},
    ),
    "unit": ({"eigenvalues": "unit"}, {"phase", "w_re", "w_im"}),
    "unit_real_weights": (
        {"eigenvalues": "unit", "real_weights": True},
        {"phase", "w_re"},
    ),
    "cut": ({"max_kernel_length": 8}, {"phase", "w_re", "w_im"}),
}


@pytest.fixture
def params(key):
    return DLR(d_state=N, dt_min=1e-3, dt_max=0.1, bidirectional=True).init(key, WIDTH)


@pytest.mark.parametrize(("options", "names"), PARAMS.values(), ids=PARAMS.keys())
def test_parameters_and_their_groups_are_those_of_the_variant(options, names, key):
    dlr = DLR(d_state=N, lr_multiplier=0.5, **options)
    params = jax.eval_shape(lambda: dlr.init(key, WIDTH))
    if dlr.eigenvalues != "unit":
        names = names | {"sqrt_decay"}
    shapes = dict.fromkeys(names, (WIDTH, N)) | {"feedthrough": (WIDTH,)}
    if "sqrt_decay" in names:
        shapes["sqrt_decay"] = (N,)
    if "phase" in names:
        shapes["phase"] = (N,)
    assert {name: leaf.shape for name, leaf in params.items()} == shapes
    group = ParamGroup(weight_decay=False, lr_multiplier=0.5)
    assert dlr.groups() == dict.fromkeys(names, group)


def follows(sample, distribution):
    """Whether a sample follows a distribution, by the Kolmogorov-Smirnov test."""
    return stats.kstest(np.ravel(sample), distribution).pvalue > 0.01


def test_twice_the_decay_rate_is_log_uniform_in_its_range(params):
    dt = 2 * np.float64(params["sqrt_decay"]) ** 2
    low, high = np.log([1e-3, 0.1])
    assert np.all((dt > 0.999e-3) & (dt < 0.1001))
    assert follows(np.log(dt), stats.uniform(low, high - low).cdf)


def test_equal_bounds_give_all_modes_one_rate(key):
    params = DLR(d_state=N, dt_min=1e-5, dt_max=1e-5).init(key, 1)
    np.testing.assert_allclose(params["sqrt_decay"], np.sqrt(5e-6), rtol=1e-6)


def test_phases_are_spread_evenly_over_the_circle(params):
    circle = np.float32([2 * np.pi * n / N for n in range(N)])
    np.testing.assert_array_equal(params["phase"], circle)


def test_weights_are_normal_of_deviation_one_over_n(params):
    names = ("w_re", "w_im", "w_backward_re", "w_backward_im")
    weights = np.stack([params[name].ravel() for name in names])
    for name, weight in zip(names, weights, strict=True):
        assert follows(weight * N, "norm"), name
    np.testing.assert_allclose(np.corrcoef(weights), np.eye(4), rtol=0, atol=0.05)


def test_feedthrough_is_standard_normal(key):
    feedthrough = DLR(d_state=1).init(key, 2000)["feedthrough"]
    assert follows(feedthrough, "norm")


@pytest.mark.full
def test_one_mode_for_every_lag_makes_every_shift():
    length = 64
    dlr = DLR(d_state=length, dt_min=1e-9, dt_max=1e-9)
    params = dlr.init(jax.random.key(0), 1)
    x = np.random.default_rng(0).normal(size=(length, 1)).astype(np.float32)

    @jax.jit
    @jax.vmap
    def outputs(kernel):
        # Without decay the modes are a Fourier basis.
        w = jnp.fft.fft(kernel) / length
        solved = {"w_re": jnp.real(w)[None], "w_im": jnp.imag(w)[None]}
        none = {"feedthrough": jnp.zeros(1)}
        return dlr.apply(params | solved | none, x)[0]

    expected = [
        np.concatenate([np.zeros((s, 1)), x[: length - s]]) for s in range(length)
    ]
    np.testing.assert_allclose(
        outputs(jnp.eye(length)), np.stack(expected), rtol=0, atol=1e-5
    )


@pytest.mark.full
def test_backward_taps_meet_only_what_comes_after():
    dlr = DLR(d_state=4, bidirectional=True)
    params = dlr.init(jax.random.key(0), 1)
    lam = np.exp(-(np.float64(params["sqrt_decay"]) ** 2) + 1j * params["phase"])
    impulse = np.zeros((9, 1), np.float32)
    impulse[4] = 1

    def taps(name):
        w = params[f"{name}_re"] + 1j * params[f"{name}_im"]
        return np.real(lam ** np.arange(5)[:, None] @ w[0])

    forward, backward = taps("w"), taps("w_backward")
    expected = np.concatenate([backward[3::-1], forward])
    # The current step is included once, in the forward taps.
    expected[4] += params["feedthrough"][0]
    run = jax.jit(dlr.apply, static_argnames="method")
    for method in ("sequential", "fft"):
        y, _ = run(params, impulse, method=method)
        np.testing.assert_allclose(y[:, 0], expected, rtol=0, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("bidirectional", [False, True])
def test_cut_kernel_is_the_whole_one_for_short_sequences_and_ends(bidirectional):
    options = {"d_state": 8, "readout": "prod", "bidirectional": bidirectional}
    whole, cut = DLR(**options), DLR(**options, max_kernel_length=16)
    params = whole.init(jax.random.key(0), 1)
    impulse = np.zeros((64, 1), np.float32)
    impulse[31] = 1
    (all_taps, _), (taps, _) = (jax.jit(r.apply)(params, impulse) for r in (whole, cut))
    lag = np.arange(64) - 31
    kept = (lag < 16) & (lag >= (-16 if bidirectional else 0))
    np.testing.assert_allclose(taps, np.where(kept[:, None], all_taps, 0), atol=1e-6)
    short = impulse[24:40]
    both = (jax.jit(r.apply)(params, short)[0] for r in (whole, cut))
    np.testing.assert_allclose(*both, rtol=0, atol=1e-6)


@pytest.mark.full
def test_product_is_evaluated_step_by_step_from_the_last_inputs(key):
    whole = DLR(d_state=64, readout="prod")
    cut = DLR(d_state=64, readout="prod", max_kernel_length=40)
    params = whole.init(key, 3)
    # Weights of deviation 1 / n would make the kernel as small as rounding errors.
    params |= {name: 64 * params[name] for name in ("w_re", "w_im")}
    x = jax.random.normal(key, (40, 3))
    state = cut.initial_state((), 3)
    assert whole.initial_state((), 3).shape == (3, 64 * 65 // 2)
    assert state.shape == (39, 3)

    def one_step(state, x):
        y, state = cut.apply(params, x[None], state)
        return state, y[0]

    _, steps = jax.jit(lambda: jax.lax.scan(one_step, state, x))()
    expected, _ = jax.jit(whole.apply, static_argnames="method")(
        params, x, method="fft"
    )
    scale = np.abs(expected).max()
    np.testing.assert_allclose(steps / scale, expected / scale, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("method", "reset"), [("associative", None), ("chunked", None), ("fft", True)]
)
def test_methods_that_a_cut_kernel_lacks_are_refused(method, reset, key):
    dlr = DLR(d_state=2, max_kernel_length=3)
    reset = reset and np.ones(5, bool)
    with refuses("method", f"got {method!r}", rule="'sequential'"):
        dlr.apply(dlr.init(key, 1), np.ones((5, 1)), reset=reset, method=method)


REFUSALS = {
    "d_state": ({"d_state": 0}, "d_state", "positive", 0),
    "dt_order": ({"dt_min": 0.2, "dt_max": 0.1}, "dt_min", "(0, dt_max]", 0.2),
    "dt_sign": ({"dt_min": 0.0}, "dt_min", "(0, dt_max]", 0.0),
    "prod_real": (
        {"readout": "prod", "eigenvalues": "real"},
        "readout",
        "'real'",
        "'prod'",
    ),
    "sum_real": (
        {"readout": "sum", "eigenvalues": "real"},
        "readout",
        "'real'",
        "'sum'",
    ),
    "no_taps": ({"max_kernel_length": 0}, "max_kernel_length", "at least 1", 0),
}


@pytest.mark.parametrize(
    ("fields", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_refusal_says_rule_and_value(fields, name, rule, value):
    with refuses(name, value, rule=rule):
        DLR(**fields)


LENGTH = 131_072
LONG = {"dt_min": 1e-5, "dt_max": 1e-2}
READOUTS = {
    "real": DLR(d_state=8, **LONG),
    "prod": DLR(d_state=4, **LONG, readout="prod"),
}
METHODS = [
    "fft",
    pytest.param("chunked", marks=pytest.mark.full),
    pytest.param("sequential", marks=pytest.mark.nightly),
    pytest.param("associative", marks=pytest.mark.nightly),
]


def exact_modes(dlr, params):
    """Decays and weights in float64, both ``(n,)``."""
    log_abs, phase = (
        -(np.float64(params["sqrt_decay"]) ** 2),
        np.float64(params["phase"]),
    )
    w = np.complex128(params["w_re"] + 1j * params["w_im"])[0]
    if dlr.readout == "real":
        return np.exp(log_abs + 1j * phase), w
    lam = np.exp(np.add.outer(log_abs, log_abs) + 1j * np.add.outer(phase, phase))
    return lam.ravel(), -0.5j * np.outer(w, w).ravel()


@pytest.mark.full
@pytest.mark.parametrize("dlr", tiered(READOUTS, full=1))
@pytest.mark.parametrize("method", METHODS)
def test_evaluation_of_a_long_sequence_is_right(dlr, method):
    params = dlr.init(jax.random.key(0), 1)
    x = np.random.default_rng(0).normal(size=(LENGTH, 1)).astype(np.float32)
    lam, w = exact_modes(dlr, params)
    inputs = x[:, 0].astype(complex)
    states = (
        w_n * lfilter([1], [1, -a], inputs) for a, w_n in zip(lam, w, strict=True)
    )
    expected = sum(states).real + np.float64(params["feedthrough"]) * x[:, 0]
    y, _ = jax.jit(dlr.apply, static_argnames="method")(params, x, method=method)
    np.testing.assert_allclose(
        y[:, 0], expected, rtol=0, atol=2e-5 * np.abs(expected).max()
    )


@pytest.mark.full
@pytest.mark.parametrize("dlr", READOUTS.values(), ids=READOUTS.keys())
def test_convolution_kernel_of_a_million_steps_is_right(dlr):
    params = dlr.init(jax.random.key(0), 1)
    lam, w = exact_modes(dlr, params)
    log_lam, steps = np.log(lam), np.arange(2**20)
    expected = sum(
        w_n * np.exp(log * steps) for log, w_n in zip(log_lam, w, strict=True)
    )
    given = jax.jit(lambda params: convolution_kernel(dlr.modes(params), 2**20))(params)
    np.testing.assert_allclose(
        given[0], expected.real, rtol=0, atol=2e-6 * np.abs(expected.real).max()
    )


OPTIONS = {"readout": "prod", "eigenvalues": "unit", "phase_init": "coarse_fine"}


@pytest.mark.parametrize("n", [2, 16, 17])
def test_sums_of_coarse_and_fine_phases_are_spread_evenly(n, key):
    phase = np.float64(DLR(d_state=n, **OPTIONS).init(key, 1)["phase"])
    coarse, fine = phase[: n // 2], phase[n // 2 :]
    sums = np.sort(np.add.outer(coarse, fine).ravel() % (2 * np.pi))
    gaps = np.diff(sums, append=sums[0] + 2 * np.pi)
    np.testing.assert_allclose(gaps, 2 * np.pi / (n // 2 * (n - n // 2)), rtol=1e-4)


@pytest.mark.parametrize("lag", [0, 37, 255])
def test_kernel_of_n_squared_over_4_taps_can_be_a_single_tap(lag, key):
    dlr = DLR(d_state=32, **OPTIONS)
    params = dlr.init(key, 1)
    # Re k is a comb of the coarse phases, and Im k a peak of the fine ones, which is 0
    # at the other teeth.
    scale = np.repeat([1, 1j], 16) / 16
    w = scale * np.exp(-1j * np.float64(params["phase"]) * lag)
    params |= {"w_re": jnp.float32(w.real)[None], "w_im": jnp.float32(w.imag)[None]}
    # float32 phases are off by 2e-7, at the last lag by 6e-5.
    length = 16 * 16
    kernel = jax.jit(lambda p: convolution_kernel(dlr.modes(p), length))(params)
    np.testing.assert_allclose(kernel[0], np.arange(length) == lag, rtol=0, atol=2e-5)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}], ids=str)
def test_comb_is_one_factor_of_a_kernel_of_zero(options, key):
    n, length = 32, 200
    dlr = DLR(d_state=n, weight_init="comb", **OPTIONS, **options)
    params = dlr.init(key, 3)
    factor = dataclasses.replace(dlr, readout="real", weight_init="normal")
    real = convolution_kernel(factor.modes(params), length)
    np.testing.assert_allclose(
        real[0], np.arange(length) % (n // 2) == 0, rtol=0, atol=2e-5
    )
    kernel = convolution_kernel(dlr.modes(params), length)
    np.testing.assert_allclose(kernel, 0, rtol=0, atol=2e-5)


def test_one_tap_is_learned_from_a_comb(key):
    dlr = DLR(d_state=32, weight_init="comb", **OPTIONS)
    params = dlr.init(key, 1)
    target = np.arange(256) == 5 * 16

    def loss(weights):
        kernel = convolution_kernel(dlr.modes(params | weights), 256)
        return jnp.sum(jnp.square(kernel - target))

    weights = {name: params[name] for name in ("w_re", "w_im")}
    optimizer = optax.adam(optax.cosine_decay_schedule(6.4 / 32 * 1e-2, 400))
    state = optimizer.init(weights)

    @jax.jit
    def step(weights, state):
        value, gradient = jax.value_and_grad(loss)(weights)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, value

    for _ in range(400):
        weights, state, value = step(weights, state)
    assert value < 1e-2  # 1 for a kernel of zero.


@pytest.mark.parametrize("missing", ["phase_init", "readout"])
def test_comb_without_a_product_of_phases_is_refused(missing):
    options = {name: value for name, value in OPTIONS.items() if name != missing}
    with refuses("weight_init", "comb", rule="'normal'"):
        DLR(d_state=4, weight_init="comb", **options)


def test_phases_have_a_rate_of_their_own():
    groups = DLR(lr_multiplier=0.5, phase_lr_multiplier=0.1).groups()
    rates = {name: group.lr_multiplier for name, group in groups.items()}
    assert rates == {"phase": 0.05, "sqrt_decay": 0.5, "w_re": 0.5, "w_im": 0.5}


def test_one_phase_cannot_be_both():
    with refuses("d_state", 1, rule="at least 2"):
        DLR(d_state=1, phase_init="coarse_fine")
