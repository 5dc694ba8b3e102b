r"""ETSMLP on Image: what a grey photograph shows, pixel by pixel; table 1.

    python -m launch.train --config=experiments/etsmlp/image.py:gate \
        --data_dir=FOLDER --workdir=runs/image

``FOLDER`` holds cifar10, as ``python -m launch.prepare`` makes it. The variant is
``gate`` or a baseline or nothing, and ``small`` for a size that two CPU cores train in
a quarter of an hour: ``gate+small``.
"""

import dataclasses

from experiments.etsmlp import parts
from experiments.etsmlp.parts import Setting
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelCifar10

PAPER = {"": 0.7814, "gate": 0.7534}
FULL = Setting(
    d_model=160,
    n_layers=12,
    d_hidden=320,
    norm="batch",
    learning_rate=0.01,
    ring=(0.6, 0.9, 3.14),
    steps=180_000,
    batch_size=50,
)
SMALL = dataclasses.replace(FULL, d_model=64, n_layers=3, d_hidden=64, steps=2_000)


def get_config(variant: str = "") -> Config:
    """The experiment in one of its variants."""
    model, small = parts.chosen(variant, parts.MODELS, ("small",))
    setting = SMALL if small else FULL
    return parts.experiment(
        "etsmlp/image",
        variant,
        PAPER.get(variant),
        setting,
        task=spec(PixelCifar10),
        length=1024,
        encoder=parts.pixels(setting),
        head=parts.pooled(10),
        model=model,
    )
