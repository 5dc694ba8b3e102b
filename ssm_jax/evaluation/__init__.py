"""Evaluation of trained models, from their work folders."""

from ssm_jax.evaluation.inspect import inspect as inspect
from ssm_jax.evaluation.restore import Restored as Restored
from ssm_jax.evaluation.restore import restore as restore
from ssm_jax.evaluation.run import evaluate_run as evaluate_run
