"""DLR: initialization, expressiveness and invalid arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ssm_jax.recurrences import DLR, ParamGroup
from tests.bad_inputs import refuses

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

    wanted = [
        np.concatenate([np.zeros((s, 1)), x[: length - s]]) for s in range(length)
    ]
    np.testing.assert_allclose(
        outputs(jnp.eye(length)), np.stack(wanted), rtol=0, atol=1e-5
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
    wanted = np.concatenate([backward[3::-1], forward])
    # The current step is included once, in the forward taps.
    wanted[4] += params["feedthrough"][0]
    run = jax.jit(dlr.apply, static_argnames="method")
    for method in ("sequential", "fft"):
        y, _ = run(params, impulse, method=method)
        np.testing.assert_allclose(y[:, 0], wanted, rtol=0, atol=1e-6)


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
    wanted, _ = jax.jit(whole.apply, static_argnames="method")(params, x, method="fft")
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(steps / scale, wanted / scale, rtol=0, atol=2e-6)


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
    "no_taps": ({"max_kernel_length": 0}, "max_kernel_length", "from 1", 0),
}


@pytest.mark.parametrize(
    ("fields", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_refusal_says_rule_and_value(fields, name, rule, value):
    with refuses(name, value, rule=rule):
        DLR(**fields)
