"""Convolutions of long sequences with kernels made of modes.

A mode is ``w lam**l``; a convolution kernel is a sum of them. The kernel is formed as a
product of two small tables of powers, the convolution by FFT, and the state that the
recurrence would have after the last step by the same tables.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, cast

import jax
import jax.numpy as jnp
from scipy.fft import next_fast_len

from ssm_jax.fields import check_choice, check_size
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.powers import LogDecay, check_log_decay, decay_powers
from ssm_jax.types import Array, Float, Inexact

Part = Literal["real", "complex"]
"""What is asked of a convolution kernel: its real part, or all of it."""

# GPUs and TPUs multiply float32 matrices in fewer bits unless told otherwise.
_FULL = jax.lax.Precision.HIGHEST


@partial(jax.jit, static_argnames=("length", "part"))
def modal_kernel(
    log_decay: LogDecay,
    w: Inexact[Array, "*k n"],
    length: int,
    *,
    part: Part = "real",
) -> Inexact[Array, "*k l"]:
    r"""Sums modes into convolution kernels, ``k_l = sum_n w_n lam_n**l``.

    With ``l = q c + r``, ``lam**l`` is the product of ``lam**(q c)`` and ``lam**r``, so
    the sum over modes is one matrix product of two tables that together hold about
    ``2 n sqrt(k l)`` powers; the ``n l`` powers themselves never exist.

    Args:
      log_decay: Logarithm of the decays, leaves ``(n,)``, modes that all kernels
        share, or ``(k, n)``, modes of each kernel.
      w: Weight of each mode in each kernel, ``(*k, n)``, real or complex.
      length: Steps ``l`` of a kernel.
      part: ``"real"``: the real part of the sum, at half the cost; ``"complex"``: all
        of it.

    Returns:
      The kernels, ``(*k, l)``, float32 or complex64.

    Raises:
      ValueError: ``length`` is no positive integer, ``part`` is unknown, ``w`` is no
        floating-point or complex array, or the shapes do not fit.

    Example:
      >>> lam = LogDecay(jnp.log(jnp.array([0.5, 0.25])))
      >>> print(modal_kernel(lam, jnp.ones((1, 2)), 3))
      [[2.     0.75   0.3125]]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, equation 4
    """
    check_size("length", length)
    check_choice("part", part, Part, "'real' is what a real convolution takes")
    check_floating("w", w, may_be_complex=True)
    log_decay = check_log_decay(log_decay)
    w = jnp.asarray(w, jnp.result_type(jnp.float32, w))
    shared = log_decay.log_abs.ndim == 1
    if log_decay.log_abs.shape not in (w.shape, w.shape[-1:]) or 0 in w.shape:
        raise ValueError(
            "`w` must be (*k, n) with the n modes of `log_decay`, got "
            f"{w.shape} with {log_decay.log_abs.shape}; no axis may be empty."
        )
    block = _block(length, math.prod(w.shape[:-1]) if shared else 1)
    n_blocks = -(-length // block)
    coarse = decay_powers(log_decay, block * jnp.arange(n_blocks))
    fine = decay_powers(log_decay, jnp.arange(block))
    if not shared:
        coarse, fine = jnp.moveaxis(coarse, 0, -2), jnp.moveaxis(fine, 0, -2)
    coarse = jnp.expand_dims(w, -2) * coarse
    if part == "real":
        kernel = _real_product(coarse, fine)
    else:
        kernel = jax.lax.complex(
            _real_product(coarse, fine), _real_product(-1j * coarse, fine)
        )
    return kernel.reshape(*w.shape[:-1], n_blocks * block)[..., :length]


@jax.jit
def causal_convolution(
    u: Float[Array, "*b l d"], kernel: Float[Array, "d k"]
) -> Float[Array, "*b l d"]:
    """Convolves each channel with its kernel, ``y_t = sum_j kernel_j u_{t-j}``, by FFT.

    Args:
      u: Sequences, ``(*b, l, d)``. The sums are float32, also for bfloat16.
      kernel: One kernel a channel, ``(d, k)``; taps beyond ``l`` meet nothing.

    Returns:
      ``y``, ``(*b, l, d)``, in the dtype of ``u``.

    Raises:
      ValueError: An array is not floating-point, or the shapes do not fit.

    Example:
      >>> y = causal_convolution(jnp.ones((3, 1)), jnp.array([[1.0, 1.0]]))
      >>> print(y[:, 0].round(4))
      [1. 2. 2.]
    """
    kernel = _checked(u, "kernel", kernel)
    length = u.shape[-2]
    kernel = kernel[:, :length]
    return _circular(u, kernel, length + kernel.shape[-1] - 1)


@jax.jit
def bidirectional_convolution(
    u: Float[Array, "*b l d"],
    forward: Float[Array, "d k"],
    backward: Float[Array, "d k"],
) -> Float[Array, "*b l d"]:
    """Convolves with what came and what comes, counting the present step once.

    ``y_t = sum_j forward_j u_{t-j} + sum_j backward_j u_{t+1+j}``, by one FFT.

    Args:
      u: Sequences, ``(*b, l, d)``. The sums are float32, also for bfloat16.
      forward: Kernel over the past and the present, ``(d, k)``.
      backward: Kernel over the future, ``(d, k)``.

    Returns:
      ``y``, ``(*b, l, d)``, in the dtype of ``u``.

    Raises:
      ValueError: An array is not floating-point, or the shapes do not fit.

    References:
      Gupta et al., 2022, section 2.1, equations 5 and 6
    """
    forward, backward = (
        _checked(u, name, kernel)
        for name, kernel in (("forward", forward), ("backward", backward))
    )
    if forward.shape != backward.shape:
        raise ValueError(
            f"`backward` must be {forward.shape} like `forward`, got {backward.shape}; "
            "fill up the shorter one with zeros."
        )
    length = u.shape[-2]
    forward, backward = forward[:, :length], backward[:, :length]
    taps = forward.shape[-1]
    size = _fast(length + taps)
    gap = jnp.zeros((*forward.shape[:-1], size - 2 * taps), forward.dtype)
    kernel = jnp.concatenate([forward, gap, jnp.flip(backward, -1)], -1)
    return _circular(u, kernel, size)


@jax.jit
def final_state(
    log_decay: LogDecay, u: Float[Array, "*b l d"]
) -> Inexact[Array, "*b d n"]:
    """The state after the last step, ``sum_t lam**(l-1-t) u_t``, of a zero start.

    Args:
      log_decay: Logarithm of the decays, leaves ``(n,)`` or ``(d, n)``.
      u: What enters every mode of a channel, ``(*b, l, d)``.

    Returns:
      States, ``(*b, d, n)``.

    Raises:
      ValueError: ``u`` is not floating-point, or the shapes do not fit.

    Example:
      >>> half = LogDecay(jnp.log(jnp.array([0.5])))
      >>> print(final_state(half, jnp.ones((3, 1))))
      [[1.75]]
    """
    _check_sequences(u)
    log_decay = check_log_decay(log_decay)
    if log_decay.log_abs.ndim != 1 and log_decay.log_abs.shape[:-1] != u.shape[-1:]:
        raise ValueError(
            f"`log_decay` must have leaves (n,) or ({u.shape[-1]}, n), got "
            f"{log_decay.log_abs.shape}; the first axis is that of the channels."
        )
    *batch, length, width = u.shape
    block = _block(length, math.prod(batch) * width)
    n_blocks = -(-length // block)
    coarse = decay_powers(log_decay, block * jnp.arange(n_blocks))
    fine = decay_powers(log_decay, jnp.arange(block))
    if log_decay.log_abs.ndim == 1:
        coarse, fine = coarse[:, None], fine[:, None]
    fine = jnp.broadcast_to(fine, (block, fine.shape[1], fine.shape[2]))
    backwards = jnp.flip(u.astype(_real_dtype(coarse)), -2)
    fill = [(0, 0)] * len(batch) + [(0, n_blocks * block - length), (0, 0)]
    backwards = jnp.pad(backwards, fill).reshape(*batch, n_blocks, block, width)
    modes = "...qcd,cn->...qdn" if fine.shape[1] == 1 else "...qcd,cdn->...qdn"
    if fine.shape[1] == 1:
        fine = fine[:, 0]
    if jnp.iscomplexobj(fine):
        sums = jax.lax.complex(
            jnp.einsum(modes, backwards, jnp.real(fine), precision=_FULL),
            jnp.einsum(modes, backwards, jnp.imag(fine), precision=_FULL),
        )
    else:
        sums = jnp.einsum(modes, backwards, fine, precision=_FULL)
    return jnp.sum(coarse * sums, axis=-3)


def fft_solver(
    kernel: Inexact[Array, "l n"],
) -> Callable[..., Inexact[Array, "*b l n"]]:
    """Evaluates a recurrence of constant decay by convolving with its powers.

    Args:
      kernel: Powers ``lam**l`` of each decay, ``(l, n)``.

    Returns:
      A solver ``(b, cut, reverse) -> h`` as those of `ssm_jax.kernels.scan`, ``b`` and
      ``h`` ``(*b, l, n)``; ``cut`` must be None.
    """
    length = kernel.shape[0]
    kernel = jnp.swapaxes(kernel, -1, -2)

    def solve(b, cut, reverse):
        del cut
        b = jnp.swapaxes(jnp.flip(b, -2) if reverse else b, -1, -2)
        if jnp.iscomplexobj(kernel) or jnp.iscomplexobj(b):
            size = _fast(2 * length - 1)
            h = jnp.fft.ifft(jnp.fft.fft(b, size) * jnp.fft.fft(kernel, size))
        else:
            size = _fast(2 * length - 1)
            h = jnp.fft.irfft(jnp.fft.rfft(b, size) * jnp.fft.rfft(kernel, size), size)
        h = jnp.swapaxes(h[..., :length], -1, -2)
        return jnp.flip(h, -2) if reverse else h

    return solve


def _check_sequences(u):
    check_floating("u", u)
    if u.ndim < 2 or 0 in u.shape:
        raise ValueError(
            f"`u` must be (*b, l, d) with no axis empty, got {u.shape}; a single "
            "channel is `u[:, None]`."
        )


def _checked(u, name, kernel):
    """A kernel, at least float32, once it is found to fit the sequences."""
    _check_sequences(u)
    check_floating(name, kernel)
    if kernel.ndim != 2 or len(kernel) != u.shape[-1] or not kernel.size:
        raise ValueError(
            f"`{name}` must be ({u.shape[-1]}, k), one kernel a channel of `u`, got "
            f"{kernel.shape}; transpose or broadcast it."
        )
    return jnp.asarray(kernel, jnp.result_type(jnp.float32, kernel))


def _fast(size: int) -> int:
    """The least length from ``size`` on with small prime factors only."""
    return cast(int, next_fast_len(size, real=True))


def _circular(u, kernel, size):
    """Circular convolution over ``l`` at a length of at least ``size``."""
    length, dtype = u.shape[-2], u.dtype
    size = _fast(size)
    u = jnp.swapaxes(u.astype(kernel.dtype), -1, -2)
    spectrum = jnp.fft.rfft(u, size) * jnp.fft.rfft(kernel, size)
    y = jnp.fft.irfft(spectrum, size)[..., :length]
    return jnp.swapaxes(y, -1, -2).astype(dtype)


def _block(length, rows):
    """Steps of a block that make the two tables of a factored sum equally large."""
    return min(length, max(1, math.isqrt(length * max(rows, 1))))


def _real_product(coarse, fine):
    """``Re sum_n coarse_qn fine_cn`` as one product of real matrices."""
    if jnp.iscomplexobj(coarse) or jnp.iscomplexobj(fine):
        coarse = jnp.concatenate([jnp.real(coarse), -jnp.imag(coarse)], -1)
        fine = jnp.concatenate([jnp.real(fine), jnp.imag(fine)], -1)
    return jnp.einsum("...qn,...cn->...qc", coarse, fine, precision=_FULL)


def _real_dtype(values):
    return jnp.real(values).dtype
