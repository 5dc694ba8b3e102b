r"""ETSMLP on Pathfinder: whether two dots are the ends of one curve; table 1.

    python -m launch.train --config=experiments/etsmlp/pathfinder.py:gate \
        --workdir=runs/pathfinder
    python -m launch.prepare --dataset=pathfinder32 --data_dir=FOLDER

The second command is for many runs: it draws the images once; ``--data_dir`` names
them. The variant is ``gate`` or a baseline or nothing, and ``small`` for a size that
two CPU cores train in a quarter of an hour: ``gate+small``.
"""

import dataclasses

from experiments.etsmlp import parts
from experiments.etsmlp.parts import Setting
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Pathfinder

PAPER = {"": 0.8586, "gate": 0.9166}
FULL = Setting(
    d_model=128,
    n_layers=6,
    d_hidden=256,
    norm="batch",
    learning_rate=0.01,
    ring=(0.9, 0.9999, 0.314),
    steps=250_000,
    batch_size=128,
)
SMALL = dataclasses.replace(
    FULL, d_model=64, n_layers=3, d_hidden=64, steps=2_000, batch_size=50
)


def get_config(variant: str = "") -> Config:
    """The experiment in one of its variants."""
    model, small = parts.chosen(variant, parts.MODELS, ("small",))
    setting = SMALL if small else FULL
    task = spec(Pathfinder, n_train=40_000) if small else spec(Pathfinder)
    return parts.experiment(
        "etsmlp/pathfinder",
        variant,
        PAPER.get(variant),
        setting,
        task=task,
        length=1024,
        encoder=parts.pixels(setting),
        head=parts.pooled(2),
        model=model,
    )
