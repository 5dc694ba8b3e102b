"""Faults of tasks, training and evaluation."""

from tests.faults.fault import Fault

_TASKS = (
    Fault(
        "same_order_each_epoch",
        "ssm_jax/tasks/order.py",
        'generator("order of an epoch", split, seed, epoch)',
        'generator("order of an epoch", split, seed, 0)',
    ),
    Fault(
        "first_filler_row_counts",
        "ssm_jax/tasks/order.py",
        "indices = position * batch_size + np.arange(batch_size)[rows or _ALL]\n"
        "    return np.minimum(indices, n - 1), indices < n",
        "indices = position * batch_size + np.arange(batch_size)[rows or _ALL]\n"
        "    return np.minimum(indices, n - 1), indices <= n",
    ),
    Fault(
        "shift_wraps_around",
        "ssm_jax/tasks/synthetic/shift.py",
        "targets[:, delay:, k] = x[:, : self.length - delay]",
        "targets[:, :, k] = np.roll(x, delay, axis=1)",
    ),
    Fault(
        "target_behind_text_counts",
        "ssm_jax/tasks/text/folder.py",
        "(positions < len(whole))",
        "(positions <= len(whole))",
    ),
    Fault(
        "packed_reset_one_step_early",
        "ssm_jax/tasks/text/folder.py",
        "reset = inputs == self._separator() if packed",
        "reset = targets == self._separator() if packed",
    ),
    Fault(
        "test_documents_in_train",
        "ssm_jax/tasks/text/documents.py",
        "if i % 10 > 1]",
        "if i % 10 > 0]",
    ),
)

_TRAINING = (
    Fault(
        "loss_divided_by_all_targets",
        "ssm_jax/training/losses.py",
        "n = jnp.sum(mask, dtype=jnp.float32)",
        "n = jnp.float32(mask.size)",
    ),
    Fault(
        "equal_scores_count_nothing",
        "ssm_jax/metrics/classification.py",
        'positive, "right")',
        'positive, "left")',
    ),
    Fault(
        "metrics_of_nan_are_numbers",
        "ssm_jax/training/losses.py",
        "computed |= dict.fromkeys(computed.keys() & {*PREDICTED}, math.nan)",
        "pass",
    ),
    Fault(
        "weight_decay_of_all_groups",
        "ssm_jax/training/transforms.py",
        "decay = self.weight_decay if group.weight_decay else 0.0",
        "decay = self.weight_decay",
    ),
    Fault(
        "muon_of_embeddings",
        "ssm_jax/training/groups.py",
        'or name == "embedding"',
        'and name == "embedding"',
    ),
    Fault(
        "training_iterate_is_evaluated",
        "ssm_jax/training/state.py",
        "return averaged_params(self.opt_state, self.params)",
        "return self.params",
    ),
    Fault(
        "tie_goes_to_greater_loss",
        "ssm_jax/training/checkpointing/integrity.py",
        "ranks.append((value, -tie, ",
        "ranks.append((value, tie, ",
    ),
    Fault(
        "same_dropout_each_step",
        "ssm_jax/training/step.py",
        "sample = jax.random.fold_in(state.key, state.step)",
        "sample = state.key",
    ),
    Fault(
        "training_skips_first_batch",
        "ssm_jax/training/steps.py",
        '"train", index, training.batch_size',
        '"train", index + 1, training.batch_size',
    ),
    Fault(
        "evaluation_does_not_carry_state",
        "ssm_jax/training/evaluate.py",
        "found, carry = step(params, model_state, batch, carry)",
        "found, _ = step(params, model_state, batch, carry)",
    ),
)

_EVALUATION = (
    Fault(
        "nucleus_before_temperature",
        "ssm_jax/evaluation/generate.py",
        "self.kept(logits / self.temperature)",
        "self.kept(logits) / self.temperature",
    ),
    Fault(
        "prompt_mask_one_step_long",
        "ssm_jax/evaluation/generate.py",
        "jnp.arange(inputs.shape[1]) < lengths[:, None]",
        "jnp.arange(inputs.shape[1]) <= lengths[:, None]",
    ),
    Fault(
        "shuffled_losses_not_restored",
        "ssm_jax/evaluation/length_extension.py",
        "losses.reshape(-1)[np.argsort(indices)]",
        "losses.reshape(-1)[indices]",
    ),
    Fault(
        "best_is_latest",
        "ssm_jax/evaluation/restore.py",
        "step = checkpoints.best_step",
        "step = checkpoints.latest_step",
    ),
    Fault(
        "evaluation_of_part_of_split",
        "ssm_jax/evaluation/run.py",
        "limit = training.evaluation_batches if endless else None",
        "limit = training.evaluation_batches",
    ),
)

PIPELINE = _TASKS + _TRAINING + _EVALUATION
