"""Discretization of continuous modes ``h' = lam h + x`` with step size ``dt``.

A step is ``h_t = decay h_{t-1} + gain x_t``. Both rules are accurate to float32
rounding, in value and derivative, for every ``lam dt`` with ``Re lam <= 0``, zero
included, if ``|lam|`` and ``dt`` are at most 1e13 each.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp

from ssm_jax.kernels.powers import LogDecay
from ssm_jax.kernels.precision import divide
from ssm_jax.types import Array, Complex, Float

Discretization = Literal["zoh", "bilinear"]
"""Zero-order hold of the input between steps, or Tustin's bilinear rule, which averages
the derivative at both ends of a step."""


# For larger ``|z|`` the square of ``2 / z`` is below float32 rounding of 1.
_FAR = 2.0**20


def discretize(
    rule: Discretization, lam: Complex[Array, "*#n"], dt: Float[Array, "*#n"]
) -> tuple[LogDecay, Complex[Array, "*n"]]:
    """Returns decays and gains of continuous modes with step size ``dt``.

    Args:
      rule: ``"zoh"``: ``exp(z)`` and ``dt (exp(z) - 1) / z`` with ``z = lam dt``.
        ``"bilinear"``: ``(1 + z / 2) / (1 - z / 2)`` and ``dt / (1 - z / 2)``.
      lam: Eigenvalues, real part at most 0, per unit of time, ``(*n,)``.
      dt: Step size in units of time, ``(*n,)``.

    Returns:
      ``(log_decay, gain)``: the logarithm of the decays and the gains, ``(*n,)``.

    Example:
      >>> log_decay, gain = discretize("zoh", jnp.array([-2 + 0j]), jnp.array([0.5]))
      >>> print(log_decay.log_abs, jnp.real(gain).round(4))
      [-1.] [0.3161]

    References:
      Gu, Gupta, Goel and Ré, `On the Parameterization and Initialization of Diagonal
      State Space Models <https://arxiv.org/abs/2206.11893>`_, 2022, section 2
    """
    rank = max(lam.ndim, dt.ndim)
    lam, dt = (jax.lax.broadcast_to_rank(v, rank) for v in (lam, dt))
    z = lam * dt.astype(lam.dtype)
    if rule == "zoh":
        # The decay stays a logarithm: exp(z) in complex64 would round a slow decay.
        return LogDecay(jnp.real(z), jnp.imag(z)), dt.astype(z.dtype) * expm1_ratio(z)
    # The decay is 0 at z = -2 and has no logarithm; a nearby z has one.
    z = jnp.where(z == -2, -2 + 2.0**-22, z)
    # For large z, where z**2 may overflow: arctanh(z / 2) = arctanh(2 / z) +- i pi / 2.
    far = jnp.abs(z) > _FAR
    # (1 + z / 2) / (1 - z / 2) = exp(2 arctanh(z / 2)). Both branches get arguments of
    # their own range: an overflow in the unselected one would make the gradient NaN.
    log = 2 * jnp.arctanh(jnp.where(far, 1, z) / 2)
    # 2 arctanh(2 / z) is 4 / z to float32 rounding.
    log_far = divide(4.0, jnp.where(far, z, _FAR))
    turn = jnp.where(jnp.imag(z) < 0, -jnp.pi, jnp.pi)
    log_abs = jnp.where(far, jnp.real(log_far), jnp.real(log))
    phase = jnp.where(far, jnp.imag(log_far) + turn, jnp.imag(log))
    return LogDecay(log_abs, phase), divide(dt, 1 - z / 2)


def expm1_ratio(z: Complex[Array, "*n"]) -> Complex[Array, "*n"]:
    """Returns ``(exp(z) - 1) / z``, accurate in value and derivative also near 0.

    Args:
      z: ``(*n,)``.

    Returns:
      ``(*n,)``.
    """
    near = jnp.abs(z) < 1
    small, large = jnp.where(near, z, 0), jnp.where(near, 1, z)
    # Near 0 the quotient and its derivative cancel. The Taylor series by Horner's rule
    # has the remainder 1 / 12!, below float32 rounding.
    series = jnp.zeros_like(z)
    for k in range(11, 0, -1):
        series = series * small + 1 / math.factorial(k)
    return jnp.where(near, series, divide(jnp.expm1(large), large))
