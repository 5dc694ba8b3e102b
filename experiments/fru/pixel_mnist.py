r"""FRU, SRU, LSTM and RNN on MNIST, one pixel or one row a step; tables 1 and 2.

    python -m launch.train --config=experiments/fru/pixel_mnist.py:pixels+fru \
        --data_dir=FOLDER --workdir=runs/pixels_fru

The variant is ``pixels``, ``permuted`` or ``rows`` (28 steps of 28 pixels, of which the
paper has curves alone, figures 10 and 11), then ``+`` and ``fru``, ``sru``, ``lstm`` or
``rnn``; or ``pixels+fru40``, the FRU of 40 frequencies of table 1, whose learning rate
is constant. With ``+small`` images of 14 by 14 pixels (rows stay as they are) and a
size of training that two CPU cores do in minutes; with ``+quarter`` all of it but
batches of 64 for 256, which they do in an hour. ``FOLDER`` holds mnist, as ``python -m
launch.prepare`` makes it.

The test split is the usual one. The authors pool all images and test on a fifth of
them: ``--config.task.pooled=True``.
"""

from ml_collections import ConfigDict

from experiments.fru import units
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelMnist
from ssm_jax.training import TrainConfig

WAVES = {"n": 60, "greatest": 784.0, "horizon": 784, "d_statistic": 10}
SMALL_WAVES = {"n": 40, "greatest": 196.0, "horizon": 196, "d_statistic": 10}
ROW_WAVES = {"n": 20, "greatest": 28.0, "horizon": 28, "d_statistic": 10}
PAPER = {
    "pixels+fru": 0.9761,
    "pixels+fru40": 0.9688,
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
    "pixels+fru40": (0.001, 1.0, None),
    "pixels+sru": (0.001, 0.8, None),
    "pixels+lstm": (0.01, 0.8, 1.0),
    "pixels+rnn": (0.001, 0.9, None),
    "permuted+fru": (0.005, 0.9, 1.0),
    "permuted+sru": (0.001, 0.8, 1.0),
    "permuted+lstm": (0.001, 0.9, 1.0),
    "permuted+rnn": (0.001, 0.9, 1.0),
}
SIZES = {
    "pixels": {"steps": 21_000, "batch_size": 256},
    "rows": {"steps": 10_500, "batch_size": 256},
    "pixels+quarter": {"steps": 21_000, "batch_size": 64},
    "rows+quarter": {"steps": 10_500, "batch_size": 64},
    "pixels+small": {"steps": 2_000, "batch_size": 64},
    "rows+small": {"steps": 5_000, "batch_size": 64},
}


def get_config(variant: str = "pixels+fru") -> Config:
    """The experiment in one of its variants."""
    tasks, sizes = ("pixels", "permuted", "rows"), ("small", "quarter")
    read, unit, size = units.chosen(variant, tasks, sizes, ("pixels+fru40",))
    rows, small = read == "rows", size == "small"
    numbers = SIZES[("rows" if rows else "pixels") + (size and f"+{size}")]
    waves = ROW_WAVES if rows else SMALL_WAVES if small else WAVES
    rates = RATES[f"permuted+{unit}" if rows else f"{read}+{unit}"]
    if unit == "fru40":
        unit, waves = "fru", waves | {"n": 40}
    return ConfigDict(
        {
            "experiment": "fru/pixel_mnist",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": spec(
                PixelMnist,
                permuted=read == "permuted",
                rows=rows,
                size=14 if small and not rows else 28,
            ),
            "model": units.network(unit, d_output=10, waves=waves),
            "optimizer": units.optimizer(*rates),
            "training": spec(
                TrainConfig, evaluate_every=numbers["steps"] // 10, **numbers
            ),
        }
    )
