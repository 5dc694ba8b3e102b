"""Powers of decays, ``lam**l``, accurate to float32 rounding for ``l`` up to ``2**24``.

In plain float32 arithmetic the angle ``l * phase`` has an error of about one radian at
``2**24`` steps. Here the phase is converted to a fixed-point number of turns (32 bits
and a float32 remainder). Its integer product with ``l`` overflows modulo one turn,
which leaves the angle unchanged. Float64 is not required; float64 decays use the plain
formula.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_size
from ssm_jax.kernels import two_float
from ssm_jax.kernels.arguments import check_floating, describe, is_array
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.types import Array, Float, Inexact, Int

# Logarithm that represents a decay of exactly 0; exp(-200) underflows to 0 in float32.
# A finite value keeps gradients finite.
_LOG_ZERO = -200.0


class LogDecay(NamedTuple):
    """Logarithm of a decay, ``lam = exp(log_abs + i (phase + phase_lo))``.

    The stored values are taken as exact. Rounding ``lam`` itself to complex64 would
    cause an error of 1e-3 after 131,072 steps.

    Attributes:
      log_abs: ``log |lam|`` per step, ``(*n,)``.
      phase: Angle per step in radians, ``(*n,)``. None for a positive real decay.
      phase_lo: Rounding error of ``phase`` in radians, ``(*n,)``. None means zeros.
    """

    log_abs: Float[Array, "*n"]
    phase: Float[Array, "*n"] | None = None
    phase_lo: Float[Array, "*n"] | None = None


def check_log_decay(log_decay: LogDecay, name: str = "log_decay") -> LogDecay:
    """Checks a logarithm of decays and promotes its leaves to a common dtype.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)`` of any floating-point dtype.
      name: Name of the argument, used in the error message.

    Returns:
      The logarithm, in at least float32.

    Raises:
      ValueError: The leaves are not real floating-point arrays of one shape, or
        ``phase_lo`` is given without ``phase``.
    """
    if not isinstance(log_decay, LogDecay):
        raise ValueError(
            f"`{name}` must be a LogDecay, got {describe(log_decay)}; `to_log_decay` "
            "converts numbers."
        )
    for field, leaf in zip(LogDecay._fields, log_decay, strict=True):
        if leaf is not None or field == "log_abs":
            check_floating(f"{name}.{field}", leaf)
    log_abs, phase, phase_lo = log_decay
    shapes = [leaf.shape for leaf in log_decay if leaf is not None]
    if any(shape != log_abs.shape for shape in shapes):
        raise ValueError(
            f"`{name}` must have leaves of one shape, got {', '.join(map(str, shapes))}"
            "; `jnp.broadcast_arrays` makes them equal."
        )
    if phase is None and phase_lo is not None:
        raise ValueError(
            f"`{name}.phase` must be given if `phase_lo` is, got None; `phase_lo` is "
            "the rounding error of `phase`."
        )
    dtype = common_dtype(jnp.float32, *jax.tree.leaves(log_decay))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), log_decay)


def decay_powers(log_decay: LogDecay, steps: Int[Array, "*s"]) -> Inexact[Array, "*sn"]:
    """Computes ``lam**l`` for each decay and each number of steps.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)``, any floating-point dtype.
      steps: Numbers of steps ``l``, ``(*s,)``, int32, ``0 <= l <= 2**24``.

    Returns:
      ``lam**l``, ``(*s, *n)``; complex if ``log_decay`` has a phase, else real. The
      error is at most ``3e-7 * max(1, |lam|**l)``.

    Raises:
      ValueError: The leaves of ``log_decay`` do not match, or ``steps`` is not an
        integer array.

    Example:
      >>> lam = LogDecay(jnp.log(jnp.array([0.5])), jnp.array([0.0]))
      >>> print(decay_powers(lam, jnp.arange(3))[:, 0].real)
      [1.   0.5  0.25]
    """
    if not is_array(steps) or not jnp.issubdtype(steps.dtype, jnp.integer):
        raise ValueError(
            f"`steps` must be an integer array, got {describe(steps)}; use "
            "`steps.astype(jnp.int32)`."
        )
    return _powers(check_log_decay(log_decay), steps)


@jax.custom_jvp
def _powers(log_decay, steps):
    log_abs, phase, phase_lo = log_decay
    steps = jnp.expand_dims(steps, tuple(range(steps.ndim, steps.ndim + log_abs.ndim)))
    promote_rank = partial(jax.lax.broadcast_to_rank, rank=steps.ndim)
    modulus = _modulus(_finite(promote_rank(log_abs)), steps)
    if phase is None:
        return modulus
    if phase.dtype == jnp.float64:
        angle = phase if phase_lo is None else phase + phase_lo
        angle = steps.astype(angle.dtype) * promote_rank(angle)
    else:
        word, rest = two_float.to_turns(phase, phase_lo)
        steps = steps.astype(jnp.int32)  # int64 would not overflow modulo one turn
        # One tick is 2**-32 turns. `steps * rest` is at most 2**23, exact to one tick.
        word, rest = promote_rank(word), promote_rank(rest)
        rest = jnp.round(steps.astype(rest.dtype) * rest)
        ticks = steps * word + rest.astype(jnp.int32)
        angle = ticks.astype(jnp.float32) * two_float.TICK
    return jax.lax.complex(modulus * jnp.cos(angle), modulus * jnp.sin(angle))


@_powers.defjvp
def _powers_jvp(primals, tangents):
    log_decay, steps = primals
    dot = tangents[0]
    power = _powers(log_decay, steps)
    # d lam**l = l lam**l d(log lam). Differentiating through the integer arithmetic of
    # the primal would give zeros.
    log_dot = dot.log_abs
    if log_decay.phase is not None:
        phase_dot = dot.phase if dot.phase_lo is None else dot.phase + dot.phase_lo
        log_dot = jax.lax.complex(log_dot, phase_dot)
    scale = steps.astype(log_decay.log_abs.dtype)
    scale = jnp.expand_dims(scale, tuple(range(steps.ndim, power.ndim)))
    log_dot = jnp.expand_dims(log_dot, tuple(range(steps.ndim)))
    return power, scale.astype(power.dtype) * power * log_dot


def to_log_decay(a: Inexact[Array, "*n"]) -> LogDecay:
    """Converts decays to their logarithm without loss of accuracy.

    Args:
      a: Decays, ``(*n,)``, real or complex. Zero is allowed.

    Returns:
      The logarithm. ``log_abs`` has float32 relative accuracy and the phase is accurate
      to ``2**-46`` radians, so that powers up to ``2**24`` are those of the exact
      value of ``a``.

    Raises:
      ValueError: ``a`` is not a floating-point or complex array.

    Example:
      >>> print(to_log_decay(jnp.array([-1.0])).phase)
      [3.1415927]
    """
    check_floating("a", a, may_be_complex=True)
    return _logarithm(jnp.asarray(a, common_dtype(jnp.float32, a)))


@jax.custom_jvp
def _logarithm(a):
    if a.dtype in (jnp.float64, jnp.complex128):
        log_abs = jnp.log(jnp.maximum(jnp.abs(a), np.exp(_LOG_ZERO)))
        return LogDecay(log_abs, jnp.angle(a), jnp.zeros_like(log_abs))
    re, im = jnp.real(a), jnp.imag(a)
    # Near |a| = 1, log|a| is small and the rounding error of |a|**2 - 1 would dominate
    # it, so the square is formed in two floats.
    square, square_lo = two_float.add(
        two_float.two_product(re, re), two_float.two_product(im, im)
    )
    near_one = 0.5 * jnp.log1p((square - 1.0) + square_lo)
    anywhere = jnp.log(jnp.maximum(jnp.abs(a), np.float32(1e-38)))
    log_abs = jnp.where((square > 0.5) & (square < 2.0), near_one, anywhere)
    log_abs = jnp.where(a == 0, np.float32(_LOG_ZERO), log_abs)
    return LogDecay(log_abs, *two_float.arctan2(im, re))


@_logarithm.defjvp
def _logarithm_jvp(primals, tangents):
    (a,), (a_dot,) = primals, tangents
    log = _logarithm(a)
    # Avoid a division by zero: the derivative at a = 0 must be finite.
    ratio = a_dot / jnp.where(a == 0, jnp.ones_like(a), a)
    dot = LogDecay(jnp.real(ratio), jnp.imag(ratio), jnp.zeros_like(log.log_abs))
    return log, dot


def n_step_decay(log_decay: LogDecay, count: int) -> LogDecay:
    """Computes the decay over several steps, ``lam**count``, as accurately as ``lam``.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)``.
      count: Number of steps, less than ``2**24``.

    Returns:
      Logarithm of ``lam**count``, leaves ``(*n,)``.

    Raises:
      ValueError: The leaves of ``log_decay`` do not match, or ``count`` is not a
        non-negative integer.
    """
    check_size("count", count, minimum=0)
    log_abs, phase, phase_lo = check_log_decay(log_decay)
    log_abs = _finite(log_abs) * count
    if phase is None:
        return LogDecay(log_abs)
    if phase.dtype == jnp.float64:
        low = None if phase_lo is None else phase_lo * count
        return LogDecay(log_abs, phase * count, low)
    # The rounding error of the product is kept in `phase_lo`.
    high, low = two_float.two_product(phase, jnp.full_like(phase, count))
    low = low if phase_lo is None else low + phase_lo * count
    return LogDecay(log_abs, high, low)


def multiply_decays(one: LogDecay, other: LogDecay) -> LogDecay:
    """Multiplies two decays with phases, ``lam mu``, without loss of accuracy.

    Args:
      one: Logarithm of ``lam``, leaves ``(*n,)``.
      other: Logarithm of ``mu``, leaves that broadcast with ``(*n,)``.

    Returns:
      Logarithm of the product; ``phase_lo`` is given.

    Raises:
      ValueError: The leaves of a logarithm do not match, or ``phase`` is None.
    """
    one, other = check_log_decay(one, "one"), check_log_decay(other, "other")
    if one.phase is None or other.phase is None:
        raise ValueError(
            "`one` and `other` must have phases, got None; use zeros for a positive "
            "decay."
        )
    phases = [v for log in (one, other) for v in (log.phase_lo,) if v is not None]
    # The rounding error of the sum is kept in `phase_lo`.
    high, low = two_float.two_sum(one.phase, other.phase)
    return LogDecay(one.log_abs + other.log_abs, high, sum(phases, low))


def two_float_decay(
    log_decay: LogDecay,
) -> tuple[Inexact[Array, "*n"], Inexact[Array, "*n"]]:
    """Computes a decay and its rounding error.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)``.

    Returns:
      ``(hi, lo)``, both ``(*n,)``; ``hi + lo`` is accurate to about ``2**-46``.
    """
    hi = decay_powers(log_decay, jnp.ones((), jnp.int32))
    if hi.dtype in (jnp.float64, jnp.complex128):
        return hi, jnp.zeros_like(hi)
    # lam = hi exp(log lam - log hi), and the exponent is of the order of 2**-24.
    rounded = to_log_decay(hi)
    gap = _finite(log_decay.log_abs) - rounded.log_abs
    if log_decay.phase is None:
        return hi, hi * gap
    word, rest = two_float.to_turns(log_decay.phase, log_decay.phase_lo)
    word_hi, rest_hi = two_float.to_turns(rounded.phase, rounded.phase_lo)
    # The difference of two close angles is exact in ticks, but not in radians.
    ticks = (word - word_hi).astype(jnp.float32) + (rest - rest_hi)
    return hi, hi * jax.lax.complex(gap, ticks * two_float.TICK)


def _finite(log_abs):
    # Of a decay of 0, `log_abs * 0` would be NaN.
    return jnp.maximum(log_abs, _LOG_ZERO)


@jax.jit
def _modulus(log_abs, steps):
    """Computes ``exp(log_abs * steps)`` with the product in two floats."""
    count = steps.astype(log_abs.dtype)
    if log_abs.dtype == jnp.float64:
        return jnp.exp(log_abs * count)
    product, error = two_float.two_product(log_abs, count)
    # exp(p + e) = exp(p) (1 + e) to first order in the rounding error e of the product.
    power = jnp.exp(product)
    # Infinity times a negative error would turn an overflow into NaN.
    return jnp.where(power < jnp.inf, power + power * error, power)
