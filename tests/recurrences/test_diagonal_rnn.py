"""DiagonalRNN: automata that weights in closed form follow, and initial eigenvalues."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import DiagonalRNN

LENGTH = 20_000


def bits_after_start(seed=0):
    """A start and random bits, one-hot, ``(l, 3)``, and the bits."""
    bits = np.random.default_rng(seed).integers(2, size=LENGTH)
    tokens = np.concatenate([[0], 1 + bits])
    return jnp.eye(3)[tokens], bits


def params(angles, n_entering):
    """Weights that turn by an angle for each token, from a state of 1 at the start."""
    kernel = np.zeros((3, 1 + n_entering), np.float32)
    kernel[:, 0], kernel[0, 1] = angles, 1
    return {"kernel": jnp.array(kernel), "bias": jnp.zeros(1 + n_entering)}


def test_cosine_holds_parity_without_decay():
    x, bits = bits_after_start()
    y, _ = DiagonalRNN(d_state=1, eigenvalues="cosine").apply(
        params([0, 0, np.pi], 1), x
    )
    np.testing.assert_array_equal(y[1:, 0], 1 - 2 * (np.cumsum(bits) % 2))


def test_phase_holds_sums_modulo_three():
    x, bits = bits_after_start()
    y, _ = DiagonalRNN(d_state=1, eigenvalues="phase").apply(
        params([0, 0, 2 * np.pi / 3], 2), x
    )
    angle = 2 * np.pi / 3 * (np.cumsum(bits) % 3)
    # The angle of a step is rounded once, at most 2**-23 of it, 10,000 times.
    exact = np.stack([np.cos(angle), np.sin(angle)], 1)
    np.testing.assert_allclose(y[1:], exact, atol=5e-3)
    np.testing.assert_allclose(np.hypot(*y[1:].T), 1, atol=2e-3)


@pytest.mark.parametrize(
    ("eigenvalues", "low", "high"),
    [
        ("sigmoid", 0.5, 0.99005),
        ("tanh", -0.98903, 0.98903),
        ("cosine", -1, 1),
    ],
)
def test_initial_eigenvalues_fill_their_range(eigenvalues, low, high):
    unit = DiagonalRNN(d_state=1000, eigenvalues=eigenvalues)
    bias = unit.init(jax.random.key(0), d_in=2)["bias"]
    f = {"sigmoid": jax.nn.sigmoid, "tanh": jnp.tanh, "cosine": jnp.cos}[eigenvalues]
    drawn = f(bias[:1000])
    assert low <= drawn.min() < low + 0.05
    assert high - 0.05 < drawn.max() <= high
    np.testing.assert_array_equal(bias[1000:], 0)


def test_initial_phases_fill_the_circle():
    unit = DiagonalRNN(d_state=1000, eigenvalues="phase")
    bias = unit.init(jax.random.key(0), d_in=2)["bias"]
    drawn = np.histogram(bias[:1000], bins=4, range=(-np.pi, np.pi))[0]
    assert drawn.sum() == 1000
    assert drawn.min() > 200
    np.testing.assert_array_equal(bias[1000:], 0)
