"""The state spaces of S4, normal plus low rank: discretization and kernels."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.kernels.dense import DenseSSM, n_step_change
from ssm_jax.kernels.precision import divided
from ssm_jax.types import Array, Complex, Float

# Nodes of the spectrum evaluated at once, which bounds memory.
_NODES = 256


class NPLR(NamedTuple):
    """``h' = (diag(lam) - p p^*) h + B x, y = 2 Re(C h)`` of each channel.

    One state of every conjugate pair is stored. A step of length ``dt`` is bilinear.

    Attributes:
      lam: Eigenvalues of the normal part, ``(d, n)``, real part at most 0.
      p: The rank-one part, ``(d, n)``.
      B: Input projection, ``(d, n)``.
      C: Readout, ``(d, n)``.
      dt: Length of a step, ``(d,)``.
    """

    lam: Complex[Array, "d n"]
    p: Complex[Array, "d n"]
    B: Complex[Array, "d n"]
    C: Complex[Array, "d n"]
    dt: Float[Array, " d"]


def discretized(system: NPLR) -> DenseSSM:
    """The steps of a system, on states held as real parts and then imaginary parts.

    With ``R = (I - dt A / 2)**-1``, by Woodbury's identity, a step is ``h + dt R A h +
    dt R B x``.

    Args:
      system: The system, ``n`` pairs of states.

    Returns:
      Its steps, ``(d, 2 n, 2 n)`` and ``(d, 2 n)``.
    """
    lam, p, B, C, dt = system
    dt = dt[:, None]
    g = divided(1.0, 1 - 0.5 * dt * lam)
    q = jnp.conj(p) * g
    column = _parts(g * p) * dt / (1 + dt * _real_dot(q, p))
    change = _rotations(dt * lam * g)
    change -= 2 * column[..., None] * _parts(jnp.conj(q))[:, None]
    enter = dt * (_parts(g * B) - column * _real_dot(q, B))
    return DenseSSM(change, enter, 2 * _parts(jnp.conj(C)))


def kernel(system: NPLR, length: int) -> Float[Array, "d l"]:
    """The convolution kernel, by its generating function at the roots of unity.

    The spectrum of a kernel of ``l`` taps is ``C (I - A_bar**l) (I - z A_bar)**-1
    B_bar``, and the resolvent that of ``A`` at another point: sums over ``n`` poles,
    four of them for the rank-one part (Woodbury).

    Args:
      system: The system, ``n`` pairs of states.
      length: Taps ``l`` of the kernel.

    Returns:
      The kernel, ``(d, l)``.

    References:
      Gu, Goel and Ré, `Efficiently Modeling Long Sequences with Structured State Spaces
      <https://arxiv.org/abs/2111.00396>`_, 2021, appendix C.3
    """
    lam, p, B, _, dt = system
    steps = discretized(system)
    # The taps end after `length`: with C (I - A_bar**length) the series is a sum.
    last = n_step_change(steps.A_minus_I, length)
    cut = -jnp.einsum("dn,dnm->dm", steps.C, last, precision="highest")
    re, im = jnp.split(0.5 * cut, 2, -1)
    C = jax.lax.complex(re, -im)
    angle = -2j * np.pi * np.arange(length // 2 + 1) / length
    nodes = np.stack([-np.expm1(angle), 1 + np.exp(angle)], -1).astype(np.complex64)

    def at(node):
        """The spectrum at ``z``, from ``1 - z`` and ``1 + z``."""
        half = 0.5 * node[1] * dt[:, None]
        pole = divided(1.0, node[0] - half * lam)
        other_pole = divided(1.0, node[0] - half * jnp.conj(lam))

        def through(left, right):
            both = left * right
            return jnp.sum(both * pole + jnp.conj(both) * other_pole, -1)

        half, q = half[:, 0], jnp.conj(p)
        low_rank = through(C, p) * through(q, B) * half / (1 + half * through(q, p))
        return dt * (through(C, B) - low_rank)

    # The poles of all nodes at once would be `l d n` numbers, kept for the gradient.
    spectrum = jax.lax.map(jax.checkpoint(at), nodes, batch_size=_NODES)
    return jnp.fft.irfft(spectrum, length, axis=0).T


def _rotations(values):
    """Multiplication by complex numbers ``(d, n)`` as real matrices."""
    re, im = (_diagonal(part) for part in (jnp.real(values), jnp.imag(values)))
    return jnp.block([[re, -im], [im, re]])


def _diagonal(values):
    return values[..., None] * jnp.eye(values.shape[-1])


def _parts(values):
    """Complex numbers ``(d, n)`` as real and then imaginary parts."""
    return jnp.concatenate([jnp.real(values), jnp.imag(values)], -1)


def _real_dot(one, other):
    return jnp.sum(jnp.real(one * other), -1, keepdims=True)
