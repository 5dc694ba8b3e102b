r"""FRU with several numbers and ranges of frequencies on MNIST; figures 10 to 12.

    python -m launch.train \
        --config=experiments/fru/frequencies.py:inputs=rows,n_frequencies=20 \
        --data_dir=FOLDER --workdir=runs/frequencies

``n_frequencies`` includes the frequency 0; the others are between ``frequency_min`` and
``frequency_max``. Other settings are those of `experiments.fru.pixel_mnist`. The paper
plots 50 epochs and states no numbers; for 784 steps it reports that the range 0.25 to
25 performs as well as 0.25 to 784.
"""

import dataclasses
from typing import Literal

from experiments.fru import pixel_mnist
from ssm_jax.config import Config
from ssm_jax.fields import PositiveFloat, PositiveInt
from ssm_jax.recurrences import log_spaced
from ssm_jax.variants import format_variant, parse_variant


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    inputs: Literal["pixels", "rows"]
    n_frequencies: PositiveInt
    frequency_min: PositiveFloat = 0.25
    frequency_max: PositiveFloat = 25.0
    size: Literal["full", "small"] = "full"


def get_config(variant: str = "inputs=rows,n_frequencies=20") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    base_variant = f"inputs={choices.inputs},model=fru,size={choices.size}"
    config = pixel_mnist.get_config(base_variant)
    config.experiment, config.paper = "fru/frequencies", None
    config.variant = format_variant(choices)
    config.model.recurrence.frequencies = log_spaced(
        choices.n_frequencies, choices.frequency_max, choices.frequency_min
    )
    return config
