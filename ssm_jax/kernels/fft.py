"""Long convolutions by FFT, and convolution kernels that are sums of modes.

A mode is ``w lam**l``. A kernel is a sum of modes and is computed as the product of two
small tables of powers. The same tables yield the final state of the recurrence that
corresponds to the convolution.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_choice, check_size
from ssm_jax.kernels import dft
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.axes import pad_axis, split_axis
from ssm_jax.kernels.fusion import materialize
from ssm_jax.kernels.nonfinite import contain_nonfinite
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.powers import LogDecay, check_log_decay, decay_powers
from ssm_jax.kernels.precision import einsum_f32
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.kernels.sharding import convolve_on_each_device, row_major
from ssm_jax.types import Array, Complex, Float, Inexact

Part = Literal["real", "complex"]
"""Part of a complex convolution kernel that is computed."""


@partial(jax.jit, static_argnames=("length", "part"))
def modal_kernel(
    log_decay: LogDecay,
    w: Inexact[Array, "*k n"],
    length: int,
    *,
    part: Part = "real",
) -> Inexact[Array, "*k l"]:
    r"""Computes convolution kernels from modes, ``k_l = sum_n w_n lam_n**l``.

    With ``l = q c + r``, ``lam**l`` is the product of ``lam**(q c)`` and ``lam**r``.
    The sum over modes is one matrix product of two tables, ``2 n sqrt(k l)`` powers in
    total. The array of all ``n l`` powers is not formed.

    Args:
      log_decay: Logarithm of the decays, with leaves ``(n,)`` if all kernels share the
        modes, or ``(k, n)`` if each kernel has its own.
      w: Weight of each mode in each kernel, ``(*k, n)``, real or complex.
      length: Length ``l`` of the kernels.
      part: ``"real"`` returns the real part of the sum, at half the cost;
        ``"complex"`` returns the complex sum.

    Returns:
      The kernels, ``(*k, l)``, float32 or complex64.

    Raises:
      ValueError: ``length`` is not a positive integer, ``part`` is unknown, ``w`` is
        not a floating-point or complex array, or the shapes do not match.

    Example:
      >>> lam = LogDecay(jnp.log(jnp.array([0.5, 0.25])))
      >>> print(modal_kernel(lam, jnp.ones((1, 2)), 3))
      [[2.     0.75   0.3125]]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, equation 4
    """
    check_size("length", length)
    check_choice("part", part, Part, "'real' is the kernel of a real convolution")
    check_floating("w", w, may_be_complex=True)
    log_decay = check_log_decay(log_decay)
    w = jnp.asarray(w, common_dtype(jnp.float32, w))
    shared = log_decay.log_abs.ndim == 1
    if log_decay.log_abs.shape not in (w.shape, w.shape[-1:]) or 0 in w.shape:
        raise ValueError(
            "`w` must be (*k, n) with the n modes of `log_decay`, got "
            f"{w.shape} with {log_decay.log_abs.shape}; no axis may be empty."
        )
    # Weights multiply one table only, so a shared table of powers is not broadcast over
    # the kernels.
    block = _block_length(length, math.prod(w.shape[:-1]) if shared else 1)
    n_blocks = -(-length // block)
    # Each decay and weight is evaluated once, not once per power, and each power once,
    # not once per product that its real and its imaginary part are in.
    log_decay, w = materialize((log_decay, w))
    coarse = decay_powers(log_decay, block * jnp.arange(n_blocks))
    fine = decay_powers(log_decay, jnp.arange(block))
    coarse, fine = materialize((coarse, fine))
    if not shared:
        coarse, fine = jnp.moveaxis(coarse, 0, -2), jnp.moveaxis(fine, 0, -2)
    weight = w[..., None, :].astype(common_dtype(w, coarse))
    coarse = weight * promoted_like(coarse, weight)
    if part == "real":
        kernel = _real_product(coarse, fine)
    else:
        # Im z = Re(-i z), so that both parts are real products.
        rotated = -1j * coarse.astype(common_dtype(coarse, jnp.complex64))
        kernel = jax.lax.complex(
            _real_product(coarse, fine), _real_product(rotated, fine)
        )
    return kernel.reshape(*w.shape[:-1], n_blocks * block)[..., :length]


@jax.jit
def causal_convolution(
    u: Float[Array, "*b l d"], kernel: Float[Array, "d k"]
) -> Float[Array, "*b l d"]:
    """Convolves each channel with its kernel, ``y_t = sum_j kernel_j u_{t-j}``, by FFT.

    The rounding error of every step of a channel is at most ``1e-6 |kernel| |u|`` with
    Euclidean norms over the taps and steps, thus ``1e-6 sqrt(l) |kernel| max|u|``: a
    large input also moves earlier outputs. Inputs that are not finite do not: outputs
    are NaN at the steps that such an input reaches, and others as if it were 0.

    Args:
      u: Sequences, ``(*b, l, d)``. Sums are accumulated in float32, also for bfloat16.
      kernel: Kernel of each channel, ``(d, k)``. Taps from ``l`` on are ignored.

    Returns:
      ``y``, ``(*b, l, d)``, in the dtype of ``u``.

    Raises:
      ValueError: An array is not floating-point, or the shapes do not match.

    Example:
      >>> y = causal_convolution(jnp.ones((3, 1)), jnp.array([[1.0, 1.0]]))
      >>> print(y[:, 0].round(4))
      [1. 2. 2.]
    """
    kernel = _check_kernel(u, "kernel", kernel)
    length = u.shape[-2]
    kernel = kernel[:, :length]
    # Padding to the length of the linear convolution prevents wrap-around.
    taps = kernel.shape[-1]
    convolve = _circular_convolution(length + taps - 1)
    return contain_nonfinite(lambda u: convolve(u, kernel), u, taps)


@jax.jit
def bidirectional_convolution(
    u: Float[Array, "*b l d"],
    forward: Float[Array, "d k"],
    backward: Float[Array, "d k"],
) -> Float[Array, "*b l d"]:
    """Convolves each channel with a kernel in each direction, by one FFT.

    ``y_t = sum_j forward_j u_{t-j} + sum_j backward_j u_{t+1+j}``. The current step is
    part of the forward sum only.

    Args:
      u: Sequences, ``(*b, l, d)``. Sums are accumulated in float32, also for bfloat16.
      forward: Kernel over the current and past steps, ``(d, k)``.
      backward: Kernel over future steps, ``(d, k)``.

    Returns:
      ``y``, ``(*b, l, d)``, in the dtype of ``u``.

    Raises:
      ValueError: An array is not floating-point, or the shapes do not match.

    References:
      Gupta et al., 2022, section 2.1, equations 5 and 6
    """
    forward, backward = (
        _check_kernel(u, name, kernel)
        for name, kernel in (("forward", forward), ("backward", backward))
    )
    if forward.shape != backward.shape:
        raise ValueError(
            f"`backward` must be {forward.shape} like `forward`, got {backward.shape}; "
            "pad the shorter one with zeros."
        )
    length = u.shape[-2]
    forward, backward = forward[:, :length], backward[:, :length]
    taps = forward.shape[-1]
    convolve = _circular_convolution(length + taps)
    gap = jnp.zeros((len(forward), convolve.size - 2 * taps), forward.dtype)
    # Tap `size - j` is that of lag -j: its products with steps from j on wrap around.
    future = convolve.wrap * jnp.flip(backward, -1)
    return convolve(u, jnp.concatenate([forward, gap, future], -1))


@jax.jit
def final_state(
    log_decay: LogDecay, u: Float[Array, "*b l d"]
) -> Inexact[Array, "*b d n"]:
    """Computes the state after the last step, ``sum_t lam**(l-1-t) u_t``, from zeros.

    Args:
      log_decay: Logarithm of the decays, with leaves ``(n,)`` or ``(d, n)``.
      u: Input of all modes of each channel, ``(*b, l, d)``.

    Returns:
      States, ``(*b, d, n)``.

    Raises:
      ValueError: ``u`` is not floating-point, or the shapes do not match.

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
            f"{log_decay.log_abs.shape}; the first axis is the channel axis."
        )
    *batch, length, width = u.shape
    block = _block_length(length, math.prod(batch) * width)
    n_blocks = -(-length // block)
    coarse = decay_powers(log_decay, block * jnp.arange(n_blocks))
    fine = decay_powers(log_decay, jnp.arange(block))
    if log_decay.log_abs.ndim == 1:
        coarse, fine = coarse[:, None], fine[:, None]
    # Reversed, each step is weighted by the power of its index; padding is at the end.
    reversed_u = jnp.flip(u.astype(jnp.real(coarse).dtype), -2)
    reversed_u = split_axis(reversed_u, -2, block)
    formula = "...qcd,cn->...qdn" if fine.shape[1] == 1 else "...qcd,cdn->...qdn"
    if fine.shape[1] == 1:
        fine = fine[:, 0]  # shared by all channels
    if jnp.iscomplexobj(fine):
        # The input is real: two real products cost half of a complex one.
        sums = jax.lax.complex(
            einsum_f32(formula, reversed_u, jnp.real(fine)),
            einsum_f32(formula, reversed_u, jnp.imag(fine)),
        )
    else:
        sums = einsum_f32(formula, reversed_u, fine)
    return jnp.sum(promoted_like(coarse, sums) * sums, axis=-3)


def fft_solver(
    kernel: Inexact[Array, "l n"],
) -> Callable[..., Inexact[Array, "*b l n"]]:
    """Returns a solver of time-invariant recurrences by convolution with the powers.

    Args:
      kernel: Powers ``lam**l`` of each decay, ``(l, n)``.

    Returns:
      A solver ``(b, reset_in_scan_order, reverse) -> h`` as in `ssm_jax.kernels.scan`,
      with ``b`` and ``h`` of shape ``(*b, l, n)``. The resets must be None.
    """
    length = kernel.shape[0]
    kernel = jnp.swapaxes(kernel, -1, -2)

    def solve(b, reset_in_scan_order, reverse):
        del reset_in_scan_order  # A convolution has no resets.
        b = jnp.flip(b, -2) if reverse else b
        h = contain_nonfinite(lambda b: convolve_on_each_device(convolve, b, kernel), b)
        return jnp.flip(h, -2) if reverse else h

    def convolve(b, kernel):
        if not jnp.iscomplexobj(kernel) and not jnp.iscomplexobj(b):
            return _circular_convolution(2 * length - 1)(b, kernel)
        size = _fft_length(2 * length - 1)
        spectrum = jnp.fft.fft(row_major(jnp.swapaxes(b, -1, -2)), size)
        weights = promoted_like(jnp.fft.fft(kernel, size), spectrum)
        h = jnp.fft.ifft(row_major(spectrum * weights))
        return jnp.swapaxes(h[..., :length], -1, -2)

    return solve


def _check_sequences(u):
    check_floating("u", u)
    if u.ndim < 2 or 0 in u.shape:
        raise ValueError(
            f"`u` must be (*b, l, d) with no axis empty, got {u.shape}; a single "
            "channel is `u[:, None]`."
        )


def _check_kernel(u, name, kernel):
    """Checks a kernel against the sequences and returns it in at least float32."""
    _check_sequences(u)
    check_floating(name, kernel)
    if kernel.ndim != 2 or len(kernel) != u.shape[-1] or not kernel.size:
        raise ValueError(
            f"`{name}` must be ({u.shape[-1]}, k), one kernel per channel of `u`, got "
            f"{kernel.shape}; transpose or broadcast it."
        )
    return jnp.asarray(kernel, common_dtype(jnp.float32, kernel))


def _block_length(length, rows):
    """Returns the block length for which both tables of a factored sum are as large."""
    return min(length, max(1, math.isqrt(length * max(rows, 1))))


def _real_product(coarse, fine):
    """Computes ``Re sum_n coarse_qn fine_cn`` as one product of real matrices."""
    if jnp.iscomplexobj(coarse) or jnp.iscomplexobj(fine):
        # Re(y z) = Re y Re z - Im y Im z, summed along with the modes.
        coarse = jnp.concatenate([jnp.real(coarse), -jnp.imag(coarse)], -1)
        fine = jnp.concatenate([jnp.real(fine), jnp.imag(fine)], -1)
    return einsum_f32("...qn,...cn->...qc", coarse, fine)


def _fft_length(size: int) -> int:
    """Returns the smallest length from ``size`` on that is fast for a complex FFT."""
    # Imported here, because it takes a tenth of a second, and few models need it.
    from scipy.fft import next_fast_len

    return cast(int, next_fast_len(size, real=False))


class _CircularConvolution(NamedTuple):
    """A convolution that wraps around.

    Attributes:
      size: Its length: the largest number of steps and of taps.
      wrap: Factor of the products that wrap around, 1 or -1.
      convolve: The function of sequences and kernels in one dtype, float32 or float64.
    """

    size: int
    wrap: int
    convolve: Callable[[Array, Array], jax.Array]

    def __call__(
        self, u: Float[Array, "*b l d"], kernel: Float[Array, "d k"]
    ) -> Float[jax.Array, "*b l d"]:
        """Computes the first ``l`` steps of the convolution of each channel.

        Args:
          u: Sequences, ``(*b, l, d)``, of any floating-point dtype.
          kernel: Kernels, ``(d, k)``, float32 or float64, in which sums are formed.
        """
        # There is no FFT of bfloat16.
        values = u.astype(kernel.dtype)
        y = convolve_on_each_device(self.convolve, values, kernel)
        return y.astype(u.dtype)


def _circular_convolution(size: int) -> _CircularConvolution:
    """Returns a convolution of at least ``size`` steps, fast on the target platform.

    Args:
      size: Number of steps, positive.
    """
    if target_platform() == "tpu":
        factors = dft.cyclic_factors(size)
        cyclic = partial(dft.cyclic_convolution, factors=factors)
        return _CircularConvolution(math.prod(factors), 1, cyclic)
    n = _fft_length(math.ceil(size / 2))
    return _CircularConvolution(2 * n, -1, partial(_negacyclic_convolution, n=n))


def _negacyclic_convolution(u, kernel, n):
    """Computes a right-angle convolution of ``2 n`` steps.

    Real sequences ``x`` of ``2 n`` steps are transformed by a complex FFT of length
    ``n`` of ``(x_j + i x_{j+n}) w^j`` with ``w^n = i``, the polynomial ``x`` modulo
    ``z^n - i``. Sequences of at most ``n`` steps need no padding.

    References:
      Crandall and Fagin, Discrete weighted transforms and large-integer arithmetic,
      Mathematics of Computation, 1994
    """
    spectrum = _spectrum(jnp.swapaxes(u, -1, -2), n)
    spectrum = spectrum * promoted_like(_spectrum(kernel, n), spectrum)
    return jnp.swapaxes(_sequences(spectrum, u.shape[-2]), -1, -2)


def _spectrum(x: Float[Array, "*b l"], n: int) -> Complex[Array, "*b n"]:
    """Transforms real sequences of at most ``2 n`` steps."""
    cos, sin = _weights(n, x.dtype)
    length = x.shape[-1]
    x = pad_axis(x, -1, after=(n if length <= n else 2 * n) - length)
    cos, sin = (promoted_like(v, x) for v in (cos, sin))
    re, im = x[..., :n] * cos, x[..., :n] * sin
    if length > n:
        high = x[..., n:]
        re, im = re - high * sin, im + high * cos
    return jnp.fft.fft(row_major(jax.lax.complex(re, im)))


def _sequences(
    spectrum: Complex[Array, "*b n"], length: int
) -> Float[jax.Array, "*b l"]:
    """Inverse of `_spectrum`: the first ``length`` steps."""
    z = jnp.fft.ifft(row_major(spectrum))
    n = z.shape[-1]
    re, im = jnp.real(z), jnp.imag(z)
    cos, sin = _weights(n, re.dtype)
    cos, sin = (promoted_like(v, re) for v in (cos, sin))
    x = re * cos + im * sin
    if length > n:
        x = jnp.concatenate([x, im * cos - re * sin], -1)
    return x[..., :length]


def _weights(n, dtype):
    """Real and imaginary parts of ``w^j``."""
    angle = np.pi / (2 * n) * np.arange(n)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)
