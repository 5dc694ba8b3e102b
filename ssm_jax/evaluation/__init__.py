"""Evaluation of trained models from their work dirs."""

from ssm_jax.evaluation.baseline import trivial_baseline
from ssm_jax.evaluation.forecast import forecast_errors, forecasts, next_forecast
from ssm_jax.evaluation.generate import GenerationState, Sampling, generate
from ssm_jax.evaluation.inspect import (
    LayerKernels,
    inspect,
    layer_kernels,
    recurrence_kernels,
)
from ssm_jax.evaluation.length_extension import (
    LossAtLength,
    Spans,
    classify_extension,
    loss_interval,
    losses_by_length,
    spread_spans,
)
from ssm_jax.evaluation.lengths import accuracy_by_length
from ssm_jax.evaluation.memory import StateSize, effective_remembrance, state_sizes
from ssm_jax.evaluation.predict import predict, stream
from ssm_jax.evaluation.predictions import predictions
from ssm_jax.evaluation.restore import Restored, restore
from ssm_jax.evaluation.run import (
    corpus,
    evaluate_accuracy,
    evaluate_lengths,
    evaluate_memory,
    evaluate_run,
)

__all__ = [
    "GenerationState",
    "LayerKernels",
    "LossAtLength",
    "Restored",
    "Sampling",
    "Spans",
    "StateSize",
    "accuracy_by_length",
    "classify_extension",
    "corpus",
    "effective_remembrance",
    "evaluate_accuracy",
    "evaluate_lengths",
    "evaluate_memory",
    "evaluate_run",
    "forecast_errors",
    "forecasts",
    "generate",
    "inspect",
    "layer_kernels",
    "loss_interval",
    "losses_by_length",
    "next_forecast",
    "predict",
    "predictions",
    "recurrence_kernels",
    "restore",
    "spread_spans",
    "state_sizes",
    "stream",
    "trivial_baseline",
]
