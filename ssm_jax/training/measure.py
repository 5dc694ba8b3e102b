"""What a run measures while it trains: metrics, evaluation, gradients."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from ssm_jax.metrics import Mean, add_up
from ssm_jax.tasks.base import Batch, Split, Task, TaskSpec, n_batches, rows_of_batch
from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.checkpointing.leaves import named_leaves
from ssm_jax.training.config import TrainConfig
from ssm_jax.training.initial import zero_states
from ssm_jax.training.losses import (
    NAN_TARGETS,
    PREDICTED,
    Reductions,
    largest_modulus,
    loss_sums,
    metrics,
)
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import RunSpec, TrainState
from ssm_jax.types import Array, Float, PyTree


def carried_in_evaluation(model: Any, training: TrainConfig) -> PyTree:
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
        training: TrainConfig,
        parallel: DataParallel,
        checkpoints: Checkpoints,
    ):
        """Maps and compiles the measuring functions, on their first call."""
        self._run, self._task, self._training = run, task, training
        self._parallel, self._checkpoints = parallel, checkpoints
        self._evaluation_step = parallel.evaluation_step(run)
        self._largest_modulus = parallel.on_params(partial(largest_modulus, run.model))
        self._warned: set[str] = set()
        # Name in the log -> positions, and the function that measures at them.
        self._measures = {}
        if steps := training.gradient_steps:
            self._measures["gradient"] = steps, state_gradients(run, steps)
        if block := training.gradient_outputs:
            firsts = range(0, run.spec.d_output, block)
            measure = output_gradients(run, block)
            self._measures["gradient_outputs"] = firsts, measure

    def training_metrics(
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
        values = metrics(total(steps), language=self._run.spec.language)
        modulus = self._largest_modulus(params)
        if modulus is not None:
            values["largest_modulus"] = float(modulus)
        return self._add_prefix("train", values)

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
        for number, reductions in enumerate(steps, step - len(steps) + 1):
            self._check(reductions["loss"].compute(), f"at step {number}")
        return steps

    def validation_metrics(
        self, step: int, state: TrainState
    ) -> dict[str, float | None]:
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
        return self._add_prefix("validation", measured)

    def gradient_norms(self, state: TrainState) -> dict[str, float | None]:
        """Returns gradient norms by their names in the log; see `finite_or_none`."""
        if not self._measures:
            return {}
        training, norms_by_name = self._training, {}
        batch = rows_of_batch(
            self._task, "validation", 0, training.batch_size, training.seed
        )
        # The norms are those of single examples, which every process measures.
        variables = self._parallel.local((state.params, state.model_state))
        for name, (places, measure) in self._measures.items():
            measured, named = jax.device_get(measure(*variables, batch)), {}
            for place, values in zip(places, measured, strict=True):
                for norm, value in zip(NORMS, values, strict=True):
                    named[f"{norm}/{place}"] = float(value)
            norms_by_name |= self._add_prefix(name, named)
        return norms_by_name

    def _add_prefix(self, group, values):
        recorded = finite_or_none(values, group, self._warned)
        return {f"{group}/{name}": value for name, value in recorded.items()}

    def _check(self, loss, where):
        if math.isfinite(loss):
            return
        self._checkpoints.wait()
        step = self._checkpoints.latest_step
        last = (
            "no checkpoint yet" if step is None else f"the last one is of step {step}"
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


# Number of batches whose reductions stay on the devices.
_IN_FLIGHT = 3


def evaluate(
    step: Any,
    parallel: DataParallel,
    task: Task,
    params: PyTree,
    model_state: PyTree,
    *,
    split: Split,
    batch_size: int,
    limit: int | None,
    seed: int,
    carry: PyTree = None,
    allow_nan: bool = False,
) -> dict[str, float]:
    """Evaluates a model on a split.

    Args:
      step: The function returned by ``parallel.evaluation_step``.
      parallel: The map over devices that ``step`` belongs to.
      task: The task.
      params: Parameters of the model.
      model_state: Other variables of the model.
      split: The split.
      batch_size: Number of examples per batch, over all devices.
      limit: Maximum number of batches. None means the whole split.
      seed: Seed of generated data.
      carry: Initial states of the first batch, ``(batch_size, ...)`` leaves; each
        further batch starts from the final states of the preceding one. None means
        that every batch starts from zero states.
      allow_nan: Whether predictions may be NaN. The metrics of them are NaN then.

    Returns:
      The metrics over all targets of the split.

    Raises:
      ValueError: The split is endless and ``limit`` is None, or a target is no index of
        a class.
      FloatingPointError: The loss of a target is NaN, unless ``allow_nan``.
    """
    count = n_evaluated(task, split, batch_size, limit)
    carry, reductions = parallel.place_carry(carry), []
    for index in range(count):
        # Steps are dispatched asynchronously: the host prepares the next batch while
        # the devices compute.
        batch = parallel.batch(task, split, index, batch_size, seed)
        values, carry = step(params, model_state, batch, carry)
        reductions.append(values)
        # What is kept per target, as scores are, must not fill the devices. To read
        # those of the last batch would wait for its step.
        if index >= _IN_FLIGHT:
            reductions[index - _IN_FLIGHT] = jax.device_get(
                reductions[index - _IN_FLIGHT]
            )
    merged = total(jax.device_get(reductions))
    values = metrics(merged, language=task.spec.language)
    nan = merged[NAN_TARGETS]
    if nan.total and not allow_nan:
        names = ", ".join(
            f"`{name}`" for name in ("loss", *PREDICTED) if name in values
        )
        raise FloatingPointError(
            f"{names} must be of targets whose loss is a number, got NaN for "
            f"{nan.total:.0f} of {nan.count:.0f} targets of the {split} split; "
            "evaluate another checkpoint of the run."
        )
    return values


def n_evaluated(task: Task, split: Split, batch_size: int, limit: int | None) -> int:
    """Returns the number of batches of an evaluation.

    Args:
      task: The task.
      split: The split.
      batch_size: Number of examples per batch, over all devices.
      limit: Maximum number of batches. None means the whole split.

    Returns:
      The number of batches.

    Raises:
      ValueError: The split is endless and ``limit`` is None.
    """
    count = n_batches(task, split, batch_size)
    if count is None and limit is None:
        raise ValueError(
            f"`evaluation_batches` must be a number for {type(task).__name__}, whose "
            "data are endless, got None; 10 is an example."
        )
    # A limit beyond the end of the split means the whole split.
    return min(c for c in (count, limit) if c is not None)


def total(reductions: list[Reductions]) -> Reductions:
    """Merges the reductions of several batches, in float64.

    Args:
      reductions: Reductions of each batch, over all devices.

    Returns:
      Reductions of all batches. Of a regression also ``r2_batch``, the mean of the
      coefficients of determination of those batches that have targets. With ``skill``
      also ``skill_low``, which is less by two standard errors over batches.
    """
    merged = {
        name: first.merge(*(batch[name] for batch in reductions[1:]))
        for name, first in reductions[0].items()
    }
    if "r2" in merged:
        # Not a sum over the rows of a batch, so that it is taken after the devices.
        scores = [
            batch["r2"].compute() for batch in reductions if float(batch["r2"].count)
        ]
        merged["r2_batch"] = Mean(add_up(scores), float(len(scores)))
    if "skill" in merged:
        merged["skill_low"] = Mean(_skill_low([batch["skill"] for batch in reductions]))
    return merged


def _skill_low(batches):
    """The skill less two standard errors over batches.

    Errors of neighbouring windows are alike, so that their number says little of how
    far a mean of them is from that of other data. Of one batch nothing is known, and no
    skill above 0 counts.
    """
    errors, references = np.array([(b.error, b.reference) for b in batches], float).T
    n, gains, reference = len(batches), references - errors, references.sum()
    if not reference:
        return 0.0
    skill = gains.sum() / reference
    if n < 2:
        return float(min(skill, 0.0))
    return float(skill - 2 * np.sqrt(n * gains.var(ddof=1)) / reference)


def stack_steps(waiting: Sequence[Reductions]) -> PyTree:
    """Reductions of several steps as one tree, whose arrays begin with the steps.

    A checkpoint between two lines of metrics holds them, so that a run that continues
    from it averages over the same steps as one that was not interrupted.
    """
    steps: list[Any] = jax.device_get(list(waiting))
    return jax.tree.map(lambda *values: np.stack(values), *steps) if steps else {}


def unstack_steps(
    arrays: Mapping[str, np.ndarray], like: Reductions
) -> list[Reductions]:
    """Inverse of `stack_steps`.

    Args:
      arrays: The arrays by their names in the checkpoint.
      like: Reductions of another step.

    Returns:
      The reductions of each step. None of a checkpoint of another version, which has
      reductions with other fields: the next line of metrics averages over fewer steps.
    """
    names, structure = list(named_leaves(like)), jax.tree.structure(like)
    if arrays and not set(names) <= arrays.keys():
        logging.warning("the metrics of steps before the checkpoint are left out")
        return []
    n_steps = min((len(array) for array in arrays.values()), default=0)
    return [
        jax.tree.unflatten(structure, [arrays[name][i] for name in names])
        for i in range(n_steps)
    ]


NORMS = ("l1", "l2", "linf")
"""The norms, in the order in which they are returned."""

Measure = Callable[[PyTree, PyTree, Batch], Float[Array, "k 3"]]


def check_gradient_steps(spec: TaskSpec, steps: Sequence[int]) -> None:
    """Validates the steps at which gradients are measured.

    Args:
      spec: Spec of the task.
      steps: Step numbers, from 1.

    Raises:
      ValueError: A step has no target.
    """
    first = 1 if spec.l_output is None else spec.length - spec.l_output + 1
    for step in steps:
        if not first <= step <= spec.length:
            raise ValueError(
                f"`gradient_steps` must be from {first} to {spec.length}, the steps "
                f"that have a target, got {step}."
            )


def check_gradient_outputs(spec: TaskSpec, block: int | None) -> None:
    """Validates the number of outputs per block.

    Args:
      spec: Spec of the task.
      block: Number of outputs per block, or None.

    Raises:
      ValueError: ``block`` is not in ``[1, d_output]``, or the task is not a regression
        with one prediction per sequence.
    """
    if block is None:
        return
    if spec.targets != "regression" or spec.l_output is not None:
        raise ValueError(
            "`gradient_outputs` must be None unless the task is a regression with one "
            f"prediction a sequence, got {block}; `gradient_steps` measures others."
        )
    if not 1 <= block <= spec.d_output:
        raise ValueError(
            f"`gradient_outputs` must be from 1 to {spec.d_output}, the outputs of a "
            f"prediction, got {block}; the FRU's authors have 20."
        )


def state_gradients(run: RunSpec, steps: Sequence[int]) -> Measure:
    """Measures the gradient of the loss at given steps by the initial state.

    The loss at step ``t`` is that of the prediction at ``t``. A model with one
    prediction per sequence, or per pair, is evaluated on the first ``t`` steps only, of
    both sequences. Classes are not weighted.

    Args:
      run: The model and its task.
      steps: Step numbers ``t``, ``k`` integers from 1.

    Returns:
      A function of the parameters, the other variables and a batch that returns
      ``(k, 3)``: for each ``t`` the `NORMS` of the gradient of the loss of a sequence
      with respect to its initial state, averaged over the sequences. It raises a
      ValueError for a model without a state.

    Raises:
      ValueError: A step has no target.

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, figure 5
    """
    spec = run.spec
    check_gradient_steps(spec, steps)
    places = jnp.arange(spec.length)

    @jax.jit
    def state_gradient_norms(params, model_state, batch):
        rows, mask = len(batch.inputs), jnp.asarray(batch.loss_mask)
        # Of pairs, with an axis for the two sequences.
        shape = batch.inputs.shape[: 3 if spec.pair else 2]

        def loss(state, step):
            # Later steps are masked instead of sliced off: shapes stay static, so that
            # all `t` share one compilation.
            seen = jnp.broadcast_to(places < step, shape)
            seen = seen if batch.mask is None else seen & batch.mask
            counts = mask
            if spec.l_output is not None:
                counts = mask & (places[-spec.l_output :] == step - 1)
            predictions, _ = _apply(run, params, model_state, batch, state, seen)
            found = loss_sums(
                spec.targets, predictions, batch.targets, counts, loss=spec.loss
            )["loss"]
            # `rows` times the mean is the sum over rows. Rows are independent, so the
            # gradient by the state of a row is that of its own loss.
            return rows * found.part_of(found)

        state = _zero_state(run, params, model_state, batch, "gradient_steps", steps)
        return jax.lax.map(
            # `map` instead of `vmap`: one backward pass at a time is held in memory.
            lambda step: jnp.mean(_norms(jax.grad(loss)(state, step), rows), 0),
            jnp.asarray(steps),
        )

    return state_gradient_norms


def output_gradients(run: RunSpec, block: int) -> Measure:
    """Measures the gradient of blocks of the last prediction by the initial state.

    The outputs of the prediction after the last step are divided into blocks. The loss
    of a block is the mean squared error of its outputs over the batch.

    Args:
      run: The model and its task.
      block: Number of outputs per block; the last block may be smaller.

    Returns:
      A function of the parameters, the other variables and a batch that returns
      ``(k, 3)``: for each of the ``k`` blocks the `NORMS` of the gradient with respect
      to the initial states of all sequences, taken as one vector. It raises a
      ValueError for a model without a state.

    Raises:
      ValueError: The task has no such blocks.

    Note:
      The authors' code computes figure 5 in this way. The mean over ``B`` sequences
      divides the gradient of each by ``B``: L1 is the mean over the sequences, L2
      decreases like ``1 / sqrt(B)`` and L-infinity like ``1 / B``. Curves measured with
      different batch sizes are therefore not comparable.

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, figure 5
    """
    spec = run.spec
    check_gradient_outputs(spec, block)
    outputs = jnp.arange(spec.d_output)

    @jax.jit
    def output_gradient_norms(params, model_state, batch):
        def predictions(state):
            return _apply(run, params, model_state, batch, state, batch.mask)[0]

        def loss(predictions, first):
            inside = (outputs >= first) & (outputs < first + block)
            counts = jnp.asarray(batch.loss_mask)[:, None] & inside
            # `where` instead of a product with the mask: NaN * 0 is NaN.
            error = jnp.where(counts, predictions - batch.targets, 0)
            return jnp.sum(jnp.square(error)) / jnp.maximum(jnp.sum(counts), 1)

        state = _zero_state(run, params, model_state, batch, "gradient_outputs", block)
        # One forward pass serves all blocks.
        found, pull_back = jax.vjp(predictions, state)
        return jax.lax.map(
            # One block at a time: memory does not grow with the number of blocks.
            lambda first: _norms(pull_back(jax.grad(loss)(found, first)), 1)[0],
            jnp.arange(0, spec.d_output, block),
        )

    return output_gradient_norms


def _apply(run, params, model_state, batch, state, valid):
    variables = {"params": params, **model_state}
    flags = batch.flags | {"mask": valid}
    return run.model.apply(variables, batch.inputs, state, **flags)


def _zero_state(run, params, model_state, batch, name, value):
    """Returns zero states; ``name`` and ``value`` are the option for the error."""
    # Only shapes are needed, so the model is traced and not run.
    (_, state) = jax.eval_shape(
        lambda: _apply(run, params, model_state, batch, None, batch.mask)
    )
    if not jax.tree.leaves(state):
        raise ValueError(
            f"`{name}` must be left out for a bidirectional model, got "
            f"{value}; it has no initial state."
        )
    # Explicit zeros: None, the default, has no leaves to differentiate with respect to.
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), state)


def _norms(tree, rows) -> Float[Array, "b 3"]:
    """The `NORMS` of all leaves together, for each of ``rows`` rows."""
    # The modulus is the same for the gradient and its conjugate, which JAX returns for
    # complex states.
    leaves = [jnp.abs(leaf).reshape(rows, -1) for leaf in jax.tree.leaves(tree)]
    x = jnp.concatenate(leaves, -1)
    l2 = jnp.sqrt(jnp.sum(jnp.square(x), -1))
    return jnp.stack([jnp.sum(x, -1), l2, jnp.max(x, -1)], -1)
