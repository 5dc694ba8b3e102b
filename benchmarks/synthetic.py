"""Time of a batch of the atomic tasks, relative to a training step."""

import functools
import statistics
import time
from collections.abc import Iterable

import jax

from benchmarks.measurement import Row
from ssm_jax import tasks
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.training import Optimizer
from ssm_jax.training.state import create
from ssm_jax.training.step import train_step

TASKS = (
    "Shift", "CumSum", "CumMax", "Reverse", "Sort", "Select", "SelectFixed", "MIPS",
    "ContextShift", "Solve", "SolveFixed",
)  # fmt: skip
BATCH_SIZE = 16


def task_rows(length: int, *, repeats: int, d_state: int = 4096) -> Iterable[Row]:
    """Times the batches of the atomic tasks and a step of the model of the paper.

    Args:
      length: Length of the tasks, of which some have longer sequences.
      repeats: Number of timed batches and steps, after one that is not timed.
      d_state: Number of states of the DLR layer, which has 128 channels.

    Yields:
      A row for each task: milliseconds of a batch and of a training step on CumSum,
      their ratio, and the name of the task.
    """
    step_ms = _step_ms(length, d_state, repeats)
    for name in TASKS:
        task = getattr(tasks, name)(length=length)
        batch_ms = _median_ms(
            lambda index, task=task: task.batch("train", index, BATCH_SIZE, seed=0),
            repeats,
        )
        yield {
            "length": length,
            "batch_ms": batch_ms,
            "step_ms": step_ms,
            "over_step": batch_ms / step_ms,
            "task": name,
        }


def _step_ms(length, d_state, repeats):
    task = tasks.CumSum(length=length)
    recurrence = DLR(d_state=d_state, dt_min=1e-5, dt_max=1e-5)
    model = SequenceModel(
        encoder=VectorEncoder(d_model=128),
        block=Block(RecurrentLayer(recurrence, ChannelMixing()), norm="scalar"),
        n_layers=1,
        head=StepHead(d_output=1),
    )
    run, state = create(model, task, Optimizer(learning_rate=1e-4), seed=0)
    step = jax.jit(functools.partial(train_step, run))
    batch = jax.device_put(task.batch("train", 0, BATCH_SIZE, seed=0))
    return _median_ms(lambda _: jax.block_until_ready(step(state, batch)), repeats)


def _median_ms(function, repeats):
    function(0)
    found = []
    for index in range(1, repeats + 1):
        start = time.perf_counter()
        function(index)
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)
