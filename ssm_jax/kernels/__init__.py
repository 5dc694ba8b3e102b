"""Pure functions of arrays: recurrences, powers of decays, convolutions."""

from ssm_jax.kernels.attention import linear_attention
from ssm_jax.kernels.fft import (
    bidirectional_convolution,
    causal_convolution,
    final_state,
    modal_kernel,
)
from ssm_jax.kernels.nonlinear import SolverStats, nonlinear_recurrence
from ssm_jax.kernels.powers import LogDecay, decay_powers, n_step_decay, to_log_decay
from ssm_jax.kernels.recurrence import chosen_method, linear_recurrence

__all__ = [
    "LogDecay",
    "SolverStats",
    "causal_convolution",
    "chosen_method",
    "final_state",
    "linear_attention",
    "linear_recurrence",
    "to_log_decay",
    "modal_kernel",
    "nonlinear_recurrence",
    "decay_powers",
    "n_step_decay",
    "bidirectional_convolution",
]
