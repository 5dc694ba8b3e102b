"""Nonlinear recurrences: numbers of parameters, and parallel evaluation."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from ssm_jax.kernels import linear_recurrence
from ssm_jax.recurrences import FRU, GRU, LSTM, RNN, SRU, log_spaced
from ssm_jax.recurrences.fru import rotating
from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.tiers import tiered


def fru(length, n=20, **sizes):
    """The published unit for sequences of one length, with fewer frequencies."""
    return FRU(frequencies=log_spaced(n, float(length)), horizon=length, **sizes)


def scaled(params, by):
    return {k: by * v if v.ndim == 2 else v for k, v in params.items()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("unit", "d_in", "wanted"),
    [
        (FRU(frequencies=log_spaced(60, 784.0), horizon=784), 1, 158_950 - 2010),
        (FRU(frequencies=log_spaced(40, 784.0), horizon=784), 1, 106_930 - 2010),
        (SRU(), 1, 274_670 - 2010),
        (LSTM(), 1, 163_610 - 2010),
        (RNN(), 1, 42_410 - 2010),
        (FRU(frequencies=(0.0,), horizon=300, d_output=128), 128, 4_217 - 258),
        (SRU(d_output=128), 128, 226_246 - 258),
    ],
    ids=["fru_60", "fru_40", "sru", "lstm", "rnn", "fru_imdb", "sru_imdb"],
)
def test_parameter_counts_are_the_published_ones(unit, d_in, wanted, key):
    """Tables 1 and 3, without the output layer."""
    found = sum(leaf.size for leaf in unit.init(key, d_in).values())
    assert found == wanted


def test_published_frequencies():
    found = log_spaced(60, 784.0)
    assert len(found) == 60
    np.testing.assert_allclose(
        found[:4], [0, 0.25, 0.28722507692972904, 0.329992979269155]
    )
    np.testing.assert_allclose(found[-1], 784)


@pytest.mark.parametrize(
    ("length", "by"),
    tiered(
        [(1, 1), (28, 1), (2, 1), (176, 1), (176, 2), (176, 4), (784, 2), (4096, 1)],
        fast=0,
        full=0,
        unpack=True,
    ),
)
def test_fru_in_parallel_is_the_fru(length, by, key):
    unit = fru(length, d_statistic=4, d_output=8)
    params = scaled(unit.init(key, 2), by)
    # With zero bias, sums of zero are at the point where a ReLU has no derivative.
    params |= {
        k: 0.1 * jax.random.normal(key, v.shape)
        for k, v in params.items()
        if k.startswith("b_")
    }
    x = jax.random.normal(key, (2, length, 2))

    def run(method):
        def loss(params, x):
            y, state, sweeps = unit.solve(params, x, method=method)
            return jnp.sum(jnp.sin(y)), (y, state, sweeps)

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(params, x)

    (_, (y, state, _)), grads = run("sequential")
    for method in ("associative", "fft"):
        (_, (found, last, sweeps)), of_found = run(method)
        assert sweeps.converged
        assert sweeps.iterations <= 20
        assert_close((found, last), (np.asarray(y), np.asarray(state)), 1e-5)
        assert_close(of_found, jax.tree.map(np.asarray, grads), 1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("unit", "contracts"),
    [
        (fru(176, d_statistic=4, d_output=8), True),
        (SRU(d_statistic=8, d_feedback=4, d_output=8), True),
        (GRU(d_state=8), False),
    ],
    ids=["fru", "sru", "gru"],
)
def test_trained_weights_are_solved_in_parallel(unit, contracts, key):
    """Weights after 200 steps of Adam on the next value of a mixture of sines.

    After them 17 sweeps solve an FRU, 14 an SRU. A GRU, which then hardly turns what
    it has, would need more than are allowed, and is stepped through; with the damping
    that is found on the way 66 solve it.
    """
    t = jnp.arange(177) / 176
    at, of = jax.random.uniform(key, (2, 4, 3, 1), maxval=10)
    curves = jnp.mean(jnp.sin(2 * jnp.pi * (of * t + at)), 1)[..., None]
    x, ahead = curves[:, :-1], curves[:, 1:]
    adam = optax.adam(1e-2)

    def total(params, method):
        of_unit, readout = params
        y, last = unit.apply(of_unit, x, method=method)
        return jnp.mean((y @ readout - ahead) ** 2), (y, last)

    evaluate = jax.value_and_grad(total, has_aux=True)

    def step(carry, _):
        params, state = carry
        (loss, _), grads = evaluate(params, "sequential")
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(params, updates), state), loss

    readout = 0.3 * jax.random.normal(key, (unit.d_out(1), 1))
    start = jax.jit(unit.init, static_argnums=1)(key, 1), readout
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, length=200))
    (params, _), losses = run((start, adam.init(start)))
    assert losses[-1] < losses[0] * 2 / 3

    run = jax.jit(evaluate, static_argnums=1)
    ((_, wanted), of_wanted), ((_, found), of_found) = (
        run(params, method) for method in ("sequential", "associative")
    )
    assert_close(found, jax.tree.map(np.asarray, wanted), 1e-5)
    assert_close(of_found, jax.tree.map(np.asarray, of_wanted), 1e-4)

    @functools.partial(jax.jit, static_argnums=0)
    def stats(damping):
        options = {"method": "associative", "max_iterations": 120}
        return unit.solve(params[0], x, **options, damping=damping)[2]

    assert stats(0.0).converged == contracts
    assert stats(None).converged


@pytest.mark.nightly
def test_weights_beyond_all_sweeps_are_stepped_through(key):
    unit = fru(64, d_statistic=4, d_output=8)
    params = scaled(unit.init(key, 2), 40)
    x = jax.random.normal(key, (2, 64, 2))
    y, state, _ = unit.solve(params, x, method="sequential")
    found, last, sweeps = unit.solve(params, x, method="associative", max_iterations=10)
    assert not sweeps.converged
    chex.assert_tree_all_finite((y, state))
    assert_close((found, last), (np.asarray(y), np.asarray(state)), 1e-6)


@pytest.mark.full
def test_sums_of_waves_are_a_recurrence_in_rotating_frames(key):
    unit = fru(100, n=5)
    params = unit.init(key, 1)
    s = jax.random.normal(key, (100,))
    steps = jnp.arange(100)
    sums = jnp.cumsum(unit.weights(params, steps) * s[:, None], 0)
    entering = jnp.broadcast_to(s[:, None], (100, 5)).astype(jnp.complex64)
    turns = np.asarray(unit.frequencies) * np.arange(100)[:, None] / unit.horizon
    back = np.exp(2j * np.pi * (turns + np.asarray(params["theta"]))) / unit.horizon
    for method in ("associative", "fft"):
        v, _ = linear_recurrence(rotating(unit), entering, method=method)
        assert_close(np.real(back * v), np.asarray(sums), 3e-6)


@pytest.mark.full
def test_held_zero_frequency_remembers_one_step(key):
    unit = FRU(frequencies=(0.0, 1.0), horizon=9, d_statistic=2, d_feedback=0)
    params = unit.init(key, 1)
    x = jax.random.normal(key, (9, 1))
    _, state = unit.apply(params, x)
    _, last = unit.apply(params, x[-1:])
    np.testing.assert_allclose(state[:2], last[:2], rtol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("by", tiered([1, 3], full=1))
def test_gru_in_parallel_is_the_gru_at_10000_steps(by, key):
    unit = GRU(d_state=4)
    params = scaled(unit.init(key, 3), by)
    x = jax.random.normal(key, (1, 10_000, 3))
    run = jax.jit(unit.solve, static_argnames=("method", "max_iterations"))
    y, state, _ = run(params, x, method="sequential")
    found, last, sweeps = run(params, x, method="chunked", max_iterations=100)
    # Weights three times as large are close to chaos: whether the iterations converge
    # depends on rounding. If they do not, the result is that of the sequential method.
    assert sweeps.converged or by > 1
    assert_close((found, last), (np.asarray(y), np.asarray(state)), 1e-5)


@pytest.mark.parametrize(
    ("activation", "function"),
    tiered(
        {
            "tanh": ("tanh", jnp.tanh),
            "sigmoid": ("sigmoid", nn.sigmoid),
            "identity": ("identity", lambda x: x),
        },
        ["identity"],
        full=["identity", "tanh"],
        unpack=True,
    ),
)
def test_rnn_is_that_of_flax(activation, function, key):
    x = jax.random.normal(key, (2, 11, 3))
    h = jax.random.normal(key, (2, 4))
    rnn = RNN(d_state=4, activation=activation)
    params = rnn.init(key, 3) | {"bias": jnp.arange(4.0)}
    cell = {
        "i": {"kernel": params["input_kernel"], "bias": params["bias"]},
        "h": {"kernel": params["recurrent_kernel"]},
    }
    net = nn.RNN(nn.SimpleCell(4, activation_fn=function))
    wanted = net.apply({"params": {"cell": cell}}, x, initial_carry=h)
    for method in ("sequential", "associative"):
        y, last, sweeps = rnn.solve(params, x, h, method=method)
        assert_close((y, last), (np.asarray(wanted), np.asarray(wanted[:, -1])), 1e-6)
        assert sweeps.converged


def test_unknown_activation_is_refused(unchecked):
    with refuses("activation", "'relu'", rule="'tanh'"):
        RNN(activation="relu")


@pytest.mark.full
def test_gru_and_lstm_are_those_of_flax(key):
    x = jax.random.normal(key, (2, 11, 3))
    h = jax.random.normal(key, (2, 4))
    gru = GRU(d_state=4)
    params = gru.init(key, 3)
    params = {k: jax.random.normal(key, v.shape) for k, v in params.items()}
    w, u = (jnp.split(params[f"{k}_kernel"], 3, 1) for k in ("input", "recurrent"))
    b = jnp.split(params["bias"], 3)
    cell = {
        **{f"i{g}": {"kernel": w[i], "bias": b[i]} for i, g in enumerate("rzn")},
        **{f"h{g}": {"kernel": u[i]} for i, g in enumerate("rz")},
        "hn": {"kernel": u[2], "bias": params["recurrent_bias"]},
    }
    y, last = gru.apply(params, x, h)
    wanted = nn.RNN(nn.GRUCell(4)).apply({"params": {"cell": cell}}, x, initial_carry=h)
    assert_close((y, last), (np.asarray(wanted), np.asarray(wanted[:, -1])), 1e-6)
    lstm = LSTM(d_state=4, forget_bias=0.0)
    params = lstm.init(key, 3)
    params = {k: jax.random.normal(key, v.shape) for k, v in params.items()}
    w, u = (jnp.split(params[f"{k}_kernel"], 4, 1) for k in ("input", "recurrent"))
    b = jnp.split(params["bias"], 4)
    cell = {
        **{f"i{g}": {"kernel": w[i]} for i, g in enumerate("ifgo")},
        **{f"h{g}": {"kernel": u[i], "bias": b[i]} for i, g in enumerate("ifgo")},
    }
    y, _ = lstm.apply(params, x, jnp.concatenate([2 * h, h], -1))
    wanted = nn.RNN(nn.LSTMCell(4)).apply(
        {"params": {"cell": cell}}, x, initial_carry=(2 * h, h)
    )
    assert_close(y, np.asarray(wanted), 1e-6)
