"""Evaluation of trained models from their work dirs."""

from ssm_jax.evaluation.baseline import trivial_baseline as trivial_baseline
from ssm_jax.evaluation.corpus import corpus as corpus
from ssm_jax.evaluation.generate import Sampling as Sampling
from ssm_jax.evaluation.generate import generate as generate
from ssm_jax.evaluation.generation_state import GenerationState as GenerationState
from ssm_jax.evaluation.inspect import inspect as inspect
from ssm_jax.evaluation.length_extension import LossAtLength as LossAtLength
from ssm_jax.evaluation.length_extension import (
    classify_extension as classify_extension,
)
from ssm_jax.evaluation.length_extension import loss_interval as loss_interval
from ssm_jax.evaluation.length_extension import losses_by_length as losses_by_length
from ssm_jax.evaluation.restore import Restored as Restored
from ssm_jax.evaluation.restore import restore as restore
from ssm_jax.evaluation.run import evaluate_lengths as evaluate_lengths
from ssm_jax.evaluation.run import evaluate_run as evaluate_run
from ssm_jax.evaluation.spans import Spans as Spans
from ssm_jax.evaluation.spans import spread_spans as spread_spans
