"""Identities between DLRs of appendix A of the paper, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay, modal_kernel
from ssm_jax.recurrences import (
    DLR,
    convolution_kernel,
    diagonalized,
    kronecker,
    to_real_readout,
)
from tests.bad_inputs import refuses

LENGTH, WIDTH = 50, 2
RNG = np.random.default_rng(0)
kernel_of = jax.jit(modal_kernel, static_argnames=("length", "part"))


def exact_kernel(log_decay, w):
    """``sum_n w_n lam_n**l``, complex, ``(d, l)``."""
    lam = np.exp(np.float64(log_decay.log_abs) + 1j * np.float64(log_decay.phase))
    return np.complex128(w) @ lam[:, None] ** np.arange(LENGTH)


def drawn(n):
    """Random decays and weights of ``n`` modes."""
    log_abs = -RNG.uniform(0.01, 0.2, n)
    log_decay = LogDecay(*np.float32([log_abs, RNG.uniform(-np.pi, np.pi, n)]))
    w = RNG.normal(size=(WIDTH, n)) + 1j * RNG.normal(size=(WIDTH, n))
    return log_decay, w.astype(np.complex64)


def assert_kernel(given, expected):
    np.testing.assert_allclose(
        given, expected, rtol=0, atol=3e-6 * np.abs(expected).max()
    )


@pytest.mark.full
@pytest.mark.parametrize("direction", ["w", "w_backward"])
def test_product_readout_is_a_real_readout_of_pairs(direction):
    dlr = DLR(d_state=5, readout="prod", bidirectional=True)
    params = dlr.init(jax.random.key(0), WIDTH)
    modes = dlr.modes(params)
    kernel = exact_kernel(modes.log_decay, getattr(modes, direction))

    @jax.jit
    def both_kernels(params):
        modes = dlr.modes(params)
        pairs = to_real_readout(modes)
        assert pairs.readout == "real"
        assert pairs.w.shape == (WIDTH, 15)
        forms = (form._replace(w=getattr(form, direction)) for form in (modes, pairs))
        return [convolution_kernel(form, LENGTH) for form in forms]

    for given in both_kernels(params):
        assert_kernel(given, kernel.real * kernel.imag)


def test_real_readout_is_its_own_recurrent_form():
    dlr = DLR(d_state=5)
    modes = dlr.modes(dlr.init(jax.random.key(0), WIDTH))
    assert to_real_readout(modes) is modes


def test_kronecker_multiplies_complex_kernels():
    one, other = drawn(3), drawn(4)
    log_decay, w = kronecker(*one, *other)
    assert w.shape == (WIDTH, 12)
    given = kernel_of(log_decay, w, length=LENGTH, part="complex")
    assert_kernel(given, exact_kernel(*one) * exact_kernel(*other))


def shrunk(A, radius=0.97):
    """The matrix scaled to a given maximum modulus of its eigenvalues."""
    return A * (radius / np.abs(np.linalg.eigvals(A)).max())


MATRICES = {
    "dense": shrunk(RNG.normal(size=(5, 5))),
    "symmetric": shrunk((lambda M: M + M.T)(RNG.normal(size=(5, 5)))),
    "rotation": np.array([[np.cos(2), -np.sin(2)], [np.sin(2), np.cos(2)]]),
    "singular": np.diag([0.9, 0.0, -0.5]),
}


@pytest.mark.parametrize("A", MATRICES.values(), ids=MATRICES.keys())
def test_diagonalized_is_the_dense_linear_rnn(A):
    n = len(A)
    B, C = RNG.normal(size=(n, 1)), RNG.normal(size=(WIDTH, n))
    x = RNG.normal(size=LENGTH)
    expected, h = [], np.zeros((n, 1))
    for x_t in x:
        h = A @ h + B * x_t
        expected.append((C @ h)[:, 0])
    kernel = kernel_of(*diagonalized(A, B, C), length=LENGTH)
    given = np.stack([np.convolve(k, x)[:LENGTH] for k in np.float64(kernel)], -1)
    assert_kernel(given, np.stack(expected))


def test_matrix_without_a_basis_of_eigenvectors_is_refused():
    jordan = np.array([[0.5, 1.0], [0.0, 0.5]])
    with refuses("A", rule="diagonalizable"):
        diagonalized(jordan, np.ones((2, 1)), np.ones((1, 2)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("A", np.ones((2, 3))),
        ("A", np.ones((2, 2), np.complex128)),
        ("A", np.ones((2, 2), np.int32)),
        ("A", np.ones((0, 0))),
        ("B", np.ones(2)),
        ("B", np.ones((3, 1))),
        ("B", np.ones((2, 1), np.complex64)),
        ("C", np.ones(2)),
        ("C", np.ones((1, 3))),
        ("C", np.ones((1, 2), np.complex64)),
    ],
)
def test_matrix_that_does_not_fit_is_refused(name, value, unchecked):
    given = {"A": np.diag([0.5, 0.3]), "B": np.ones((2, 1)), "C": np.ones((1, 2))}
    shown = value.shape if value.dtype == np.float64 else value.dtype
    with refuses(name, shown):
        diagonalized(**given | {name: value})


def test_small_move_makes_a_matrix_diagonalizable():
    jordan = np.array([[0.5, 1.0], [0.0, 0.5]])
    moved = jordan + 1e-4 * RNG.normal(size=(2, 2))
    B, C = np.ones((2, 1)), np.ones((1, 2))
    kernel = kernel_of(*diagonalized(moved, B, C), length=20)
    power, expected = np.eye(2), []
    for _ in range(20):
        expected.append((C @ power @ B)[:, 0])
        power = moved @ power
    np.testing.assert_allclose(kernel, np.stack(expected, -1), rtol=0, atol=1e-3)
    assert jnp.iscomplexobj(diagonalized(moved, B, C)[1])


def shift_weights(lam):
    """Solves ``sum_i w_i lam_i**l = 0`` for ``l < n - 1`` and ``1`` for ``l = n - 1``.

    Claim 1 of appendix A.4: ``n`` modes that shift by ``n - 1`` steps have the weights
    ``1 / prod_j (lam_i - lam_j)``, the last column of the inverse Vandermonde matrix.
    """
    differences = lam[:, None] - lam[None]
    np.fill_diagonal(differences, 1)
    return 1 / np.prod(differences, axis=1)


def norm_of(lam):
    return np.abs(shift_weights(lam)).sum()


def chebyshev(n):
    """The extrema of the Chebyshev polynomial of degree ``n - 1`` on [0, 1]."""
    return (1 + np.cos(np.pi * np.arange(n) / (n - 1))) / 2


def test_real_decays_need_weights_that_grow_exponentially_to_shift():
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 8, 12):
        lam = chebyshev(n)
        # The weights are those of the shift.
        shift = np.vander(lam, n, increasing=True).T @ shift_weights(lam)
        np.testing.assert_allclose(shift, np.eye(n)[-1], atol=1e-16 * norm_of(lam) * n)
        # A polynomial of degree n - 1 is at most 1 at the decays; its leading
        # coefficient, 2**(2n - 3) for Chebyshev's, is at most the sum of the weights.
        bound = 2.0 ** (2 * n - 3)
        np.testing.assert_allclose(norm_of(lam), bound, rtol=1e-9)
        for _ in range(100):
            assert norm_of(rng.uniform(0, 1, n)) >= bound * (1 - 1e-9)
        assert norm_of(np.linspace(0, 1, n)) >= bound * (1 - 1e-9)


def test_evenly_spread_phases_shift_with_weights_of_sum_one():
    for n in (2, 12, 100):
        circle = np.exp(2j * np.pi * np.arange(n) / n)
        np.testing.assert_allclose(norm_of(circle), 1, rtol=1e-10)


def test_condition_of_real_modes_exceeds_float32_at_a_dozen_and_phases_have_one():
    n = 12
    real = np.linalg.cond(np.vander(chebyshev(n), increasing=True))
    circle = np.exp(2j * np.pi * np.arange(n) / n)
    np.testing.assert_allclose(np.linalg.cond(np.vander(circle)), 1, rtol=1e-10)
    assert real > 2**24
    # Where DLR-R is initialized, the decays are close to 1 and nearly the same.
    params = DLR(d_state=n, eigenvalues="real").init(jax.random.key(0), 1)
    lam = np.exp(-(np.float64(params["sqrt_decay"]) ** 2))
    assert norm_of(lam) > 1e6 * 2.0 ** (2 * n - 3)
