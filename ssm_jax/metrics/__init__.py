"""Reductions of measured numbers: over layers, devices, batches and steps.

A layer measures a number by one line, and it reaches the log under its name, as
``train/gate`` and ``validation/gate``::

    log_metric(self, "gate", Mean(jnp.mean(gate)))
"""

from ssm_jax.metrics.classification import (
    AUC,
    BalancedAccuracy,
    ClassMean,
    ConfusionMatrix,
    MacroF1,
)
from ssm_jax.metrics.reductions import (
    METRICS_COLLECTION,
    Max,
    Mean,
    Reduction,
    Sums,
    add_up,
    is_reduction,
    log_metric,
    sown_metrics,
)
from ssm_jax.metrics.regression import R2, Skill

__all__ = [
    "AUC",
    "METRICS_COLLECTION",
    "R2",
    "BalancedAccuracy",
    "ClassMean",
    "ConfusionMatrix",
    "MacroF1",
    "Max",
    "Mean",
    "Reduction",
    "Skill",
    "Sums",
    "add_up",
    "is_reduction",
    "log_metric",
    "sown_metrics",
]
