"""Powers of decays: ``lam**l`` right to float32 rounding for ``l`` up to ``2**24``.

A phase of one radian per step, rounded to float32, is off by a whole radian after
``2**24`` steps, and so is the product of phase and step number. Here a phase becomes a
fixed-point number of turns (32 bits and a float32 remainder), whose product with a step
number wraps around exactly as the angle does. Nothing needs float64; where the decay is
float64 already, the plain formula is used.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_size
from ssm_jax.kernels import two_float
from ssm_jax.kernels.arguments import check_floating, is_array, shown
from ssm_jax.types import Array, Float, Inexact, Int

# 1 / (2 pi) in binary, cut into six 12-bit digits: a product of two such digits is
# exact in float32.
_INVERSE_TWO_PI = 0x28BE60DB9391054A7F
_DIGITS = np.array(
    [
        ((_INVERSE_TWO_PI >> (60 - 12 * i)) & 0xFFF) * 2.0 ** (-12 * (i + 1))
        for i in range(6)
    ],
    np.float32,
)
_WORD = 2.0**32
_TWO_PI = 2.0 * np.pi

# exp(-200) is zero in float32, so a decay of exactly 0 may travel as this logarithm.
_LOG_ZERO = -200.0


class LogDecay(NamedTuple):
    """A decay held as its logarithm, ``lam = exp(log_abs + i (phase + phase_lo))``.

    What is held is exact: rounding ``lam`` itself to complex64 would cost an error of
    1e-3 after 131,072 steps.

    Attributes:
      log_abs: ``log |lam|``, nats per step, ``(*n,)``.
      phase: Angle, radians per step, ``(*n,)``. None for a positive real decay.
      phase_lo: What float32 leaves over of the angle, radians per step, ``(*n,)``.
        None means zeros.
    """

    log_abs: Float[Array, "*n"]
    phase: Float[Array, "*n"] | None = None
    phase_lo: Float[Array, "*n"] | None = None


def check_log_decay(log_decay: LogDecay, name: str = "log_decay") -> LogDecay:
    """Checks the leaves of a logarithm, and brings them to one dtype.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)`` of any floating-point dtype.
      name: Name of the argument.

    Returns:
      The same numbers, at least float32.

    Raises:
      ValueError: The leaves are not real floating-point arrays of one shape, or there
        is a ``phase_lo`` without a ``phase``.
    """
    if not isinstance(log_decay, LogDecay):
        raise ValueError(
            f"`{name}` must be a LogDecay, got {shown(log_decay)}; `to_log_decay` makes "
            "one of numbers."
        )
    for field, leaf in zip(LogDecay._fields, log_decay, strict=True):
        if leaf is not None or field == "log_abs":
            check_floating(f"{name}.{field}", leaf)
    log_abs, phase, phase_lo = log_decay
    shapes = [leaf.shape for leaf in log_decay if leaf is not None]
    if any(shape != log_abs.shape for shape in shapes):
        raise ValueError(
            f"`{name}` must have leaves of one shape, got {', '.join(map(str, shapes))}"
            "; `jnp.broadcast_arrays` spreads them."
        )
    if phase is None and phase_lo is not None:
        raise ValueError(
            f"`{name}.phase` must be given where `phase_lo` is, got None; `phase_lo` "
            "is what it leaves over."
        )
    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(log_decay))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), log_decay)


def decay_powers(log_decay: LogDecay, steps: Int[Array, "*s"]) -> Inexact[Array, "*sn"]:
    """Computes ``lam**l`` for each decay and each number of steps.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)``, any floating-point dtype.
      steps: Numbers of steps ``l``, ``(*s,)``, int32, ``0 <= l <= 2**24``.

    Returns:
      ``lam**l``, ``(*s, *n)``; complex if ``log_decay`` has a phase, else real.
      Within ``max(1, |lam|**l)`` times 3e-7 of the exact power of what is held.

    Raises:
      ValueError: The leaves of ``log_decay`` do not match, or ``steps`` are not
        integers.

    Example:
      >>> lam = LogDecay(jnp.log(jnp.array([0.5])), jnp.array([0.0]))
      >>> print(decay_powers(lam, jnp.arange(3))[:, 0].real)
      [1.   0.5  0.25]
    """
    if not is_array(steps) or not jnp.issubdtype(steps.dtype, jnp.integer):
        raise ValueError(
            f"`steps` must be an integer array, got {shown(steps)}; powers are those "
            "of whole numbers of steps."
        )
    return _powers(check_log_decay(log_decay), steps)


@jax.custom_jvp
def _powers(log_decay, steps):
    log_abs, phase, phase_lo = log_decay
    steps = jnp.expand_dims(steps, tuple(range(steps.ndim, steps.ndim + log_abs.ndim)))
    log_abs = jnp.expand_dims(log_abs, tuple(range(steps.ndim - log_abs.ndim)))
    modulus = _modulus(jnp.maximum(log_abs, _LOG_ZERO), steps)
    if phase is None:
        return modulus
    if phase.dtype == jnp.float64:
        angle = steps * (phase if phase_lo is None else phase + phase_lo)
    else:
        word, rest = _turns(phase, phase_lo)
        steps = steps.astype(jnp.int32)  # of 64 bits the product would not wrap
        ticks = steps * word + jnp.round(steps * rest).astype(jnp.int32)
        angle = ticks.astype(jnp.float32) * np.float32(_TWO_PI / _WORD)
    return jax.lax.complex(modulus * jnp.cos(angle), modulus * jnp.sin(angle))


@_powers.defjvp
def _powers_jvp(primals, tangents):
    log_decay, steps = primals
    dot = tangents[0]
    power = _powers(log_decay, steps)
    log_dot = dot.log_abs
    if log_decay.phase is not None:
        phase_dot = dot.phase if dot.phase_lo is None else dot.phase + dot.phase_lo
        log_dot = jax.lax.complex(log_dot, phase_dot)
    scale = steps.astype(log_decay.log_abs.dtype)
    scale = jnp.expand_dims(scale, tuple(range(steps.ndim, power.ndim)))
    log_dot = jnp.expand_dims(log_dot, tuple(range(steps.ndim)))
    return power, scale * power * log_dot


def to_log_decay(a: Inexact[Array, "*n"]) -> LogDecay:
    """Takes the logarithm of decays given as numbers, without losing what they hold.

    Args:
      a: Decays, ``(*n,)``, real or complex. Zero is allowed.

    Returns:
      The logarithm: its modulus to float32 relative accuracy, its phase to ``2**-46``
      radians, so that powers up to ``2**24`` are those of ``a`` as it stands.

    Raises:
      ValueError: ``a`` is no floating-point or complex array.

    Example:
      >>> print(to_log_decay(jnp.array([-1.0])).phase)
      [3.1415927]
    """
    check_floating("a", a, may_be_complex=True)
    return _logarithm(jnp.asarray(a, jnp.result_type(jnp.float32, a)))


@jax.custom_jvp
def _logarithm(a):
    if a.dtype in (jnp.float64, jnp.complex128):
        log_abs = jnp.log(jnp.maximum(jnp.abs(a), np.exp(_LOG_ZERO)))
        return LogDecay(log_abs, jnp.angle(a), jnp.zeros_like(log_abs))
    re, im = jnp.real(a), jnp.imag(a)
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
    ratio = a_dot / jnp.where(a == 0, jnp.ones_like(a), a)
    dot = LogDecay(jnp.real(ratio), jnp.imag(ratio), jnp.zeros_like(log.log_abs))
    return log, dot


def n_step_decay(log_decay: LogDecay, count: int) -> LogDecay:
    """The decay over ``count`` steps at once, ``lam**count``, as exact as ``lam``.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)``.
      count: Number of steps, below ``2**24``.

    Returns:
      Logarithm of ``lam**count``, leaves ``(*n,)``.

    Raises:
      ValueError: The leaves of ``log_decay`` do not match, or ``count`` is no number of
        steps.
    """
    check_size("count", count, minimum=0)
    log_abs, phase, phase_lo = check_log_decay(log_decay)
    if phase is None:
        return LogDecay(log_abs * count)
    if phase.dtype == jnp.float64:
        low = None if phase_lo is None else phase_lo * count
        return LogDecay(log_abs * count, phase * count, low)
    high, low = two_float.two_product(phase, jnp.full_like(phase, count))
    low = low if phase_lo is None else low + phase_lo * count
    return LogDecay(log_abs * count, high, low)


def multiply_decays(one: LogDecay, other: LogDecay) -> LogDecay:
    """The product of two decays that have phases, ``lam mu``, as exact as they are.

    Args:
      one: Logarithm of ``lam``, leaves ``(*n,)``.
      other: Logarithm of ``mu``, leaves that broadcast with ``(*n,)``.

    Returns:
      Logarithm of the product; its phase is in two floats.

    Raises:
      ValueError: The leaves of a logarithm do not match, or one has no phase.
    """
    one, other = check_log_decay(one, "one"), check_log_decay(other, "other")
    if one.phase is None or other.phase is None:
        raise ValueError(
            "`one` and `other` must have phases, got None; zeros are the phase of a "
            "positive decay."
        )
    phases = [v for log in (one, other) for v in (log.phase_lo,) if v is not None]
    high, low = two_float.two_sum(one.phase, other.phase)
    return LogDecay(one.log_abs + other.log_abs, high, sum(phases, low))


def two_float_decay(
    log_decay: LogDecay,
) -> tuple[Inexact[Array, "*n"], Inexact[Array, "*n"]]:
    """Rounds a decay to a number and says what the rounding left over.

    Args:
      log_decay: Logarithm of the decays, leaves ``(*n,)``.

    Returns:
      ``(hi, lo)``, both ``(*n,)``, with ``hi + lo`` right to about ``2**-46``.
    """
    hi = decay_powers(log_decay, jnp.ones((), jnp.int32))
    if hi.dtype in (jnp.float64, jnp.complex128):
        return hi, jnp.zeros_like(hi)
    rounded = to_log_decay(hi)
    gap = jnp.maximum(log_decay.log_abs, _LOG_ZERO) - rounded.log_abs
    if log_decay.phase is None:
        return hi, hi * gap
    word, rest = _turns(log_decay.phase, log_decay.phase_lo)
    word_hi, rest_hi = _turns(rounded.phase, rounded.phase_lo)
    ticks = (word - word_hi).astype(jnp.float32) + (rest - rest_hi)
    return hi, hi * jax.lax.complex(gap, ticks * np.float32(_TWO_PI / _WORD))


@jax.jit
def _modulus(log_abs, steps):
    """``exp(log_abs * steps)``; the product is carried in two floats."""
    count = steps.astype(log_abs.dtype)
    if log_abs.dtype == jnp.float64:
        return jnp.exp(log_abs * count)
    product, error = two_float.two_product(log_abs, count)
    power = jnp.exp(product)
    return jnp.where(power < jnp.inf, power + power * error, power)


@jax.jit
def _turns(phase, phase_lo):
    """Radians as turns: ``(word + rest) / 2**32``, int32 that wraps and float32."""
    parts = [*two_float.split(phase)]
    if phase_lo is not None:
        parts += [*two_float.split(phase_lo)]
    # All parts and digits as one array: the fewer operations, the sooner XLA is done.
    turns = jnp.stack(parts) * jnp.expand_dims(_DIGITS, range(1, phase.ndim + 2))
    turns = turns - jnp.round(turns)
    turns = jnp.where(turns == 0.5, np.float32(-0.5), turns) * _WORD
    whole = jnp.round(turns)
    word = jnp.sum(whole.astype(jnp.int32), (0, 1), dtype=jnp.int32)
    rest = jnp.sum(turns - whole, (0, 1))
    carry = jnp.round(rest)
    return word + carry.astype(jnp.int32), rest - carry
