"""Pure functions of arrays: recurrences, powers of decays, convolutions."""

from ssm_jax.kernels.convolution import (
    causal_convolution,
    final_state,
    modal_kernel,
    two_sided_convolution,
)
from ssm_jax.kernels.fixed_point import Sweeps, nonlinear_recurrence
from ssm_jax.kernels.linear_attention import linear_attention
from ssm_jax.kernels.powers import LogDecay, logarithm, powers, repeated
from ssm_jax.kernels.recurrence import chosen_method, linear_recurrence

__all__ = [
    "LogDecay",
    "Sweeps",
    "causal_convolution",
    "chosen_method",
    "final_state",
    "linear_attention",
    "linear_recurrence",
    "logarithm",
    "modal_kernel",
    "nonlinear_recurrence",
    "powers",
    "repeated",
    "two_sided_convolution",
]
