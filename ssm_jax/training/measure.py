"""Measurements of a run while it trains, whose losses must be finite."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from absl import logging

from ssm_jax.tasks.base import Task, rows_of_batch
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.evaluate import evaluate, total
from ssm_jax.training.gradients import NORMS, output_gradients, state_gradients
from ssm_jax.training.initial import zero_states
from ssm_jax.training.losses import Reductions, largest_modulus, metrics
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.types import PyTree

if TYPE_CHECKING:
    # Configs of runs name `ssm_jax.training.loop:TrainConfig`, and that module imports
    # this one.
    from ssm_jax.training.loop import TrainConfig


def carried_in_evaluation(model: Any, training: "TrainConfig") -> PyTree:
    """Returns the states that `evaluate` carries between batches, or None."""
    if training.initial_state != "carry":
        return None
    return zero_states(model, training.batch_size)


class Measurements:
    """Metrics of training steps, validation and norms of gradients, as in the log.

    Args:
      run: The constant parts of the run.
      task: The task.
      training: The fields of the training loop.
      parallel: The map over devices.
      checkpoints: The checkpoints; an error of a loss names the latest.
    """

    def __init__(
        self,
        run: RunSpec,
        task: Task,
        training: "TrainConfig",
        parallel: DataParallel,
        checkpoints: Checkpoints,
    ):
        """Maps and compiles the measuring functions, on their first call."""
        self._run, self._task, self._training = run, task, training
        self._parallel, self._checkpoints = parallel, checkpoints
        self._evaluation_step = parallel.evaluation_step(run)
        self._largest_modulus = jax.jit(partial(largest_modulus, run.model.recurrence))
        self._warned: set[str] = set()
        # Name in the log -> positions, and the function that measures at them.
        self._measures = {}
        if steps := training.gradient_steps:
            self._measures["gradient"] = steps, state_gradients(run, steps)
        if block := training.gradient_outputs:
            firsts = range(0, run.spec.d_output, block)
            measure = output_gradients(run, block)
            self._measures["gradient_outputs"] = firsts, measure

    def of_training(
        self, step: int, waiting: Sequence[Reductions], params: PyTree
    ) -> dict[str, float | None]:
        """Averages the metrics of the steps since the last line.

        Args:
          step: The last of these steps.
          waiting: Reductions of each step, on the devices.
          params: Parameters after ``step``.

        Returns:
          Metrics by their names in the log; see `finite_or_none`.

        Raises:
          FloatingPointError: The loss of a step is not finite.
        """
        steps = self.check_finite(step, waiting)
        found = metrics(total(steps), language=self._run.spec.language)
        modulus = self._largest_modulus(self._parallel.local(params))
        if modulus is not None:
            found["largest_modulus"] = float(modulus)
        return self._recorded("train", found)

    def check_finite(
        self, step: int, waiting: Sequence[Reductions]
    ) -> list[Reductions]:
        """Returns the reductions of the last steps from the devices.

        Args:
          step: The last of these steps.
          waiting: Reductions of each step, on the devices.

        Raises:
          FloatingPointError: The loss of a step is not finite.
        """
        # One transfer per log line: a transfer per step would stall the device.
        steps = list(jax.device_get(waiting))
        for at, found in enumerate(steps, step - len(steps) + 1):
            self._check(found["loss"].compute(), f"at step {at}")
        return steps

    def of_validation(self, step: int, state: TrainState) -> dict[str, float | None]:
        """Evaluates a state on the validation split; see `finite_or_none`.

        Raises:
          FloatingPointError: The loss is not finite.
        """
        measured = evaluate(
            self._evaluation_step,
            self._parallel,
            self._task,
            state.evaluated_params,
            state.model_state,
            split="validation",
            batch_size=self._training.batch_size,
            limit=self._training.evaluation_batches,
            seed=self._training.seed,
            carry=carried_in_evaluation(self._run.model, self._training),
            # Only the rule on losses ends a run.
            allow_nan=True,
        )
        # Parameters whose validation loss is not finite must not be saved.
        self._check(measured["loss"], f"in validation after step {step}")
        return self._recorded("validation", measured)

    def of_gradients(self, state: TrainState) -> dict[str, float | None]:
        """Returns gradient norms by their names in the log; see `finite_or_none`."""
        if not self._measures:
            return {}
        training, seen = self._training, {}
        batch = rows_of_batch(
            self._task, "validation", 0, training.batch_size, training.seed
        )
        # The norms are those of single examples, which every process measures.
        variables = self._parallel.local((state.params, state.model_state))
        for name, (places, measure) in self._measures.items():
            found, named = jax.device_get(measure(*variables, batch)), {}
            for place, norms in zip(places, found, strict=True):
                for norm, value in zip(NORMS, norms, strict=True):
                    named[f"{norm}/{place}"] = float(value)
            seen |= self._recorded(name, named)
        return seen

    def _recorded(self, group, values):
        found = finite_or_none(values, group, self._warned)
        return {f"{group}/{name}": value for name, value in found.items()}

    def _check(self, loss, where):
        if math.isfinite(loss):
            return
        self._checkpoints.wait()
        kept = self._checkpoints.latest_step
        last = (
            "no checkpoint yet" if kept is None else f"the last one is of step {kept}"
        )
        raise FloatingPointError(
            f"the loss must be finite, got {loss} {where}; lower "
            "`--config.optimizer.learning_rate` or set `clip_norm`, in a new "
            f"--workdir. Checkpoints: {last}."
        )


_UNDEFINED = {
    "auc": "it needs targets of both classes",
    "perplexity": "the loss is too large",
}


def finite_or_none(
    values: Mapping[str, float], group: str, warned: set[str] | None = None
) -> dict[str, float | None]:
    """Returns metrics as they are written to files.

    JSON has no NaN and no infinities: a metric that is not finite is null there. The
    log warns of it, and it ends no run.

    Args:
      values: Metrics by name.
      group: What stands before the names in the log, as ``"validation"``.
      warned: Names that the log has warned of before, and is not to again; those of
        this call are added. None means none.

    Returns:
      The metrics; None for those that are not finite.

    Example:
      >>> finite_or_none({"accuracy": 0.5, "auc": math.nan}, "test")
      {'accuracy': 0.5, 'auc': None}
    """
    warned = set() if warned is None else warned
    found: dict[str, float | None] = {}
    for name, value in values.items():
        full = f"{group}/{name}"
        found[name] = value if math.isfinite(value) else None
        if found[name] is None and full not in warned:
            warned.add(full)
            why = _UNDEFINED.get(name, "it is not finite")
            logging.warning("`%s` is null, got %s: %s", full, value, why)
    return found
