r"""ETSMLP on Path-X: Pathfinder of 128 x 128 pixels, 16,384 steps; table 1.

    python -m launch.train --config=experiments/etsmlp/pathx.py:gate+small_change \
        --workdir=runs/x
    python -m launch.prepare --dataset=pathfinder128 --data_dir=FOLDER

The second command is for many runs: it draws the images once; ``--data_dir`` names
them. The variant is ``gate`` or a baseline or nothing; ``small_change`` for the
smoothing that the authors' code has for this length, without which, they say, Path-X is
not learned: the published figures are compared with these variants alone. ``small`` is
a size that two CPU cores train in an hour, which is not enough to leave chance: the
authors' loss begins to fall after 100,000 steps.
"""

import dataclasses

from experiments.etsmlp import parts
from experiments.etsmlp.parts import Setting
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Pathfinder

PAPER = {"": 0.8721, "gate": 0.9378}
FULL = Setting(
    d_model=128,
    n_layers=6,
    d_hidden=256,
    norm="batch",
    learning_rate=0.05,
    ring=(0.99, 0.9999, 0.314),
    steps=125_000,
    batch_size=128,
)
SMALL = dataclasses.replace(
    FULL, d_model=32, n_layers=2, d_hidden=32, learning_rate=0.01, batch_size=16,
    steps=2_000,
)  # fmt: skip


def get_config(variant: str = "") -> Config:
    """The experiment in one of its variants."""
    model, small_change, small = parts.chosen(
        variant, parts.MODELS, ("small_change",), ("small",)
    )
    setting = SMALL if small else FULL
    if small_change:
        setting = dataclasses.replace(
            setting, small_change=True, ring=(0.999, 0.9999, 0.314)
        )
    task = spec(Pathfinder, size=128)
    if small:
        task.update(n_train=5_000, n_validation=500, n_test=1_000)
    return parts.experiment(
        "etsmlp/pathx",
        variant,
        PAPER.get(model) if small_change and not small else None,
        setting,
        task=task,
        length=128 * 128,
        encoder=parts.pixels(setting),
        head=parts.pooled(2),
        model=model,
    )
