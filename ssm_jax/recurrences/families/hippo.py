"""The HiPPO-LegS matrix and the eigendecomposition of its normal part.

``A = N - p p^T`` with a normal matrix ``N = V diag(lam) V^*``. The state of
``h' = A h + B x`` holds the Legendre coefficients of the whole input history.
"""

import functools
from typing import NamedTuple

import numpy as np

from ssm_jax.types import Array, Complex, Float


class LegS(NamedTuple):
    """HiPPO-LegS in the eigenbasis of its normal part, one of each conjugate pair.

    Attributes:
      lam: Eigenvalues, ``(n / 2,)``, real part -1/2, imaginary part positive,
        in descending order.
      p: The rank-one part, ``V^* p``, ``(n / 2,)``.
      B: Input projection, ``V^* B``, ``(n / 2,)``.
      V: Eigenvectors, ``(n, n / 2)``.
    """

    lam: Complex[Array, " m"]
    p: Complex[Array, " m"]
    B: Complex[Array, " m"]
    V: Complex[Array, "n m"]


def matrices(n: int) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, " n"]]:
    """Returns the HiPPO-LegS matrices ``A`` and ``B``, float64.

    Args:
      n: Number of coefficients.

    Returns:
      ``(A, B)``: ``(n, n)``, lower triangular, and ``(n,)``.

    Example:
      >>> A, B = matrices(2)
      >>> print(A.round(3), B.round(3))
      [[-1.     0.   ]
       [-1.732 -2.   ]] [1.    1.732]

    References:
      Gu et al., `HiPPO: Recurrent Memory with Optimal Polynomial Projections
      <https://arxiv.org/abs/2008.07669>`_, 2020, theorem 2
    """
    B = np.sqrt(2 * np.arange(n) + 1.0)
    # A_nk = -sqrt(2 n + 1) sqrt(2 k + 1) below the diagonal and -(n + 1) on it.
    return np.diag(-np.arange(n) - 1.0) - np.tril(np.outer(B, B), -1), B


# Takes O(n**3) time and depends on nothing but `n`.
@functools.cache
def legs(n: int) -> LegS:
    """Diagonalizes the normal part of HiPPO-LegS, once for each size.

    Eigenvectors are unique up to a phase factor; here ``V^* B`` is positive.

    Args:
      n: Number of coefficients, even.

    Returns:
      One member of each of the ``n / 2`` conjugate pairs, float64.

    Raises:
      ValueError: ``n`` is odd or not positive.

    Example:
      >>> print(legs(4).lam.round(3))
      [-0.5+4.603j -0.5+0.557j]

    References:
      Gu, Goel and Ré, `Efficiently Modeling Long Sequences with Structured State Spaces
      <https://arxiv.org/abs/2111.00396>`_, 2021, appendix C.1
    """
    if n < 2 or n % 2:
        raise ValueError(
            f"`n` must be even and positive, got {n}; states come in conjugate pairs."
        )
    A, B = matrices(n)
    # With p_n = sqrt(n + 1/2), A + p p^T + I / 2 is skew-symmetric.
    p = np.sqrt(0.5) * B
    rotation = A + np.outer(p, p) + 0.5 * np.eye(n)
    # -i times a skew-symmetric matrix is Hermitian: `eigh` returns real frequencies and
    # orthonormal vectors. In float64, so that only the final conversion rounds.
    frequency, V = np.linalg.eigh(-1j * rotation)
    # The frequencies are pairs +-f; the positive ones are kept, the fastest first.
    order = np.argsort(-frequency)[: n // 2]
    V = V[:, order]
    # The phase that `eigh` returns is arbitrary and could differ between platforms.
    V = V * np.sign(V.conj().T @ B)
    return LegS(-0.5 + 1j * frequency[order], V.conj().T @ p, V.conj().T @ B, V)
