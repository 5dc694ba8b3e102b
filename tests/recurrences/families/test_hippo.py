"""HiPPO-LegS as a matrix, and in the eigenbasis of its normal part."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import eval_legendre

from ssm_jax.recurrences.families import hippo
from tests.bad_inputs import refuses

SIZES = (2, 8, 64)


def both_halves(values):
    return np.concatenate([values, np.conj(values)], -1)


@pytest.mark.parametrize("t", [0.0, 0.1, 1.0, 3.0])
def test_what_the_state_keeps_are_warped_legendre_polynomials(t):
    n = np.arange(8)
    A, B = hippo.matrices(len(n))
    expected = np.sqrt(2 * n + 1) * eval_legendre(n, 2 * np.exp(-t) - 1) * np.exp(-t)
    np.testing.assert_allclose(expm(A * t) @ B, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n", SIZES)
def test_eigenvalues_are_those_of_the_normal_part(n):
    A, B = hippo.matrices(n)
    normal = A + 0.5 * np.outer(B, B)
    np.testing.assert_allclose(normal @ normal.T, normal.T @ normal, atol=1e-9 * n**4)
    expected = np.linalg.eigvals(normal)
    given = both_halves(hippo.legs(n).lam)
    order, given_order = np.argsort(expected.imag), np.argsort(given.imag)
    np.testing.assert_allclose(
        given[given_order], expected[order], rtol=0, atol=1e-13 * n**2
    )
    assert np.all(given[: n // 2].imag > 0)
    assert np.all(np.diff(given[: n // 2].imag) < 0)


@pytest.mark.parametrize("n", SIZES)
def test_parts_give_the_matrices_back(n):
    legs = hippo.legs(n)
    A, B = hippo.matrices(n)
    V = both_halves(legs.V)
    np.testing.assert_allclose(V.conj().T @ V, np.eye(n), rtol=0, atol=1e-12)
    normal = V * both_halves(legs.lam) @ V.conj().T
    p = V @ both_halves(legs.p)
    given = normal - np.outer(p, p)
    np.testing.assert_allclose(given, A, rtol=0, atol=1e-13 * np.abs(A).max() * n)
    np.testing.assert_allclose(V @ both_halves(legs.B), B, rtol=1e-11)
    assert np.all(legs.B.real > 0)
    np.testing.assert_allclose(legs.B.imag, 0, atol=1e-12 * n)


@pytest.mark.parametrize("n", [0, -2, 3])
def test_size_is_even(n):
    with refuses("n", n, rule="even"):
        hippo.legs(n)
