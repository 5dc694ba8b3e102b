"""Pure functions of arrays: recurrences, powers of decays and convolutions."""

from ssm_jax.kernels.attention import linear_attention
from ssm_jax.kernels.fft import (
    bidirectional_convolution,
    causal_convolution,
    final_state,
    modal_kernel,
)
from ssm_jax.kernels.matrix import matrix_recurrence
from ssm_jax.kernels.nonlinear import SolverStats, nonlinear_recurrence
from ssm_jax.kernels.plan import chosen_method
from ssm_jax.kernels.platforms import compiling_for
from ssm_jax.kernels.powers import LogDecay, decay_powers, n_step_decay, to_log_decay
from ssm_jax.kernels.recurrence import linear_recurrence

__all__ = [
    "LogDecay",
    "SolverStats",
    "bidirectional_convolution",
    "causal_convolution",
    "chosen_method",
    "compiling_for",
    "decay_powers",
    "final_state",
    "linear_attention",
    "linear_recurrence",
    "matrix_recurrence",
    "modal_kernel",
    "n_step_decay",
    "nonlinear_recurrence",
    "to_log_decay",
]
