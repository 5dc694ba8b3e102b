r"""State tracking by recurrences of several ranges of eigenvalues.

    ssm-jax train --workdir=runs/parity \
        --config=experiments/synthetic/state_tracking.py:task=parity,model=tanh
    ssm-jax evaluate --workdir=runs/parity --mode=lengths --lengths=40,160,640

===========  ===========================================================================
variant      description
===========  ===========================================================================
task         ``parity``; ``sum3`` and ``sum5``, sums modulo 3 of 0, 1 and 2 and modulo 5
             of -1, 0 and 1; ``z60``, ``s3``, ``a4xz5``, ``a5`` and ``s5``, words of
             these groups
elements     of which words of groups are made: ``all`` (default), or ``two`` that
             generate the group
model        ``sigmoid``, ``tanh``, ``cosine`` or ``phase``, a `DiagonalRNN` with these
             eigenvalues, in (0, 1), (-1, 1), [-1, 1] and of modulus 1; ``clock``, DLR
             with eigenvalues of modulus 1, which do not depend on the input; ``delta``,
             DeltaNet with eigenvalues in [-1, 1], and ``delta_positive``, in [0, 1];
             ``mamba``; or ``gru``
convolution  ``none`` (default), or ``before``: a block with a convolution of 4 steps
             before the recurrence
length       symbols of the longest words in training, 40 by default
loss         at ``each`` symbol (default), or at the ``last`` one of a word
===========  ===========================================================================

One block of 32 channels with an MLP, trained on words of 2 to 40 symbols with a loss at
each symbol, in about half a minute on one core, or for words of groups one to two. A
model that tracks the state is right at the last symbol of words several times as long;
one that has only fitted the lengths of training is not. ``--mode=lengths`` measures
words of 2 symbols to each length, as in training; `experiments.synthetic.claims` those
of each length. The sizes are ours; the published settings are in the docstrings of the
tasks.
"""

import dataclasses
from typing import Literal

from experiments.synthetic import settings
from ssm_jax import tasks
from ssm_jax.config import Config, build, spec
from ssm_jax.fields import PositiveInt
from ssm_jax.layers import (
    MLP,
    ChannelMixing,
    GatedDeltaNet,
    Mamba,
    RecurrentLayer,
)
from ssm_jax.models import Block
from ssm_jax.recurrences import DLR, GRU, DiagonalRNN, GatedDeltaRule
from ssm_jax.variants import format_variant, parse_variant

SHORTEST = 2  # Symbols of a word.
STEPS_OF_GROUPS = 6_000
D_MODEL, HEADS = 32, 2
# The name of each group, and two elements that generate it.
_GROUPS = {
    "z60": ("Z60", 1, 59),
    "s3": ("S3", 2, 3),
    "a4xz5": ("A4xZ5", 5, 16),
    "a5": ("A5", 15, 16),
    "s5": ("S5", 24, 33),
}


ModelName = Literal[
    "sigmoid",
    "tanh",
    "cosine",
    "phase",
    "clock",
    "delta",
    "delta_positive",
    "mamba",
    "gru",
]


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    task: Literal["parity", "sum3", "sum5", "z60", "s3", "a4xz5", "a5", "s5"]
    model: ModelName
    elements: Literal["all", "two"] = "all"
    convolution: Literal["none", "before"] = "none"
    length: PositiveInt = 40
    loss: Literal["each", "last"] = "each"


def get_config(variant: str = "task=parity,model=tanh") -> Config:
    """Returns the config of a variant.

    Raises:
      ValueError: Two elements are chosen for a task that is not words of a group.
    """
    choices = parse_variant(variant, Variant)
    if choices.elements == "two" and choices.task not in _GROUPS:
        raise ValueError(
            f"`variant: elements` must be left out for {choices.task}, got two; it is "
            "of words of groups, such as task=a5."
        )
    task = _task(choices)
    task_spec = build(task, "config.task").spec
    block = Block(
        _layer(choices.model),
        norm="rms",
        prenorm=True,
        feedforward=MLP(d_hidden=4 * D_MODEL),
    )
    return settings.experiment(
        {"experiment": "synthetic/state_tracking", "variant": format_variant(choices)},
        task,
        task_spec,
        block,
        d_model=D_MODEL,
        n_blocks=1,
        is_convolved=choices.convolution == "before",
        l_output=None,
        steps=STEPS_OF_GROUPS if choices.task in _GROUPS else 2_000,
        batch_size=32,
        log_every=200,
        warmup_steps=50,
        weight_decay=0.0,
    )


def _task(choices: Variant) -> Config:
    """The task of a variant."""
    words = {
        "length": choices.length,
        "shortest": SHORTEST,
        "last_only": choices.loss == "last",
    }
    if choices.task == "parity":
        return spec(tasks.Parity, **words)
    if choices.task == "sum3":
        return spec(tasks.ModularSums, modulus=3, moves=(0, 1, 2), **words)
    if choices.task == "sum5":
        return spec(tasks.ModularSums, modulus=5, moves=(-1, 0, 1), **words)
    group, *two = _GROUPS[choices.task]
    elements = tuple(two) if choices.elements == "two" else None
    return spec(tasks.GroupWords, group=group, elements=elements, **words)


def _layer(model: ModelName):
    """A layer over time of width ``D_MODEL``."""
    mixing = ChannelMixing()
    match model:
        case "sigmoid" | "tanh" | "cosine" | "phase":
            unit = DiagonalRNN(d_state=D_MODEL, eigenvalues=model)
            return RecurrentLayer(unit, mixing)
        case "clock":
            return RecurrentLayer(DLR(d_state=D_MODEL, eigenvalues="unit"), mixing)
        case "gru":
            return RecurrentLayer(GRU(d_state=D_MODEL), mixing)
        case "mamba":
            # A convolution of one step is none.
            return Mamba(d_conv=1)
        case "delta" | "delta_positive":
            rule = GatedDeltaRule(
                n_heads=HEADS,
                d_key=D_MODEL // HEADS,
                d_value=D_MODEL // HEADS,
                decay=False,
                negative_eigenvalues=model == "delta",
            )
            return GatedDeltaNet(rule, d_conv=1, gate=False)
