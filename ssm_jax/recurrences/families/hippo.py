"""The HiPPO-LegS matrix, and its normal part as conjugate pairs of eigenvalues.

``A = N - p p^T`` with a normal ``N = V diag(lam) V^*``. The state of
``h' = A h + B x`` then keeps the input's Legendre coefficients over all of its past.
"""

import functools
from typing import NamedTuple

import numpy as np

from ssm_jax.types import Array, Complex, Float


class LegS(NamedTuple):
    """HiPPO-LegS in the eigenbasis of its normal part; of each pair the upper half.

    Attributes:
      lam: Eigenvalues, ``(n / 2,)``, real part -1/2, imaginary part positive, falling.
      p: The rank-one part, ``V^* p``, ``(n / 2,)``.
      B: Input projection, ``V^* B``, ``(n / 2,)``.
      V: Eigenvectors, ``(n, n / 2)``.
    """

    lam: Complex[Array, " m"]
    p: Complex[Array, " m"]
    B: Complex[Array, " m"]
    V: Complex[Array, "n m"]


def matrices(n: int) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, " n"]]:
    """The HiPPO-LegS matrices ``A`` and ``B``, float64.

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
    return np.diag(-np.arange(n) - 1.0) - np.tril(np.outer(B, B), -1), B


@functools.cache
def legs(n: int) -> LegS:
    """Diagonalizes the normal part of HiPPO-LegS, once for each size.

    Eigenvectors are known but for a factor of modulus one; here ``V^* B`` is positive.

    Args:
      n: Number of coefficients, even.

    Returns:
      The upper halves of the ``n / 2`` conjugate pairs, float64.

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
    p = np.sqrt(0.5) * B
    rotation = A + np.outer(p, p) + 0.5 * np.eye(n)
    frequency, V = np.linalg.eigh(-1j * rotation)
    order = np.argsort(-frequency)[: n // 2]
    V = V[:, order]
    V = V * np.sign(V.conj().T @ B)
    return LegS(-0.5 + 1j * frequency[order], V.conj().T @ p, V.conj().T @ B, V)
