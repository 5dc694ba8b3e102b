"""DLR on CumSum: the prefix sum divided by the square root of its length.

    python -m launch.train --config=experiments/dlr/cumsum.py --workdir=runs/cumsum

=========  =====================================================
variant    description
=========  =====================================================
(none)     table 1, DLR of one layer, L = 4096 (paper: R2 1.00)
size=demo  L = 1024, 64 channels, 256 states, 800 steps
=========  =====================================================
"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict

from experiments.dlr import atomic
from ssm_jax.config import Config, spec
from ssm_jax.tasks import CumSum
from ssm_jax.variants import format_variant, parse_variant

PAPER = {"": 1.0}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant; ``demo`` takes a minute on 2 CPU cores."""

    size: Literal["full", "demo"] = "full"


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    chosen = parse_variant(variant, Variant)
    demo, variant = chosen.size == "demo", format_variant(chosen)
    task = spec(CumSum, length=1024 if demo else 4096)
    model = atomic.model(1)
    optimizer, training = atomic.optimizer(), atomic.training()
    if demo:
        model = atomic.model(1, d_model=64, d_state=256)
        optimizer.learning_rate = 1e-3
        training.update(steps=800, evaluate_every=200, evaluation_batches=8, seed=0)
    return ConfigDict(
        {
            "experiment": "dlr/cumsum",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": task,
            "model": model,
            "optimizer": optimizer,
            "training": training,
        }
    )
