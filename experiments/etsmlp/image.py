r"""ETSMLP on Image: what a grey photograph shows, pixel by pixel; table 1.

    python -m launch.train --config=experiments/etsmlp/image.py:model=gate \
        --data_dir=FOLDER --workdir=runs/image

``FOLDER`` holds cifar10, as ``python -m launch.prepare`` makes it. ``model=gate``
has a gate, other models are baselines, and ``size=small`` is a size that two CPU cores
train in a quarter of an hour.
"""

import dataclasses

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelCifar10
from ssm_jax.variants import format_variant, parse_variant

PAPER = {"": 0.7814, "model=gate": 0.7534}
FULL = Setting(
    d_model=160,
    n_layers=12,
    d_hidden=320,
    norm="batch",
    learning_rate=0.01,
    r_min=0.6,
    r_max=0.9,
    max_phase=3.14,
    steps=180_000,
    batch_size=50,
)
SMALL = dataclasses.replace(FULL, d_model=64, n_layers=3, d_hidden=64, steps=2_000)


@dataclasses.dataclass(frozen=True)
class Variant:
    """The choices."""

    model: settings.Model = "etsmlp"
    size: settings.Size = "full"


def get_config(variant: str = "") -> Config:
    """The experiment in one of its variants."""
    chosen = parse_variant(variant, Variant)
    variant, small = format_variant(chosen), chosen.size == "small"
    setting = SMALL if small else FULL
    return settings.experiment(
        "etsmlp/image",
        variant,
        PAPER.get(variant),
        setting,
        task=spec(PixelCifar10),
        length=1024,
        encoder=settings.pixels(setting),
        head=settings.pooled(10),
        model=chosen.model,
    )
