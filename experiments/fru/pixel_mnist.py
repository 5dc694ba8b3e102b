r"""FRU, SRU, LSTM and RNN on MNIST, one pixel a step; tables 1 and 2.

    python -m launch.train --config=experiments/fru/pixel_mnist.py:pixels+fru \
        --data_dir=FOLDER --workdir=runs/pixels_fru

The variant is ``pixels`` or ``permuted``, then ``+`` and ``fru``, ``sru``, ``lstm`` or
``rnn``; with ``+small`` one of the hundred epochs. ``FOLDER`` holds mnist, as ``python
-m launch.prepare`` makes it. The authors pool all images and test on a fifth of them;
here the test split is the usual one, and a tenth of the others is for validation.
"""

from ml_collections import ConfigDict

from experiments.fru import units
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelMnist
from ssm_jax.training import Training

WAVES = {"n": 60, "greatest": 784.0, "horizon": 784, "d_statistic": 10}
PAPER = {
    "pixels+fru": 0.9761,
    "pixels+sru": 0.9620,
    "pixels+lstm": 0.9817,
    "pixels+rnn": 0.1039,
    "permuted+fru": 0.9693,
    "permuted+sru": 0.9221,
    "permuted+lstm": 0.9026,
    "permuted+rnn": 0.8746,
}
# Learning rate, its factor every 1,000 steps, and the bound on the gradient.
RATES = {
    "pixels+fru": (0.005, 0.9, None),
    "pixels+sru": (0.001, 0.8, None),
    "pixels+lstm": (0.01, 0.8, 1.0),
    "pixels+rnn": (0.001, 0.9, None),
    "permuted+fru": (0.005, 0.9, 1.0),
    "permuted+sru": (0.001, 0.8, 1.0),
    "permuted+lstm": (0.001, 0.9, 1.0),
    "permuted+rnn": (0.001, 0.9, 1.0),
}


def get_config(variant: str = "pixels+fru") -> Config:
    """The experiment in one of its variants."""
    pixels, unit, small = units.chosen(variant, ("pixels", "permuted"))
    steps = 210 if small else 21_000
    training = spec(Training, steps=steps, batch_size=256, evaluate_every=steps // 10)
    return ConfigDict(
        {
            "experiment": "fru/pixel_mnist",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": spec(PixelMnist, permuted=pixels == "permuted"),
            "model": units.network(unit, d_output=10, waves=WAVES),
            "optimizer": units.optimizer(*RATES[f"{pixels}+{unit}"]),
            "training": training,
        }
    )
