"""Evaluation of trained models, from their work folders."""

from ssm_jax.evaluation.baseline import trivial_baseline
from ssm_jax.evaluation.corpus import corpus
from ssm_jax.evaluation.generate import Sampling, generate
from ssm_jax.evaluation.inspect import inspect
from ssm_jax.evaluation.length_extension import (
    Measured,
    loss_interval,
    losses_by_length,
    verdict,
)
from ssm_jax.evaluation.restore import Restored, restore
from ssm_jax.evaluation.run import evaluate_lengths, evaluate_run
from ssm_jax.evaluation.spans import Spans, spread
from ssm_jax.evaluation.written import Written

__all__ = [
    "Measured",
    "Restored",
    "Sampling",
    "Spans",
    "Written",
    "corpus",
    "evaluate_lengths",
    "evaluate_run",
    "generate",
    "inspect",
    "loss_interval",
    "losses_by_length",
    "restore",
    "spread",
    "trivial_baseline",
    "verdict",
]
