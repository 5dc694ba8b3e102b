"""Convolution kernels and eigenvalues of trained layers."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.fields import check_size
from ssm_jax.kernels.powers import decay_powers
from ssm_jax.kernels.precision import in_float32
from ssm_jax.layers.recurrent import recurrences_of
from ssm_jax.recurrences import (
    S4,
    MIMOModes,
    Recurrence,
    SISOModes,
    TimeInvariant,
    convolution_kernel,
)
from ssm_jax.recurrences.families import nplr
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.finite_kernel import FiniteKernel
from ssm_jax.types import Array, Complex, Float, PyTree


class LayerKernels(NamedTuple):
    r"""A linear layer whose parameters are the same at all steps, as a convolution.

    .. math::
      y_t = D x_t + \sum_{j \ge 0} k_j x_{t - j} + \sum_{j \ge 1} b_{j - 1} x_{t + j}

    Attributes:
      forward: ``k``, of the present and past steps, lag 0 first, ``(d, l)``. Where all
        channels share the modes (`S5`, `LRU`): from each input channel to each output
        channel, ``(d, d, l)``, the output channel first.
      feedthrough: ``D``, ``(d,)``.
      eigenvalues: Factors by which a step multiplies the modes of a state, ``(d, n)``,
        or ``(n,)`` where all channels share them. Of conjugate pairs that are stored
        once, only one member; of `S4` all. None: the kernel is not a sum of modes.
      backward: ``b``, of the future steps, lag -1 first. None: there is no backward
        direction.
      eigenvalues_backward: Those of the backward direction.
    """

    forward: Float[np.ndarray, "... l"]
    feedthrough: Float[np.ndarray, " d"]
    eigenvalues: Complex[np.ndarray, "... n"] | None
    backward: Float[np.ndarray, "... l"] | None = None
    eigenvalues_backward: Complex[np.ndarray, "... n"] | None = None


def layer_kernels(
    model: nn.Module, variables: PyTree, length: int
) -> list[LayerKernels]:
    """Returns the kernels and eigenvalues of each layer of a model.

    Args:
      model: A `SequenceModel` or `RecurrentNetwork`.
      variables: Its variables, as those of `Restored`.
      length: Number of taps ``l`` per direction; see `recurrence_kernels`.

    Returns:
      One entry per layer, in their order.

    Raises:
      ValueError: As `recurrence_kernels`.
    """
    recurrence = getattr(model, "recurrence", None)
    params = nn.meta.unbox(variables["params"])
    return [
        recurrence_kernels(recurrence, layer, length)
        for layer in recurrences_of(params)
    ]


def recurrence_kernels(
    recurrence: Recurrence | None, params: Params, length: int
) -> LayerKernels:
    """Returns the kernels and eigenvalues of a recurrence.

    Args:
      recurrence: A linear recurrence with parameters that are the same at all steps.
      params: Its parameters.
      length: Number of taps ``l`` per direction. A kernel that ends before has fewer.

    Returns:
      Numpy arrays.

    Raises:
      ValueError: The recurrence has no convolution kernel, or ``length`` is less
        than 1.

    Example:
      >>> import jax
      >>> from ssm_jax.recurrences import DLR
      >>> dlr = DLR(d_state=8)
      >>> kernels = recurrence_kernels(dlr, dlr.init(jax.random.key(0), 2), 16)
      >>> kernels.forward.shape, kernels.eigenvalues.shape
      ((2, 16), (8,))
    """
    check_size("length", length)
    if isinstance(recurrence, TimeInvariant):
        directions, feedthrough = _of_modes(recurrence, params, length)
    elif isinstance(recurrence, S4):
        directions = [_of_system(s, length) for s in recurrence.systems(params)]
        feedthrough = params["feedthrough"]
    elif isinstance(recurrence, FiniteKernel):
        compiled = jax.jit(recurrence.kernels, static_argnums=1)
        forward, feedthrough, backward = compiled(params, length)
        taps = (forward, backward)
        directions = [(kernel, None) for kernel in taps if kernel is not None]
    else:
        raise ValueError(
            "`recurrence` must be linear, with parameters that are the same at all "
            f"steps, got {type(recurrence).__name__}; its outputs are no convolution."
        )
    (forward, eigenvalues), behind = [*directions, (None, None)][:2]
    return LayerKernels(
        np.asarray(forward),
        np.asarray(feedthrough),
        *(v if v is None else np.asarray(v) for v in (eigenvalues, *behind)),
    )


def modal_kernels(
    recurrence: TimeInvariant, modes: SISOModes | MIMOModes, length: int
) -> list[Float[Array, "... l"]]:
    """Returns the kernels of modes, forward and, if bidirectional, backward.

    Args:
      recurrence: The recurrence, whose ``max_kernel_length`` bounds the taps.
      modes: Its modes, or those of some channels.
      length: Number of taps ``l`` per direction. A kernel that ends before has fewer.

    Returns:
      ``forward`` and ``backward`` of `LayerKernels`, with the channels of ``modes``.
    """
    taps = min(length, recurrence.max_kernel_length or length)
    kernels = [convolution_kernel(one, taps) for one in _directions(modes)]
    if isinstance(modes, MIMOModes) and modes.C_backward is not None:
        # The backward direction of these modes includes the present step, at lag 0.
        present = jnp.einsum("dn,ne->de", modes.C_backward, modes.B)
        kernels[0] = jnp.asarray(kernels[0]).at[..., 0].add(present.real)
    return kernels


def _directions(modes):
    return [modes, modes.backward()] if modes.bidirectional else [modes]


# Compiled whole: operation by operation, each of them would be a program of its own.
@functools.partial(jax.jit, static_argnames=("recurrence", "length"))
def _of_modes(recurrence, params, length):
    """``(kernel, eigenvalues)`` of each direction, and the feedthrough."""
    modes = recurrence.modes(in_float32(params))
    one = jnp.ones((), jnp.int32)
    eigenvalues = [
        decay_powers(direction.log_decay, one).astype(jnp.complex64)
        for direction in _directions(modes)
    ]
    kernels = modal_kernels(recurrence, modes, length)
    return list(zip(kernels, eigenvalues, strict=True)), modes.feedthrough


def _of_system(system, length):
    kernel, change = _kernel_and_change(system, length)
    change = np.asarray(change, np.float64)
    eigenvalues = np.linalg.eigvals(np.eye(change.shape[-1]) + change)
    return kernel, eigenvalues.astype(np.complex64)


@functools.partial(jax.jit, static_argnames="length")
def _kernel_and_change(system, length):
    return nplr.kernel(system, length), nplr.discretized(system).A_minus_I
