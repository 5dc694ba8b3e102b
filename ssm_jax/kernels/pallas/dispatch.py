"""``h_t = a_t h_{t-1} + b_t`` by the kernel of the platform that is compiled for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels import parts
from ssm_jax.kernels.pallas.devices import on_each_device
from ssm_jax.kernels.parts import Parts
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.scan import TimeInvariantDecay
from ssm_jax.types import Steps

Solver = Callable[[Parts, Steps | None, bool], Parts]
"""A `ssm_jax.kernels.scan.Solver` of inputs and states in parts."""


def solver(decay: Parts | TimeInvariantDecay, *, adjoint: bool = False) -> Solver:
    """Returns a solver by the kernel of `target_platform`.

    Args:
      decay: The decay; the parts of one that depends on the input.
      adjoint: Whether to solve with the conjugate of the decay. If it depends on the
        input, also that of the step before: ``h_t = a_{t-1}* h_{t-1} + b_t``, with
        ``a_{t+1}* h_{t+1}`` in reverse order. The adjoint of a recurrence has this
        form; its decays and resets need not be shifted in memory.

    Raises:
      ValueError: There is no kernel for this GPU or this version of JAX.
    """
    kernel = _kernel()

    def solve(b, reset_in_scan_order, reverse):
        reset = reset_in_scan_order
        reset = None if reset is None else jnp.broadcast_to(reset, b[0].shape[:-1])
        options = {"reverse": reverse, "adjoint": adjoint}
        if isinstance(decay, TimeInvariantDecay):
            evaluate = partial(_time_invariant, kernel, **options)
            return on_each_device(evaluate, decay, (b, reset))
        evaluate = partial(_input_dependent, kernel, **options)
        return on_each_device(evaluate, (), (b, decay, reset))

    return solve


def _input_dependent(kernel, _, b, a, reset, *, reverse, adjoint):
    if reset is not None:
        a = parts.zero_unless(~reset[..., None], a)
    h = kernel.input_dependent(
        _flatten_batch(a),
        _flatten_batch(b),
        reverse=reverse,
        adjoint=adjoint,
        has_resets=reset is not None,
    )
    return _with_shape_of(b, h)


def _time_invariant(kernel, decay, b, reset, *, reverse, adjoint):
    length = b[0].shape[-2]
    steps = jnp.arange(1, kernel.block_length(length) + 1)
    hi, lo = decay.two_float()
    lo = jnp.zeros_like(hi) if lo is None else lo
    numbers = hi[None], lo[None], decay.powers_of(steps)
    hi, lo, powers = map(parts.split, numbers)
    if adjoint:
        hi, lo, powers = map(parts.conjugate, (hi, lo, powers))
    if reset is not None:
        reset = reset.reshape(-1, length)
    h = kernel.time_invariant(
        (hi, lo), powers, _flatten_batch(b), reset, reverse=reverse
    )
    return _with_shape_of(b, h)


def _flatten_batch(values):
    """Reshapes ``(*b, l, n)`` to ``(b, l, n)``."""
    return tuple(part.reshape(-1, *part.shape[-2:]) for part in values)


def _with_shape_of(b, h):
    return tuple(part.reshape(b[0].shape) for part in h)


def selective() -> Any:
    """Returns the module of the selective recurrence for `target_platform`."""
    if on_gpu():
        from ssm_jax.kernels.pallas import selective_gpu

        return selective_gpu
    from ssm_jax.kernels.pallas import selective_tpu

    return selective_tpu


def matrix() -> Any:
    """Returns the module of the recurrence of matrices for `target_platform`.

    Raises:
      ValueError: There is a GPU, but no kernel for it.
    """
    # It is compiled by Triton, not by Mosaic as the others.
    if on_gpu(oldest_jax=(0, 10)):
        from ssm_jax.kernels.pallas import matrix_gpu

        return matrix_gpu
    from ssm_jax.kernels.pallas import matrix_tpu

    return matrix_tpu


def on_gpu(*, oldest_jax: tuple[int, int] = (0, 11)) -> bool:
    """Returns whether the kernels for GPUs are evaluated.

    Args:
      oldest_jax: The oldest version of JAX that has what the kernel needs.

    Raises:
      ValueError: There is a GPU, but no kernel for it or for this version of JAX.
    """
    platform = target_platform()
    if platform not in ("gpu", "cuda", "rocm"):
        return False
    if platform == "rocm" or jax.__version_info__ < oldest_jax:
        oldest = ".".join(map(str, oldest_jax))
        raise ValueError(
            f"`method` must not be 'pallas' for {platform} with JAX {jax.__version__}; "
            f"its kernels need CUDA and JAX {oldest}, or use 'auto'."
        )
    return True


def _kernel() -> Any:
    if on_gpu():
        from ssm_jax.kernels.pallas import gpu

        return gpu
    from ssm_jax.kernels.pallas import tpu

    return tpu
