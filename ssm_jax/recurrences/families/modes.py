"""The modes of a time-invariant recurrence, and the convolution kernel they make."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.fft import modal_kernel
from ssm_jax.kernels.powers import LogDecay, decay_powers, multiply_decays
from ssm_jax.types import Array, Complex, Float, Inexact, Readout


class Modes(NamedTuple):
    """A time-invariant recurrence: what enters its modes, and how they leave.

    Every channel's input enters every one of its modes; or, with `B`, all channels
    drive the same modes together.

    Attributes:
      log_decay: Logarithm of the decays, leaves ``(n,)``, modes that all channels
        share, or ``(d, n)``, modes of each channel.
      w: Weight of each mode in the output, ``(d, n)``, real or complex.
      feedthrough: What goes straight to the output, ``(d,)``.
      w_backward: Weight in the output of what comes after a step, ``(d, n)``. None:
        one direction.
      log_decay_backward: Logarithm of the decays of what comes after a step. None: the
        same as ``log_decay``.
      readout: ``"real"``: the convolution kernel is ``Re k``, ``k_l = sum_n w_n
        lam_n**l``. ``"prod"``: ``Re k Im k``.
      B: What enters the modes, ``B x``, ``(n, d)``. The modes are then ``(n,)``, their
        state too, and ``w_backward`` weighs the step itself and what comes after it.
        None: each channel its own.
    """

    log_decay: LogDecay
    w: Inexact[Array, "d n"]
    feedthrough: Float[Array, " d"]
    w_backward: Inexact[Array, "d n"] | None = None
    log_decay_backward: LogDecay | None = None
    readout: Readout = "real"
    B: Complex[Array, "n d"] | None = None

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Of one sequence's state: ``(d, n)``, or ``(n,)`` if channels share it."""
        d, n = self.w.shape
        if self.B is not None:
            return (n,)
        return (d, n * (n + 1) // 2 if self.readout == "prod" else n)

    def backward(self) -> "Modes":
        """What comes after a step, as modes of one direction."""
        log_decay, w = self.log_decay_backward or self.log_decay, self.w_backward
        if self.B is not None and w is not None:
            w = w * decay_powers(log_decay, jnp.ones((), jnp.int32))
        return self._replace(
            log_decay=log_decay,
            w=w,
            w_backward=None,
            log_decay_backward=None,
        )


def to_real_readout(modes: Modes) -> Modes:
    """The same convolution kernel with a real readout, so that it has a state.

    ``Re k Im k = Re(-i k**2 / 2)``, and ``k**2`` is a sum over pairs of modes: a
    product readout of ``n`` modes is a real readout of ``n (n + 1) / 2``.

    Args:
      modes: Modes with either readout.

    Returns:
      Modes with ``readout="real"``.

    Raises:
      ValueError: The readout is a product and channels share their modes.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, appendix A.2
    """
    if modes.readout == "real":
        return modes
    if modes.B is not None:
        raise ValueError(
            "`readout` must be 'real' where channels share their modes, got 'prod'; "
            "the product of sums over channels is no sum over modes."
        )
    first, second = jnp.triu_indices(modes.w.shape[-1])
    scale = jnp.where(first == second, -0.5j, -1j).astype(modes.w.dtype)

    def square(w):
        return None if w is None else scale * w[:, first] * w[:, second]

    def pairs(log_decay):
        of_first = jax.tree.map(lambda v: v[..., first], log_decay)
        return multiply_decays(
            of_first, jax.tree.map(lambda v: v[..., second], log_decay)
        )

    return modes._replace(
        log_decay=pairs(modes.log_decay),
        w=square(modes.w),
        w_backward=square(modes.w_backward),
        log_decay_backward=modes.log_decay_backward and pairs(modes.log_decay_backward),
        readout="real",
    )


def convolution_kernel(
    modes: Modes, length: int
) -> Float[Array, "d l"] | Float[Array, "d d l"]:
    """The kernel that a recurrence convolves each channel with, without feed-through.

    Args:
      modes: The recurrence.
      length: Steps ``l`` of the kernel.

    Returns:
      Kernel over the past and the present, ``(d, l)``; with `B`, from each channel to
      each, ``(d, d, l)``, the output's channel first.
    """
    if modes.B is not None:
        modes = modes._replace(w=modes.w[:, None] * modes.B.T[None])
    if modes.readout == "real":
        return modal_kernel(modes.log_decay, modes.w, length)
    kernel = modal_kernel(modes.log_decay, modes.w, length, part="complex")
    return jnp.real(kernel) * jnp.imag(kernel)
