"""Pure functions of arrays: recurrences, powers of decays and convolutions."""

from ssm_jax.kernels.attention import linear_attention as linear_attention
from ssm_jax.kernels.fft import bidirectional_convolution as bidirectional_convolution
from ssm_jax.kernels.fft import causal_convolution as causal_convolution
from ssm_jax.kernels.fft import final_state as final_state
from ssm_jax.kernels.fft import modal_kernel as modal_kernel
from ssm_jax.kernels.nonlinear import SolverStats as SolverStats
from ssm_jax.kernels.nonlinear import nonlinear_recurrence as nonlinear_recurrence
from ssm_jax.kernels.powers import LogDecay as LogDecay
from ssm_jax.kernels.powers import decay_powers as decay_powers
from ssm_jax.kernels.powers import n_step_decay as n_step_decay
from ssm_jax.kernels.powers import to_log_decay as to_log_decay
from ssm_jax.kernels.recurrence import chosen_method as chosen_method
from ssm_jax.kernels.recurrence import linear_recurrence as linear_recurrence
