"""Shift at 16,384 to 1,048,576 steps: table 2.

    python -m launch.train --config=experiments/dlr/long_shift.py:model=dlr_prod \
        --workdir=runs/long_shift

========  ============================================================================
variant   description
========  ============================================================================
model     ``dlr`` (default), ``dlr_prod``, ``dss`` (exponential kernel), ``sgconv``
length    16384 (default), 65536, 262144 or 1048576
phases    ``even`` (default), or for ``dlr_prod`` ``coarse_fine`` or ``comb``
size      ``full`` (default), the setting of table 2. ``small``: 3,000 steps of 65,536
          inputs and ``2 sqrt(length)`` states; half an hour on 2 CPU cores
========  ============================================================================

With ``phases=coarse_fine`` the real part of a kernel can be a comb with teeth every
``N / 2`` steps and the imaginary part a peak ``N / 2`` steps wide, which is 0 at all
other teeth: with ``N = 2 sqrt(length)`` their product is exactly one tap. Modes do not
decay and phases are not trained, since a change of ``e`` turns the last tap by
``e length`` radians. ``phases=comb`` also starts at the comb, a kernel of 0, and only
has to learn the peak: the lags of this task are multiples of ``N / 2``. One tap of
height 1 has weights of ``2 / N``, which are therefore trained at a rate of that order.

Source: Gupta, Mehta and Berant, arXiv 2212.00768, table 2, completed from the authors'
repository: 32 channels, 4,096 states, 86,400 steps with 4 new sequences each. The
published R2 is the mean over batches, ``r2_batch``.
"""

import dataclasses
import math
from typing import Literal

from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR, DSS, SGConv
from ssm_jax.tasks import Shift
from ssm_jax.training import Optimizer, TrainConfig
from ssm_jax.variants import format_variant, parse_variant

Length = Literal[16_384, 65_536, 262_144, 1_048_576]
ModelName = Literal["dlr", "dlr_prod", "dss", "sgconv"]

_R2: dict[ModelName, tuple[float, ...]] = {
    "dss": (0.71, 0.34, 0.22, 0.22),
    "dlr": (0.83, 0.39, 0.25, 0.22),
    "sgconv": (0.88, 0.45, 0.27, 0.22),
    "dlr_prod": (1, 1, 0.98, 0.78),
}
RATES: dict[ModelName, float] = {
    "dss": 1e-3,
    "dlr": 1e-5,
    "sgconv": 1e-5,
    "dlr_prod": 1e-5,
}
"""Learning rates of the paper."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    model: ModelName = "dlr"
    length: Length = 16_384
    phases: Literal["even", "coarse_fine", "comb"] = "even"
    size: Literal["full", "small"] = "full"


PAPER = {
    format_variant(Variant(model, length)): float(r2)
    for model, row in _R2.items()
    for length, r2 in zip((16_384, 65_536, 262_144, 1_048_576), row, strict=True)
}


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    if choices.phases != "even" and choices.model != "dlr_prod":
        raise ValueError(
            f"`variant: phases` must be even for {choices.model}, got "
            f"{choices.phases}; only products have coarse and fine phases."
        )
    variant = format_variant(choices)
    task = spec(Shift, length=choices.length)
    # An epoch of 8,000 sequences is 7,200 for training, from each of four workers.
    training = spec(
        TrainConfig,
        steps=86_400,
        batch_size=4,
        seed=1112,
        log_every=100,
        evaluate_every=7_200,
        evaluation_batches=200,
    )
    optimizer = spec(Optimizer, learning_rate=RATES[choices.model])
    d_state = 4096
    if choices.size == "small":
        d_state = 2 * math.isqrt(choices.length)
        training.update(
            steps=3_000, seed=0, evaluate_every=500, evaluation_batches=8, log_every=50
        )
        training.batch_size = max(1, 65_536 // choices.length)
        optimizer = spec(
            Optimizer,
            learning_rate=3e-3,
            schedule="cosine",
            schedule_steps=training.get_ref("steps"),
        )
    recurrence = _recurrence(choices, d_state)
    layer = spec(RecurrentLayer, recurrence=recurrence, mixing=spec(ChannelMixing))
    return ConfigDict(
        {
            "experiment": "dlr/long_shift",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=spec(VectorEncoder, d_model=32),
                block=spec(Block, layer=layer, norm="scalar"),
                n_layers=1,
                head=spec(StepHead, d_output=task.get_ref("n_shifts")),
            ),
            "optimizer": optimizer,
            "training": training,
        }
    )


def _recurrence(choices: Variant, d_state: int) -> Config:
    """The spec of the recurrence."""
    # Kernels of the small size learn at a third of the rate of the other parameters.
    rate = 1.0 if choices.size == "full" else 1 / 3
    if choices.model == "dss":
        return spec(
            DSS, d_state=d_state, eigenvalue_init="lin", dt_min=1e-4, dt_max=1e-2,
            lr_multiplier=rate,
        )  # fmt: skip
    if choices.model == "sgconv":
        return spec(
            SGConv,
            d_state=d_state,
            length=choices.length,
            decay=1.0,
            lr_multiplier=rate,
        )
    recurrence = spec(DLR, d_state=d_state, dt_min=1e-5, dt_max=1e-5)
    recurrence.lr_multiplier = rate
    if choices.model == "dlr_prod":
        recurrence.readout = "prod"
    if choices.phases != "even":
        recurrence.update(
            eigenvalues="unit", phase_init="coarse_fine", phase_lr_multiplier=0.0
        )
        if choices.phases == "comb":
            recurrence.update(weight_init="comb", lr_multiplier=25.6 / d_state)
    elif choices.size == "small":
        recurrence.phase_lr_multiplier = 16_384 / choices.length * 0.1
    return recurrence
