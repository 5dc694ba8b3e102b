r"""Recall and copying by attention, by states that are matrices, and by filters.

    ssm-jax train --workdir=runs/recall \
        --config=experiments/synthetic/recall.py:task=recall,model=linear_attention
    ssm-jax evaluate --workdir=runs/recall --mode=lengths --lengths=48,96

===========  ===========================================================================
variant      description
===========  ===========================================================================
task         ``recall``, eight keys of a row are asked for their values; ``copying``,
             four tokens among 28 steps of noise are repeated; ``induction``, what
             followed a special token before is predicted when it comes again
model        ``attention``; ``linear_attention``, the state is a matrix to which each
             step adds; ``delta``, Gated DeltaNet; ``mamba2``; ``mamba``; ``s4d``, whose
             decays do not depend on the input; ``gated_s4d``, that in the block of
             Mamba, where the input multiplies its outputs
width        channels: 16, 32 or 64 (default)
convolution  ``before`` (default), a block with a convolution of 4 steps before each of
             the others, or ``none``
===========  ===========================================================================

Two blocks without MLPs, as in the papers on recall, trained in half a minute to two
minutes on one core. The sizes are ours; the published settings are in the docstrings of
the tasks.
"""

import dataclasses
from typing import Literal

from experiments.synthetic import settings
from ssm_jax import tasks
from ssm_jax.config import Config, build, spec
from ssm_jax.layers import (
    Attention,
    ChannelMixing,
    GatedDeltaNet,
    Mamba,
    Mamba2,
    RecurrentLayer,
)
from ssm_jax.models import Block
from ssm_jax.recurrences import S4D, SSD, GatedDeltaRule, SelectiveSSM
from ssm_jax.variants import format_variant, parse_variant

N_LAYERS = 2
STEPS = 1_500

ModelName = Literal[
    "attention", "linear_attention", "delta", "mamba2", "mamba", "s4d", "gated_s4d"
]


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    task: Literal["recall", "copying", "induction"]
    model: ModelName
    width: Literal[16, 32, 64] = 64
    convolution: Literal["before", "none"] = "before"


def get_config(variant: str = "task=recall,model=linear_attention") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    width, task = choices.width, _task(choices.task)
    task_spec = build(task, "config.task").spec
    return settings.experiment(
        {"experiment": "synthetic/recall", "variant": format_variant(choices)},
        task,
        task_spec,
        Block(_layer(choices.model, width), norm="rms", prenorm=True),
        d_model=width,
        n_blocks=N_LAYERS,
        is_convolved=choices.convolution == "before",
        # Where all steps have targets, also those of longer rows.
        l_output=None if choices.task == "recall" else task_spec.l_output,
        steps=STEPS,
        batch_size=64,
        log_every=100,
        warmup_steps=100,
        weight_decay=0.1,
    )


def _task(name: str) -> Config:
    """The task of a name."""
    if name == "recall":
        return spec(tasks.AssociativeRecall, length=48, vocabulary=128, n_pairs=8)
    if name == "copying":
        return spec(tasks.SelectiveCopying, length=36, n_data=4)
    return spec(tasks.InductionHeads, length=64)


def _layer(model: ModelName, width: int):
    """A layer over time. A convolution of one step, as here inside of them, is none."""
    match model:
        case "attention":
            return Attention(n_heads=1, kind="rotary")
        case "linear_attention":
            return Attention(n_heads=1, kind="linear")
        case "delta":
            rule = GatedDeltaRule(n_heads=1, d_key=width, d_value=width)
            return GatedDeltaNet(rule, d_conv=1)
        case "mamba2":
            return Mamba2(SSD(d_head=width, d_state=width), d_conv=1, n_layers=N_LAYERS)
        case "mamba":
            return Mamba(SelectiveSSM(), d_conv=1, n_layers=N_LAYERS)
        case "gated_s4d":
            return Mamba(S4D(), d_conv=1, n_layers=N_LAYERS)
        case "s4d":
            return RecurrentLayer(S4D(), ChannelMixing())
