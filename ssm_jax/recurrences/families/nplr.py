"""State space models of S4 (normal plus low rank): discretization and kernels."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.dense import DenseSSM, n_step_change
from ssm_jax.kernels.precision import divide
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.types import Array, Complex, Float

# Nodes of the spectrum evaluated at once, which bounds memory.
_NODES = 256


class NPLR(NamedTuple):
    """``h' = (diag(lam) - p p^*) h + B x, y = 2 Re(C h)`` of each channel.

    One state of each conjugate pair is stored. The bilinear rule discretizes it.

    Attributes:
      lam: Eigenvalues of the normal part, ``(d, n)``, real part at most 0.
      p: The rank-one part, ``(d, n)``.
      B: Input projection, ``(d, n)``.
      C: Readout, ``(d, n)``.
      dt: Step size, ``(d,)``.
    """

    lam: Complex[Array, "d n"]
    p: Complex[Array, "d n"]
    B: Complex[Array, "d n"]
    C: Complex[Array, "d n"]
    dt: Float[Array, " d"]


def discretized(system: NPLR) -> DenseSSM:
    """Discretizes a system; states are stored as real parts, then imaginary parts.

    With ``R = (I - dt A / 2)**-1``, by Woodbury's identity, a step is ``h + dt R A h +
    dt R B x``.

    Args:
      system: The system, ``n`` pairs of states.

    Returns:
      The discrete system, matrices ``(d, 2 n, 2 n)`` and vectors ``(d, 2 n)``.
    """
    lam, p, B, C, dt = system
    dt = dt[:, None]
    # Resolvent of the diagonal part; Woodbury adds the rank-one part without a solve.
    g = divide(1.0, 1 - (0.5 * dt).astype(lam.dtype) * lam)
    q = jnp.conj(p) * g
    # p^* h over both members of each pair is 2 Re of the stored half; 2 dt / 2 = dt.
    column = _parts(g * p) * dt / (1 + dt * _real_dot(q, p))
    # A_bar - I = 2 (R - I), as small steps would be rounded away in A_bar itself. Its
    # diagonal part is 2 (g - 1) = dt lam g, without cancellation.
    change = _rotations(dt.astype(lam.dtype) * lam * g)
    # Re(q h) as a real dot product is that of the parts of conj(q) and of h.
    change -= 2 * column[..., None] * _parts(jnp.conj(q))[:, None]
    enter = dt * (_parts(g * B) - column * _real_dot(q, B))
    # The factor 2 is for the conjugate of each pair.
    return DenseSSM(change, enter, 2 * _parts(jnp.conj(C)))


def kernel(system: NPLR, length: int) -> Float[Array, "d l"]:
    """Returns the convolution kernel, by its generating function at roots of unity.

    The spectrum of a kernel of ``l`` taps is ``C (I - A_bar**l) (I - z A_bar)**-1
    B_bar``, and the resolvent that of ``A`` at another point: sums over ``n`` poles,
    four of them for the rank-one part (Woodbury).

    Args:
      system: The system, ``n`` pairs of states.
      length: Number of taps ``l``.

    Returns:
      The kernel, ``(d, l)``.

    References:
      Gu, Goel and Ré, `Efficiently Modeling Long Sequences with Structured State Spaces
      <https://arxiv.org/abs/2111.00396>`_, 2021, appendix C.3
    """
    lam, p, B, _, dt = system
    steps = discretized(system)
    # With C (I - A_bar**length) in place of C the infinite series ends at `length`.
    last = n_step_change(steps.A_minus_I, length)
    cut = -jnp.einsum("dn,dnm->dm", steps.C, last, precision="highest")
    # Reverts the factor 2 and the conjugate of the real form of C.
    re, im = jnp.split(0.5 * cut, 2, -1)
    C = jax.lax.complex(re, -im)
    # A real kernel: half of the spectrum determines the rest.
    angle = -2j * np.pi * np.arange(length // 2 + 1) / length
    # 1 - z by `expm1` in float64, as near z = 1 the difference cancels.
    nodes = np.stack([-np.expm1(angle), 1 + np.exp(angle)], -1)
    nodes = nodes.astype(common_dtype(dt, jnp.complex64))

    def spectrum_at(node):
        """The spectrum at ``z``, from ``1 - z`` and ``1 + z``."""
        half = 0.5 * node[1] * dt[:, None].astype(lam.dtype)
        # The published form times dt (1 + z) / 2: that form is infinite at z = -1.
        pole = divide(1.0, node[0] - half * lam)
        other_pole = divide(1.0, node[0] - half * jnp.conj(lam))

        def sum_over_poles(left, right):
            # Both members of each pair, although only one is stored.
            product = left * right
            return jnp.sum(product * pole + jnp.conj(product) * other_pole, -1)

        half, q = half[:, 0], jnp.conj(p)
        # Woodbury: four sums over poles instead of an n by n solve at each node.
        low_rank = (
            sum_over_poles(C, p)
            * sum_over_poles(q, B)
            * half
            / (1 + half * sum_over_poles(q, p))
        )
        return dt.astype(lam.dtype) * (sum_over_poles(C, B) - low_rank)

    # The poles of all nodes at once would be `l d n` numbers, kept for the gradient.
    spectrum = jax.lax.map(jax.checkpoint(spectrum_at), nodes, batch_size=_NODES)
    return jnp.fft.irfft(spectrum, length, axis=0).T


def _rotations(values):
    """Multiplication by complex numbers ``(d, n)`` as real matrices."""
    re, im = (_diagonal(part) for part in (jnp.real(values), jnp.imag(values)))
    return jnp.block([[re, -im], [im, re]])


def _diagonal(values):
    values = values[..., None]
    identity = jnp.eye(values.shape[-2], dtype=values.dtype)
    return values * promoted_like(identity, values)


def _parts(values):
    """Complex numbers ``(d, n)`` as real and then imaginary parts."""
    return jnp.concatenate([jnp.real(values), jnp.imag(values)], -1)


def _real_dot(x, y):
    return jnp.sum(jnp.real(x * y), -1, keepdims=True)
