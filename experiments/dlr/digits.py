"""DLR on handwritten digits of 8x8 pixels, read one pixel at a time; no network needed.

    python -m launch.train --config=experiments/dlr/digits.py --workdir=runs/digits

The data come with scikit-learn: 1,347 images to train on, 150 to choose the checkpoint
by, 300 to test. A minute on 2 CPU cores.
"""

from ml_collections import ConfigDict

from experiments.dlr import atomic, pixels
from ssm_jax.config import Config, spec
from ssm_jax.tasks import Digits
from ssm_jax.training import TrainConfig


def get_config(variant: str = "") -> Config:
    """The experiment; it has no variants."""
    if variant:
        raise atomic.unknown(variant, [])
    training = spec(TrainConfig, steps=600, batch_size=64, evaluate_every=100)
    return ConfigDict(
        {
            "experiment": "dlr/digits",
            "variant": variant,
            "paper": None,
            "task": spec(Digits),
            "model": pixels.model(d_model=48, d_state=32, n_layers=2, dropout=0.1),
            "optimizer": pixels.optimizer(5e-3, training),
            "training": training,
        }
    )
