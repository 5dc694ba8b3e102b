r"""ETSMLP on Path-X: Pathfinder of 128 x 128 pixels, 16,384 steps; table 1.

    python -m launch.train \
        --config=experiments/etsmlp/pathx.py:model=gate,small_change=true \
        --workdir=runs/pathx
    python -m launch.prepare --dataset=pathfinder128 --data_dir=FOLDER

The second command generates the images once for several runs, which read them from
``--data_dir``. ``model=gate`` has a gate, other models are baselines.
``small_change=true`` selects the smoothing of the authors' code for this length;
according to the authors, Path-X is not learned without it, so the published results are
compared with these variants only. ``size=small`` trains on two CPU cores in an hour,
which is not enough to exceed chance: the authors' loss begins to decrease after 100,000
steps.
"""

import dataclasses

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Pathfinder
from ssm_jax.variants import parse_variant

PAPER = {"small_change=true": 0.8721, "model=gate,small_change=true": 0.9378}
FULL = Setting(
    d_model=128,
    n_layers=6,
    d_hidden=256,
    norm="batch",
    learning_rate=0.05,
    r_min=0.99,
    r_max=0.9999,
    max_phase=0.314,
    steps=125_000,
    batch_size=128,
)
SMALL = dataclasses.replace(
    FULL, d_model=32, n_layers=2, d_hidden=32, learning_rate=0.01, batch_size=16,
    steps=2_000,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    model: settings.Model = "etsmlp"
    small_change: bool = False
    size: settings.Size = "full"


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    setting = SMALL if small else FULL
    if choices.small_change:
        setting = dataclasses.replace(
            setting, small_change=True, r_min=0.999, r_max=0.9999, max_phase=0.314
        )
    task = spec(Pathfinder, size=128)
    if small:
        task.update(n_train=5_000, n_validation=500, n_test=1_000)
    return settings.experiment(
        "etsmlp/pathx",
        choices,
        setting,
        published=PAPER,
        task=task,
        length=128 * 128,
        encoder=settings.pixel_encoder(setting),
        head=settings.pooled_head(2),
    )
