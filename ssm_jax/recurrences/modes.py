"""The modes of a time-invariant recurrence, and the convolution kernel they make."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.convolution import modal_kernel
from ssm_jax.kernels.powers import LogDecay, combined
from ssm_jax.types import Array, Float, Inexact, Readout


class Modes(NamedTuple):
    """A time-invariant recurrence: every channel's input enters every one of its modes.

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
    """

    log_decay: LogDecay
    w: Inexact[Array, "d n"]
    feedthrough: Float[Array, " d"]
    w_backward: Inexact[Array, "d n"] | None = None
    log_decay_backward: LogDecay | None = None
    readout: Readout = "real"

    def backward(self) -> "Modes":
        """What comes after a step, as modes of one direction."""
        return self._replace(
            log_decay=self.log_decay_backward or self.log_decay,
            w=self.w_backward,
            w_backward=None,
            log_decay_backward=None,
        )


def recurrent(modes: Modes) -> Modes:
    """The same convolution kernel with a real readout, so that it has a state.

    ``Re k Im k = Re(-i k**2 / 2)``, and ``k**2`` is a sum over pairs of modes: a
    product readout of ``n`` modes is a real readout of ``n (n + 1) / 2``.

    Args:
      modes: Modes with either readout.

    Returns:
      Modes with ``readout="real"``.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, appendix A.2
    """
    if modes.readout == "real":
        return modes
    first, second = jnp.triu_indices(modes.w.shape[-1])
    scale = jnp.where(first == second, -0.5j, -1j).astype(modes.w.dtype)

    def square(w):
        return None if w is None else scale * w[:, first] * w[:, second]

    def pairs(log_decay):
        of_first = jax.tree.map(lambda v: v[..., first], log_decay)
        return combined(of_first, jax.tree.map(lambda v: v[..., second], log_decay))

    return modes._replace(
        log_decay=pairs(modes.log_decay),
        w=square(modes.w),
        w_backward=square(modes.w_backward),
        log_decay_backward=modes.log_decay_backward and pairs(modes.log_decay_backward),
        readout="real",
    )


def convolution_kernel(modes: Modes, length: int) -> Float[Array, "d l"]:
    """The kernel that a recurrence convolves each channel with, without feed-through.

    Args:
      modes: The recurrence.
      length: Steps ``l`` of the kernel.

    Returns:
      Kernel over the past and the present, ``(d, l)``.
    """
    if modes.readout == "real":
        return modal_kernel(modes.log_decay, modes.w, length)
    kernel = modal_kernel(modes.log_decay, modes.w, length, part="complex")
    return jnp.real(kernel) * jnp.imag(kernel)
