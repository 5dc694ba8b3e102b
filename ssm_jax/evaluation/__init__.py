"""Evaluation of trained models, from their work folders."""

from ssm_jax.evaluation.restore import Restored as Restored
from ssm_jax.evaluation.restore import evaluate_run as evaluate_run
from ssm_jax.evaluation.restore import restore as restore
