"""The atomic tasks: eleven sequences of random numbers and their transformations.

    python -m launch.train --config=experiments/dlr/atomic.py:task=shift \
        --workdir=runs/shift

========  ============================================================================
variant   description
========  ============================================================================
task      ``shift``, ``cumsum``, ``cummax``, ``reverse``, ``sort``, ``select``,
          ``select_fixed``, ``mips``, ``context_shift``, ``solve``, ``solve_fixed``
model     ``dlr`` (default), ``dlr_real``, DLR-R, whose decays and weights are real,
          ``dss``, the exponential kernel of DSS, ``attention``, or
          ``attention_feedforward``, attention with feed-forward layers, of table 6
n_layers  1 (default), 2 or 6
length    4096 (default) or 512; tasks with outputs after the inputs are longer
size      ``full`` (default), the setting of table 1. ``demo``: `Shift` or `CumSum` of
          1,024 steps on one layer of DLR in two minutes. ``small``: table 1 at a
          reduced size, about a minute on one core, or three with 6 layers on
          sequences of twice the length. ``short``: Solve of 48 steps, Select of 4
          among 32 values and Reverse of 32 values, to compare numbers of layers, a few
          minutes on one core. ``narrow``: the published length with 16 channels and 64
          states, a minute or two on one core
d_state   states per channel of a recurrence, where they are others than those of the
          size
dtype     ``float32`` (default) or ``bfloat16``, the dtype of the computation
========  ============================================================================

The setting of table 1 of Gupta, Mehta and Berant, arXiv 2212.00768, completed from the
authors' repository: 128 channels, 4,096 states of equal decay, post-norm blocks with
the scalar norm, a constant learning rate for all parameters, no weight decay, 12 epochs
of 57,600 new sequences. The published R2 is the mean over batches, ``r2_batch``.

The reduced table 1 has tasks of length 128 with 8 values to select and 10 equations to
solve, 32 channels, 256 states, and 1,600 steps with 16 sequences at the learning rate
2e-3, for all tasks and models. The initial decay rates of the states are multiplied by
the ratio of the lengths, so that states decay as much over a sequence as published.
"""

import dataclasses
from typing import Literal, NamedTuple

from ml_collections import ConfigDict

from experiments.dlr import attention
from ssm_jax import tasks
from ssm_jax.config import Config, build, spec
from ssm_jax.fields import PositiveInt
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.models.precision import ComputeDtype
from ssm_jax.recurrences import DLR, DSS
from ssm_jax.training import Optimizer, TrainConfig
from ssm_jax.variants import format_variant, parse_variant

TaskName = Literal[
    "shift", "cumsum", "cummax", "select_fixed", "solve_fixed", "reverse", "solve",
    "select", "sort", "context_shift", "mips",
]  # fmt: skip
"""In the order of table 1."""

ModelName = Literal["dlr", "dlr_real", "dss", "attention", "attention_feedforward"]

TASKS: dict[TaskName, type] = {
    "shift": tasks.Shift,
    "cumsum": tasks.CumSum,
    "cummax": tasks.CumMax,
    "select_fixed": tasks.SelectFixed,
    "solve_fixed": tasks.SolveFixed,
    "reverse": tasks.Reverse,
    "solve": tasks.Solve,
    "select": tasks.Select,
    "sort": tasks.Sort,
    "context_shift": tasks.ContextShift,
    "mips": tasks.MIPS,
}

COLUMNS = (
    "",
    ",model=dss",
    ",model=attention",
    ",n_layers=6",
    ",n_layers=6,length=512",
    ",model=attention,n_layers=2,length=512",
)
"""The columns of table 1, as variants of each task."""

COLUMNS_6 = (
    ",model=attention_feedforward",
    ",model=attention_feedforward,n_layers=2,length=512",
)
"""The columns of table 6."""

