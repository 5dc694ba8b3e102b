r"""ETSMLP on Pathfinder: whether one curve connects two dots; table 1.

    python -m launch.train --config=experiments/etsmlp/pathfinder.py:model=gate \
        --workdir=runs/pathfinder
    python -m launch.prepare --dataset=pathfinder32 --data_dir=FOLDER

The second command generates the images once for several runs, which read them from
``--data_dir``. ``model=gate`` has a gate, other models are baselines, and
``size=small`` trains on two CPU cores in a quarter of an hour.
"""

import dataclasses

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting, Variant
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Pathfinder
from ssm_jax.variants import parse_variant

PAPER = {"": 0.8586, "model=gate": 0.9166}
FULL = Setting(
    d_model=128,
    n_layers=6,
    d_hidden=256,
    norm="batch",
    learning_rate=0.01,
    r_min=0.9,
    r_max=0.9999,
    max_phase=0.314,
    steps=250_000,
    batch_size=128,
)
SMALL = dataclasses.replace(
    FULL, d_model=64, n_layers=3, d_hidden=64, steps=2_000, batch_size=50
)


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    setting = SMALL if small else FULL
    task = spec(Pathfinder, n_train=40_000) if small else spec(Pathfinder)
    return settings.experiment(
        "etsmlp/pathfinder",
        choices,
        setting,
        published=PAPER,
        task=task,
        length=1024,
        encoder=settings.pixel_encoder(setting),
        head=settings.pooled_head(2),
    )
