"""Pure functions of arrays: recurrences, powers of decays, convolutions."""

from ssm_jax.kernels.convolution import causal_convolution as causal_convolution
from ssm_jax.kernels.convolution import final_state as final_state
from ssm_jax.kernels.convolution import modal_kernel as modal_kernel
from ssm_jax.kernels.convolution import two_sided_convolution as two_sided_convolution
from ssm_jax.kernels.fixed_point import Sweeps as Sweeps
from ssm_jax.kernels.fixed_point import nonlinear_recurrence as nonlinear_recurrence
from ssm_jax.kernels.linear_attention import linear_attention as linear_attention
from ssm_jax.kernels.powers import LogDecay as LogDecay
from ssm_jax.kernels.powers import logarithm as logarithm
from ssm_jax.kernels.powers import powers as powers
from ssm_jax.kernels.powers import repeated as repeated
from ssm_jax.kernels.recurrence import chosen_method as chosen_method
from ssm_jax.kernels.recurrence import linear_recurrence as linear_recurrence