_R2: dict[TaskName, tuple[float, ...]] = {
    "shift": (1, 0.99, 0.72, 1, 1, 1),
    "cumsum": (1, 1, 1, 1, 1, 1),
    "cummax": (0.52, 0.51, 1, 1, 1, 1),
    "select_fixed": (0.97, 0, 0.72, 1, 1, 0.94),
    "solve_fixed": (1, 0.01, 0, 1, 1, 0.95),
    "reverse": (0.01, 0, 0.03, 0.99, 0.95, 0.28),
    "solve": (0, 0, 0, 0, 0.95, 0),
    "select": (0, 0, 0.17, 0, 0.86, 0.97),
    "sort": (0, 0, 0, 0.49, 0.50, 0.51),
    "context_shift": (0, 0, 0, 0.02, 0.11, 0.04),
    "mips": (0, 0, 0.90, 0, 0.01, 0.97),
}
R2_6: dict[TaskName, tuple[float, float]] = {
    "shift": (0.69, 1),
    "select_fixed": (0, 1),
    "solve_fixed": (0, 0.96),
    "reverse": (0.04, 0.32),
    "solve": (0, 0),
    "select": (0, 0.64),
    "sort": (0, 0.51),
    "context_shift": (0, 0.05),
}
"""The tasks of table 6."""

