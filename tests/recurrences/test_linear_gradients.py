"""Gradients of linear units over time: section 5 and appendix C of the FRU's paper.

The gradient of a loss by an early state is the Jacobian of the last state by it, times
the gradient by the last state; its singular values bound the ratio of the two norms.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import FRU, RNN, SRU, log_spaced
from tests.kernels.oracle import assert_close
from tests.tiers import tiered

N = 4


@functools.cache
def compiled(unit):
    """The outputs and the state of a unit, and the Jacobian of the state."""

    def last(u, params, x):
        state = jnp.append(u, 0.0) if unit.tracks_position else u
        return unit.apply(params, x, state)[1][: len(u)]

    return jax.jit(unit.apply), jax.jit(jax.jacobian(last))


def stretches(unit, params, length, n=N) -> np.ndarray:
    """Singular values of the Jacobian of the final state by the initial state."""
    found = compiled(unit)[1](jnp.zeros(n), params, jnp.zeros((length, 1)))
    return np.linalg.svd(found)[1]


def matrix(values, seed=0) -> np.ndarray:
    """A matrix with the given singular values."""
    bases = np.random.default_rng(seed).normal(size=(2, len(values), len(values)))
    left, right = (np.linalg.qr(base)[0] for base in bases)
    return left * np.asarray(values) @ right


def drawn(unit, key):
    """Normal parameters, input and initial state."""
    params = unit.init(key, 2)
    params = {k: 0.3 * jax.random.normal(key, v.shape) for k, v in params.items()}
    keys = jax.random.split(key)
    return params, jax.random.normal(keys[0], (9, 2)), jax.random.normal(keys[1], (N,))


def sums(first, step, entering) -> np.ndarray:
    """``u^(T)`` as the claims have it, for row vectors.

    The paper's sums go one step too far: what enters at ``T`` is not in ``u^(T)``.
    """
    power = np.linalg.matrix_power
    last = len(entering) - 1
    rest = [e @ power(step, last - t) for t, e in enumerate(entering)]
    return first @ power(step, len(entering)) + np.sum(rest, 0)


def linear_rnn():
    return RNN(d_state=N, activation="identity")


def linear_sru(alpha, d_feedback=N):
    return SRU(
        scales=(alpha,),
        d_statistic=N,
        d_feedback=d_feedback,
        d_output=2,
        activation="identity",
    )


def test_state_of_a_linear_rnn(key):
    rnn = linear_rnn()
    params, x, first = drawn(rnn, key)
    _, last = compiled(rnn)[0](params, x, first)
    p = {k: np.float64(v) for k, v in params.items()}
    entering = np.float64(x) @ p["input_kernel"] + p["bias"]
    expected = sums(np.float64(first), p["recurrent_kernel"], entering)
    assert_close(last, expected, 1e-6)


@pytest.mark.full
@pytest.mark.parametrize("alpha", tiered([0.99, 0.0]))
def test_state_of_a_linear_sru(alpha, key):
    """Claim 5.1, but that ``B`` is not multiplied by ``W_3``."""
    sru = linear_sru(alpha, d_feedback=3)
    params, x, first = drawn(sru, key)
    _, last = compiled(sru)[0](params, x, first)
    p = {k: np.float64(v) for k, v in params.items()}
    mixing = p["W_r"] @ p["W_phi"]
    bias = p["b_r"] @ p["W_phi"] + p["b_phi"]
    entering = (1 - alpha) * (np.float64(x) @ p["W_x"] + bias)
    step = alpha * np.eye(N) + (1 - alpha) * mixing
    assert_close(last, sums(np.float64(first), step, entering), 1e-6)


@pytest.mark.parametrize("length", tiered([5, 50]))
def test_gradients_of_a_linear_rnn_vanish_or_explode(length, key):
    """Between ``s_min^T`` and ``s_max^T``, which ``s I`` reaches."""
    rnn = linear_rnn()
    params = dict(rnn.init(key, 1))
    values = [1.1, 1.0, 0.9, 0.8]
    params["recurrent_kernel"] = jnp.asarray(matrix(values), jnp.float32)
    found = stretches(rnn, params, length)
    assert found.max() <= 1.1**length * (1 + 1e-5)
    assert found.min() >= 0.8**length * (1 - 1e-5)
    for value in (0.9, 1.1):
        params["recurrent_kernel"] = value * jnp.eye(N)
        found = stretches(rnn, params, length)
        np.testing.assert_allclose(found, value**length, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("length", tiered([5, 50]))
def test_gradients_of_a_linear_sru_vanish_or_explode(length, key):
    """Between the powers of ``alpha + (1 - alpha) s``, which ``s I`` reaches.

    The upper bound holds for every ``W``. The lower one does for positive semidefinite
    ones, and not for all: ``W = -I`` of ``alpha = 1/2`` leaves no gradient.
    """
    alpha = 0.5
    sru = linear_sru(alpha)
    params = dict(sru.init(key, 1))

    def of(mixing):
        params["W_r"] = jnp.asarray(mixing, jnp.float32)
        params["W_phi"] = jnp.eye(N)
        return stretches(sru, params, length)

    def bound(s):
        return (alpha + (1 - alpha) * s) ** length

    values = np.array([1.2, 1.0, 0.5, 0.4])
    assert of(matrix(values)).max() <= bound(1.2) * (1 + 1e-5)
    base = np.linalg.qr(np.random.default_rng(1).normal(size=(N, N)))[0]
    found = of(base * values @ base.T)
    assert found.max() <= bound(1.2) * (1 + 1e-4)
    assert found.min() >= bound(0.4) * (1 - 1e-3)
    for s in (0.8, 1.2):
        np.testing.assert_allclose(of(s * np.eye(N)), bound(s), rtol=1e-4)
    assert of(-np.eye(N)).max() < 1e-6 < bound(1.0)


BASES = {
    "square": lambda part: jnp.sign(jnp.cos(6 * jnp.pi * part)),
    "sawtooth": lambda part: 2 * ((3 * part) % 1) - 1,
    "noise": lambda part: jnp.sin(1e4 * part**2),
    "one": jnp.ones_like,
    "minus_one": lambda part: -jnp.ones_like(part),
}
"""Functions of the part of the horizon that has passed, at most 1 in size."""


@dataclass(frozen=True, kw_only=True)
class Generalized(FRU):
    """An FRU with another basis than the Fourier basis."""

    basis: str

    def weights(self, params, steps):
        return BASES[self.basis](steps / self.horizon)[..., None] / self.horizon


@pytest.mark.full
@pytest.mark.parametrize("length", tiered([10, 1000], full=1))
@pytest.mark.parametrize("basis", tiered(["waves", *BASES]))
def test_gradients_of_a_linear_fru_neither_vanish_nor_explode(basis, length, key):
    """Between ``exp(-2 s)`` and ``exp(s)``, whatever the length and the basis.

    Theorem 5.2 for one wave, corollary C.1 for other bounded functions. The proof needs
    ``s`` below about ``0.79 T``, as ``1 - x >= exp(-2 x)`` ends there.
    """
    options = {
        "frequencies": (3.0,),
        "horizon": length,
        "d_statistic": N,
        "d_feedback": 3,
        "d_output": 2,
        "activation": "identity",
    }
    unit = FRU(**options) if basis == "waves" else Generalized(**options, basis=basis)
    params = {k: 8 * v if v.ndim == 2 else v for k, v in unit.init(key, 1).items()}
    mixing = np.asarray(params["W_1"] @ params["W_2"])
    s = np.linalg.svd(mixing)[1].max()
    assert 1 < s < length / 2
    found = stretches(unit, params, length)
    assert np.exp(-2 * s) <= found.min()
    assert found.max() <= np.exp(s)
    if basis == "one":  # The bound is not far: a state turns as a whole.
        assert found.max() > 1.5


@pytest.mark.full
@pytest.mark.parametrize("activation", ["identity", "relu"])
@pytest.mark.parametrize("s", tiered([1, 4]))
def test_gradients_of_an_fru_with_the_published_frequencies(s, activation, key):
    """Between ``exp(-2 s C)`` and ``exp(s C)``, ``C`` the mean norm of the cosines.

    The bounds of theorem 5.2, which is proved for one frequency, do not hold for 60.
    """
    length, k = 784, 60
    unit = FRU(
        frequencies=log_spaced(k, 784.0),
        horizon=length,
        zero_frequency="summed",
        d_statistic=1,
        d_feedback=1,
        d_output=1,
        activation=activation,
    )
    # The biases keep the slope of a relu at 1 for both weights.
    params = unit.init(key, 1) | {"theta": jnp.zeros(k), "W_2": jnp.ones((1, 1))}
    params |= {"b_1": jnp.full(1, 1e3), "b_2": jnp.full(1, 1e3)}
    cosines = length * np.asarray(unit.weights(params, jnp.arange(length)))
    norms = np.linalg.norm(cosines, axis=1)
    mean = norms.mean()
    assert mean < np.sqrt(k) and s * norms.max() < length / 2
    directions = {
        "random": jax.random.normal(key, (k,)),
        "aligned": jnp.asarray(cosines.sum(0)),
    }
    largest = {}
    for name, direction in directions.items():
        params["W_1"] = s * (direction / jnp.linalg.norm(direction))[:, None]
        found = stretches(unit, params, length, k)
        assert np.exp(-2 * s * mean) <= found.min()
        assert found.max() <= np.exp(s * mean)
        largest[name] = found.max()
    assert largest["aligned"] > 2 * np.exp(s)


@pytest.mark.full
def test_bound_for_several_frequencies_is_reached_by_low_ones(key):
    """``exp(sqrt(k) s)`` cannot be replaced by less for every set of frequencies."""
    length, k, s = 1000, 9, 1.0
    unit = FRU(
        frequencies=tuple(1e-4 * i for i in range(1, k + 1)),
        horizon=length,
        d_statistic=1,
        d_feedback=1,
        d_output=1,
        activation="identity",
    )
    params = unit.init(key, 1) | {"theta": jnp.zeros(k), "W_2": jnp.ones((1, 1))}
    params["W_1"] = jnp.full((k, 1), s / np.sqrt(k))
    found = stretches(unit, params, length, k).max()
    assert 0.99 * np.exp(np.sqrt(k) * s) < found <= np.exp(np.sqrt(k) * s)
