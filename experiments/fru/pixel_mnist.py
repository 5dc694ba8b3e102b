r"""FRU, SRU, LSTM and RNN on MNIST, one pixel or row per step; tables 1 and 2.

    python -m launch.train \
        --config=experiments/fru/pixel_mnist.py:inputs=pixels,model=fru \
        --data_dir=FOLDER --workdir=runs/pixels_fru

``inputs`` are pixels, permuted pixels or rows (28 steps of 28 pixels, for which the
paper has only the curves of figures 10 and 11). ``model=fru40``, for pixels only, is
the FRU with 40 frequencies of table 1, whose learning rate is constant. ``size=small``
has images of 14 by 14 pixels (rows are unchanged) and trains on two CPU cores in
minutes; ``size=quarter`` has batches of 64 instead of 256 and trains in two or three
hours.
``FOLDER`` contains mnist as prepared by ``python -m launch.prepare``.

The test split is the published one. The authors pool all images and test on a fifth of
them: ``--config.task.pooled=True``.
"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict

from experiments.fru import units
from ssm_jax.config import Config, spec
from ssm_jax.tasks import PixelMnist
from ssm_jax.training import TrainConfig
from ssm_jax.variants import format_variant, parse_variant

PAPER = {
    "inputs=pixels,model=fru": 0.9761,
    "inputs=pixels,model=fru40": 0.9688,
    "inputs=pixels,model=sru": 0.9620,
    "inputs=pixels,model=lstm": 0.9817,
    "inputs=pixels,model=rnn": 0.1039,
    "inputs=permuted,model=fru": 0.9693,
    "inputs=permuted,model=sru": 0.9221,
    "inputs=permuted,model=lstm": 0.9026,
    "inputs=permuted,model=rnn": 0.8746,
}
# Learning rate, its factor every 1,000 steps, and the maximum gradient norm.
RATES = {
    ("pixels", "fru"): (0.005, 0.9, None),
    ("pixels", "fru40"): (0.001, 1.0, None),
    ("pixels", "sru"): (0.001, 0.8, None),
    ("pixels", "lstm"): (0.01, 0.8, 1.0),
    ("pixels", "rnn"): (0.001, 0.9, None),
    ("permuted", "fru"): (0.005, 0.9, 1.0),
    ("permuted", "sru"): (0.001, 0.8, 1.0),
    ("permuted", "lstm"): (0.001, 0.9, 1.0),
    ("permuted", "rnn"): (0.001, 0.9, 1.0),
}
STEPS = {"full": 21_000, "quarter": 21_000, "small": 2_000}
ROW_STEPS = {"full": 10_500, "quarter": 10_500, "small": 5_000}


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    inputs: Literal["pixels", "permuted", "rows"]
    model: Literal["fru", "fru40", "sru", "lstm", "rnn"]
    size: Literal["full", "quarter", "small"] = "full"


def get_config(variant: str = "inputs=pixels,model=fru") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    inputs, model, variant = choices.inputs, choices.model, format_variant(choices)
    if model == "fru40" and inputs != "pixels":
        raise ValueError(
            f"`variant: inputs` must be 'pixels' for model=fru40, got {inputs!r}; "
            "model=fru has all inputs."
        )
    rows, small = inputs == "rows", choices.size == "small"
    steps = (ROW_STEPS if rows else STEPS)[choices.size]
    # The frequencies and the steps of a sequence.
    n_frequencies, length = (20, 28) if rows else (40, 196) if small else (60, 784)
    rates = RATES["permuted" if rows else inputs, model]
    unit: units.Unit = "fru" if model == "fru40" else model
    fourier = {
        "n_frequencies": 40 if model == "fru40" else n_frequencies,
        "frequency_max": float(length),
        "horizon": length,
        "d_statistic": 10,
    }
    return ConfigDict(
        {
            "experiment": "fru/pixel_mnist",
            "variant": variant,
            "paper": PAPER.get(variant),
            "task": spec(
                PixelMnist,
                permuted=inputs == "permuted",
                rows=rows,
                size=14 if small and not rows else 28,
            ),
            "model": units.network(unit, d_output=10, fourier=fourier),
            "optimizer": units.optimizer(*rates),
            "training": spec(
                TrainConfig,
                steps=steps,
                batch_size=256 if choices.size == "full" else 64,
                evaluate_every=steps // 10,
            ),
        }
    )
