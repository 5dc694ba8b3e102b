"""DLR on Shift: eight delays of a sequence, each a kernel with a single nonzero tap.

    python -m launch.train --config=experiments/dlr/shift.py --workdir=runs/shift

=========  =====================================================
variant    description
=========  =====================================================
(none)     table 1, DLR of one layer, L = 4096 (paper: R2 1.00)
size=demo  L = 1024, 64 channels, 1,024 states, 800 steps
=========  =====================================================
"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict

from experiments.dlr import atomic
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Shift
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
    task = spec(Shift, length=1024 if demo else 4096)
    model = atomic.model(task.get_ref("n_shifts"))
    optimizer, training = atomic.optimizer(), atomic.training()
    if demo:
        model = atomic.model(task.get_ref("n_shifts"), d_model=64, d_state=1024)
        optimizer.learning_rate = 1e-3
        training.update(steps=800, evaluate_every=200, evaluation_batches=8, seed=0)
    return ConfigDict(
        {
            "experiment": "dlr/shift",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": task,
            "model": model,
            "optimizer": optimizer,
            "training": training,
        }
    )
