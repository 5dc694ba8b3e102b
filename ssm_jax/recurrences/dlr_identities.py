"""Identities between the kernels of diagonal linear RNNs."""

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.powers import LogDecay, multiply_decays
from ssm_jax.types import Array, Complex, Float


def kronecker(
    log_1: LogDecay,
    w_1: Complex[Array, "d m"],
    log_2: LogDecay,
    w_2: Complex[Array, "d n"],
) -> tuple[LogDecay, Complex[Array, "d mn"]]:
    """Returns the DLR whose complex kernel is the product of those of two DLRs.

    Args:
      log_1: Logarithm of the first decays, leaves ``(m,)``.
      w_1: Weights of the first, ``(d, m)``.
      log_2: Logarithm of the second decays, leaves ``(n,)``.
      w_2: Weights of the second, ``(d, n)``.

    Returns:
      ``(log_decay, w)`` of the ``m n`` products of modes, leaves ``(m n,)`` and
      ``(d, m n)``.

    References:
      Gupta et al., 2022, appendix A.2
    """
    # In log space with two-float phases: the products are as accurate as their factors.
    outer = multiply_decays(
        jax.tree.map(lambda v: v[:, None], log_1),
        jax.tree.map(lambda v: v[None, :], log_2),
    )
    w = w_1[:, :, None] * w_2[:, None, :]
    return jax.tree.map(jnp.ravel, outer), w.reshape(w.shape[0], -1)


def diagonalized(
    A: Float[np.ndarray, "n n"],
    B: Float[np.ndarray, "n 1"],
    C: Float[np.ndarray, "d n"],
) -> tuple[LogDecay, Complex[Array, "d n"]]:
    """Returns the DLR that is equivalent to a linear RNN with a diagonalizable matrix.

    ``h_t = A h_{t-1} + B x_t, y_t = C h_t`` has the kernel ``C A**l B``.

    Args:
      A: Transition matrix, ``(n, n)``.
      B: Input projection, ``(n, 1)``.
      C: Readout, ``(d, n)``.

    Returns:
      ``(log_decay, w)``: leaves ``(n,)`` and ``(d, n)``, with the kernel
      ``Re sum_n w_n lam_n**l``.

    Raises:
      ValueError: The eigenvectors of ``A`` are linearly dependent in float64, a matrix
        is not real and floating-point, or the shapes do not match.

    References:
      Gupta et al., 2022, section 2.2 and appendix A.3
    """
    for name, matrix in (("A", A), ("B", B), ("C", C)):
        check_floating(name, matrix)
    if A.ndim != 2 or A.shape[0] != A.shape[-1] or A.size == 0:
        raise ValueError(
            f"`A` must be (n, n) with n > 0, got {A.shape}; it maps states to states."
        )
    n = len(A)
    if B.shape != (n, 1):
        raise ValueError(
            f"`B` must be {(n, 1)}, one row per state, got {B.shape}; a vector `b` is "
            "`b[:, None]`."
        )
    if C.ndim != 2 or C.shape[-1] != n:
        raise ValueError(
            f"`C` must be (d, {n}), one column per state, got {C.shape}; a vector `c` "
            "is `c[None]`."
        )
    # numpy in float64: the condition number multiplies rounding errors.
    lam, vectors = np.linalg.eig(np.asarray(A, np.float64))
    condition = np.linalg.cond(vectors)
    # `not <` also holds for NaN.
    if not condition < 1e10:
        raise ValueError(
            "`A` must be diagonalizable, got eigenvectors of condition number "
            f"{condition:.1e}; add a small random matrix to `A`."
        )
    # C A**l B = sum_n (C V)_n (V**-1 B)_n lam_n**l, with a solve for the inverse.
    w = (C @ vectors) * np.linalg.solve(vectors, np.asarray(B, np.complex128))[:, 0]
    phase = np.angle(lam)
    # Two floats: powers multiply the rounding error of one, 1e-7 radians, by the lag.
    high = phase.astype(np.float32)
    # A decay of 0 has no logarithm; exp(-200) is 0 in float32.
    log_abs = np.log(np.maximum(np.abs(lam), np.exp(-200.0))).astype(np.float32)
    low = (phase - high).astype(np.float32)
    log_decay = LogDecay(jnp.asarray(log_abs), jnp.asarray(high), jnp.asarray(low))
    return log_decay, jnp.asarray(w, jnp.complex64)
