r"""ETSMLP on Shift: what the parts of the smoothing buy where memory decides.

    python -m launch.train --workdir=runs/shift \
        --config=experiments/etsmlp/shift.py:length=64,ablation=real

The ablations of table 3 on a task that is not the paper's: noise, delayed by eight
evenly spaced numbers of steps up to 7/8 of ``length``, so that the length is how far a
model must remember. The first delay is 0: an R2 of 0.22 is that of a copy of the
inputs, and more takes memory. Two causal blocks, a minute or two on one core.
"""

import dataclasses
from typing import Literal

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting
from ssm_jax.config import Config, spec
from ssm_jax.models import StepHead, VectorEncoder
from ssm_jax.tasks import Shift
from ssm_jax.variants import parse_variant

SETTING = Setting(
    d_model=32,
    n_layers=2,
    d_hidden=128,
    learning_rate=1e-2,
    weight_decay=0.0,
    steps=3_000,
    batch_size=16,
)


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    length: Literal[16, 64, 256]
    ablation: settings.Ablation = "none"
    model: Literal["etsmlp", "gate"] = "etsmlp"


def get_config(variant: str = "length=64") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    task = spec(Shift, length=choices.length, n_shifts=8)
    return settings.experiment(
        "etsmlp/shift",
        choices,
        SETTING,
        published={},
        task=task,
        length=task.get_ref("length"),
        encoder=spec(VectorEncoder, d_model=SETTING.d_model),
        head=spec(StepHead, d_output=task.get_ref("n_shifts")),
        evaluation_batches=16,
        bidirectional=False,
        **settings.ABLATIONS.get(choices.ablation, {}),
    )
