r"""DLR on MNIST, read one pixel at a time, 784 steps.

    python -m launch.train --config=experiments/dlr/pixel_mnist.py \
        --data_dir=FOLDER --workdir=runs/pixel_mnist

``FOLDER`` holds mnist as tensorflow_datasets prepares it in the array_record format.

========  ==============================================================
variant   what it is
========  ==============================================================
(none)    20 epochs, 4 layers of 128 channels and 256 states
permuted  the same with the pixels of all images in one random order
small     600 steps of 2 layers of 32 channels and 64 states, for a CPU
========  ==============================================================
"""

from ml_collections import ConfigDict

from experiments.dlr import atomic, pixels
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelMnist
from ssm_jax.training import TrainConfig


def get_config(variant: str = "") -> Config:
    """The experiment, or its variant ``permuted`` or ``small``."""
    if variant not in ("", "permuted", "small"):
        raise atomic.unknown(variant, ["permuted", "small"])
    model = pixels.model(d_model=128, d_state=256, n_layers=4, dropout=0.1)
    training = spec(TrainConfig, steps=22_000, batch_size=50, evaluate_every=1100)
    if variant == "small":
        model = pixels.model(d_model=32, d_state=64, n_layers=2, dropout=0.0)
        training.update(steps=600, evaluate_every=200)
    return ConfigDict(
        {
            "experiment": "dlr/pixel_mnist",
            "variant": variant,
            "paper": None,
            "task": spec(PixelMnist, permuted=variant == "permuted"),
            "model": model,
            "optimizer": pixels.optimizer(3e-3, training),
            "training": training,
        }
    )
