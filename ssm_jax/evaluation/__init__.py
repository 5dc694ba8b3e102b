"""Evaluation of trained models, from their work folders."""

from ssm_jax.evaluation.baseline import trivial_baseline as trivial_baseline
from ssm_jax.evaluation.corpus import corpus as corpus
from ssm_jax.evaluation.generate import Sampling as Sampling
from ssm_jax.evaluation.generate import generate as generate
from ssm_jax.evaluation.inspect import inspect as inspect
from ssm_jax.evaluation.length_extension import Measured as Measured
from ssm_jax.evaluation.length_extension import loss_interval as loss_interval
from ssm_jax.evaluation.length_extension import losses_by_length as losses_by_length
from ssm_jax.evaluation.length_extension import verdict as verdict
from ssm_jax.evaluation.restore import Restored as Restored
from ssm_jax.evaluation.restore import restore as restore
from ssm_jax.evaluation.run import evaluate_lengths as evaluate_lengths
from ssm_jax.evaluation.run import evaluate_run as evaluate_run
from ssm_jax.evaluation.spans import Spans as Spans
from ssm_jax.evaluation.spans import spread as spread
from ssm_jax.evaluation.written import Written as Written