PAPER = {
    f"task={task}{column}": float(r2)
    for columns, table in ((COLUMNS, _R2), (COLUMNS_6, R2_6))
    for task, row in table.items()
    for column, r2 in zip(columns, row, strict=True)
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    task: TaskName
    model: ModelName = "dlr"
    n_layers: Literal[1, 2, 6] = 1
    length: Literal[4096, 512] = 4096
    size: Literal["full", "demo", "small", "short", "narrow"] = "full"
    dtype: ComputeDtype = "float32"
    d_state: PositiveInt | None = None


class Size(NamedTuple):
    """Sizes of a run.

    Attributes:
      length: Length of the task.
      d_model: Number of channels.
      d_state: Number of states per channel.
      learning_rate: Constant learning rate.
      steps: Number of steps.
      batch_size: Number of sequences per step.
      evaluate_every: Number of steps between evaluations.
      evaluation_batches: Number of batches of an evaluation.
    """

    length: int
    d_model: int
    d_state: int
    learning_rate: float
    steps: int
    batch_size: int
    evaluate_every: int
    evaluation_batches: int


DLR_RATES = {4096: 1e-4, 512: 5e-5}
"""Learning rates of the paper for DLR, by length."""

DEMO = {
    "shift": Size(1024, 64, 1024, 1e-3, 800, 16, 200, 8),
    "cumsum": Size(1024, 64, 256, 1e-3, 800, 16, 200, 8),
}

SMALL = Size(128, 32, 256, 2e-3, 1600, 16, 400, 16)
"""Sizes of the reduced table 1, of all its cells."""

NARROW = Size(4096, 16, 64, 2e-3, 300, 8, 100, 16)
"""Sizes of sequences of the published length on one core."""

SHORT: dict[TaskName, Size] = {
    "solve": Size(48, 32, 64, 2e-3, 4000, 32, 1000, 16),
    "select": Size(32, 32, 64, 2e-3, 4000, 32, 1000, 16),
    "reverse": Size(32, 32, 64, 2e-3, 4000, 32, 1000, 16),
}
"""Sizes of the tasks by which numbers of layers are compared."""

SELECTED = {"small": 8, "short": 4}
"""Values that Select selects there, where the paper has 32."""


def _full(choices: Variant) -> Size:
    # Of all tasks, and of MIPS for attention.
    rate = 1e-4 if "attention" in choices.model and choices.task == "mips" else 1e-3
    if choices.model in ("dlr", "dlr_real"):
        rate = DLR_RATES[choices.length]
    # The authors train MIPS for as many epochs with smaller batches.
    batch_size = {512: 64, 4096: 4 if choices.task == "mips" else 16}[choices.length]
    # An epoch of 16,000 sequences is 14,400 for training, from each of four workers.
    steps = 4 * 14_400 // batch_size
    return Size(
        choices.length,
        128,
        4096,
        rate,
        12 * steps,
        batch_size,
        steps,
        6400 // batch_size,
    )


def _demo(choices: Variant) -> Size:
    if choices != Variant(choices.task, size="demo") or choices.task not in DEMO:
        raise ValueError(
            "`variant: size` must be full or small but for one layer of DLR on shift "
            f"or cumsum, got {format_variant(choices)}; small takes about a minute too."
        )
    return DEMO[choices.task]


def _small(choices: Variant) -> Size:
    if choices.length != 4096:
        raise ValueError(
            f"`variant: length` must be left out for size={choices.size}, which has "
            f"its own, got {choices.length}; length=512 is a published setting."
        )
    if choices.size != "short":
        return SMALL if choices.size == "small" else NARROW
    if choices.task not in SHORT:
        raise ValueError(
            f"`variant: task` must be one of {', '.join(SHORT)} for size=short, got "
            f"{choices.task}; size=small has all tasks."
        )
    return SHORT[choices.task]


def _layer(choices: Variant, size: Size) -> Config:
    """The spec of the layer of a block."""
    # The published dt does not depend on the length.
    scale = 4096 / size.length if choices.size in ("small", "short") else 1
    if choices.model.startswith("attention") and choices.d_state is not None:
        raise ValueError(
            "`variant: d_state` must be left out for attention, which has no such "
            f"states, got {choices.d_state}."
        )
    if choices.model == "attention":
        return attention.attention()
    if choices.model == "attention_feedforward":
        return attention.attention_feedforward(size.d_model)
    d_state = choices.d_state or size.d_state
    if choices.model == "dss":
        recurrence = spec(
            DSS,
            d_state=d_state,
            eigenvalue_init="lin",
            dt_min=1e-4 * scale,
            dt_max=1e-2 * scale,
        )
    else:
        fields = {"eigenvalues": "real"} if choices.model == "dlr_real" else {}
        dt = 1e-5 * scale
        recurrence = spec(DLR, d_state=d_state, dt_min=dt, dt_max=dt, **fields)
    return spec(RecurrentLayer, recurrence=recurrence, mixing=spec(ChannelMixing))


def _head(task: Config, choices: Variant) -> Config:
    """The spec of the head; it follows the fields of the task that can be changed."""
    outputs = {"shift": "n_shifts", "mips": "d_vector"}.get(choices.task)
    steps = {
        "reverse": "length",
        "sort": "length",
        "select": "n_selected",
        "select_fixed": "n_selected",
    }.get(choices.task)
    if choices.task in ("solve", "solve_fixed"):
        l_output = build(task).spec.l_output
    else:
        l_output = task.get_ref(steps) if steps else None
    d_output = task.get_ref(outputs) if outputs else 1
    return spec(StepHead, d_output=d_output, l_output=l_output)


def get_config(variant: str = "task=shift") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    size = {"full": _full, "demo": _demo}.get(choices.size, _small)(choices)
    variant = format_variant(choices)
    fields = {"length": size.length}
    if choices.size in SELECTED and choices.task in ("select", "select_fixed"):
        fields["n_selected"] = SELECTED[choices.size]
    task = spec(TASKS[choices.task], **fields)
    return ConfigDict(
        {
            "experiment": "dlr/atomic",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=spec(VectorEncoder, d_model=size.d_model),
                block=spec(Block, layer=_layer(choices, size), norm="scalar"),
                n_layers=choices.n_layers,
                head=_head(task, choices),
                dtype=choices.dtype,
            ),
            "optimizer": spec(Optimizer, learning_rate=size.learning_rate),
            "training": spec(
                TrainConfig,
                steps=size.steps,
                batch_size=size.batch_size,
                seed=1112 if choices.size == "full" else 0,
                log_every=100,
                evaluate_every=size.evaluate_every,
                evaluation_batches=size.evaluation_batches,
            ),
        }
    )
