r"""DLR on MNIST, one pixel per step, 784 steps.

    python -m launch.train --config=experiments/dlr/pixel_mnist.py \
        --data_dir=FOLDER --workdir=runs/pixel_mnist

``FOLDER`` holds mnist as tensorflow_datasets prepares it in the array_record format.

=============  =============================================================
variant        description
=============  =============================================================
(none)         20 epochs, 4 layers of 128 channels and 256 states
permuted=true  the same with one random permutation of all images' pixels
size=small     600 steps of 2 layers of 32 channels and 64 states, for a CPU
=============  =============================================================
"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict

from experiments.dlr import pixels
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelMnist
from ssm_jax.training import TrainConfig
from ssm_jax.variants import format_variant, parse_variant


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    permuted: bool = False
    size: Literal["full", "small"] = "full"


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    model = pixels.model(d_model=128, d_state=256, n_layers=4, dropout=0.1)
    training = spec(TrainConfig, steps=22_000, batch_size=50, evaluate_every=1100)
    if choices.size == "small":
        model = pixels.model(d_model=32, d_state=64, n_layers=2, dropout=0.0)
        training.update(steps=600, evaluate_every=200)
    return ConfigDict(
        {
            "experiment": "dlr/pixel_mnist",
            "variant": format_variant(choices),
            "paper": None,
            "task": spec(PixelMnist, permuted=choices.permuted),
            "model": model,
            "optimizer": pixels.optimizer(3e-3, training),
            "training": training,
        }
    )
