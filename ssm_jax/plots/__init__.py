"""Figures drawn from the result files of runs; uses matplotlib and numpy only."""

from ssm_jax.plots.curves import curves as curves
from ssm_jax.plots.eigenvalues import eigenvalues as eigenvalues
from ssm_jax.plots.gradients import gradients as gradients
from ssm_jax.plots.kernels import convolution_kernels as convolution_kernels
from ssm_jax.plots.lengths import lengths as lengths
from ssm_jax.plots.predictions import images as images
from ssm_jax.plots.predictions import sequences as sequences
from ssm_jax.plots.throughput import throughput as throughput
