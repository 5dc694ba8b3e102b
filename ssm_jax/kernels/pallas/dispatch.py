"""``h_t = a_t h_{t-1} + b_t`` by the kernel of the platform that is compiled for."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels.pallas import parts
from ssm_jax.kernels.pallas.devices import on_each_device
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.scan import Decay, InputDependentDecay, Solver


def solver(decay: Decay, *, adjoint: bool = False) -> Solver:
    """Returns a solver by the kernel of `target_platform`.

    Args:
      decay: The decay.
      adjoint: For an input-dependent decay, solve ``h_t = a_{t-1} h_{t-1} + b_t``, with
        ``a_{t+1} h_{t+1}`` in reverse order. The adjoint of a recurrence has this form;
        its decays and resets need not be shifted in memory.

    Raises:
      ValueError: There is no kernel for this GPU or this version of JAX.
    """
    kernel = _kernel()

    def flatten_batch(values):
        """Reshapes ``(*b, l, n)`` to ``(b, l, n)``."""
        return values.reshape(-1, *values.shape[-2:])

    if isinstance(decay, InputDependentDecay):

        def input_dependent(_, b, a, reset_in_scan_order, reverse):
            if reset_in_scan_order is not None:
                a = jnp.where(reset_in_scan_order[..., None], 0, a)
            a = flatten_batch(a)
            h = kernel.input_dependent(
                parts.split(a),
                parts.split(flatten_batch(b)),
                reverse=reverse,
                adjoint=adjoint,
                has_resets=reset_in_scan_order is not None,
            )
            return parts.join(h).reshape(b.shape)

        def solve_input_dependent(b, reset_in_scan_order, reverse):
            a = jnp.broadcast_to(decay.a, b.shape)
            reset = _broadcast_reset(reset_in_scan_order, b)
            solve = partial(input_dependent, reverse=reverse)
            return on_each_device(solve, (), (b, a, reset))

        return solve_input_dependent

    def time_invariant(decay, b, reset, reverse):
        length = b.shape[-2]
        steps = jnp.arange(1, kernel.block_length(length) + 1)
        hi, lo = decay.two_float()
        lo = jnp.zeros_like(hi) if lo is None else lo
        if reset is not None:
            reset = reset.reshape(-1, length)
        h = kernel.time_invariant(
            (parts.split(hi[None]), parts.split(lo[None])),
            parts.split(decay.powers_of(steps)),
            parts.split(flatten_batch(b)),
            reset,
            reverse=reverse,
        )
        return parts.join(h).reshape(b.shape)

    def solve_time_invariant(b, reset_in_scan_order, reverse):
        solve = partial(time_invariant, reverse=reverse)
        return on_each_device(
            solve, decay, (b, _broadcast_reset(reset_in_scan_order, b))
        )

    return solve_time_invariant


def _broadcast_reset(reset, b):
    return None if reset is None else jnp.broadcast_to(reset, b.shape[:-1])


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
