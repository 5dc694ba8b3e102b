"""Figures drawn from the result files of runs; uses matplotlib and numpy only."""

from ssm_jax.plots.curves import curves
from ssm_jax.plots.eigenvalues import eigenvalues
from ssm_jax.plots.forecasts import forecasts
from ssm_jax.plots.gradients import gradients
from ssm_jax.plots.kernels import convolution_kernels
from ssm_jax.plots.lengths import lengths
from ssm_jax.plots.predictions import images, masks, sequences
from ssm_jax.plots.throughput import throughput

__all__ = [
    "convolution_kernels",
    "curves",
    "eigenvalues",
    "forecasts",
    "gradients",
    "images",
    "lengths",
    "masks",
    "sequences",
    "throughput",
]
