"""Figures drawn from the result files of runs; uses matplotlib and numpy only."""

from ssm_jax.plots.accuracy import accuracy_by_length
from ssm_jax.plots.batch import batch, is_image
from ssm_jax.plots.curves import curves
from ssm_jax.plots.eigenvalues import eigenvalues
from ssm_jax.plots.forecasts import forecasts
from ssm_jax.plots.gradients import gradients
from ssm_jax.plots.kernels import convolution_kernels
from ssm_jax.plots.lengths import lengths, lengths_of_runs
from ssm_jax.plots.memory import memory
from ssm_jax.plots.predictions import images, masks, sequences
from ssm_jax.plots.style import save
from ssm_jax.plots.sweeps import sweep
from ssm_jax.plots.throughput import throughput

__all__ = [
    "accuracy_by_length",
    "batch",
    "convolution_kernels",
    "curves",
    "eigenvalues",
    "forecasts",
    "gradients",
    "images",
    "is_image",
    "lengths",
    "lengths_of_runs",
    "masks",
    "memory",
    "save",
    "sequences",
    "sweep",
    "throughput",
]
