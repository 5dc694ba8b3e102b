r"""FRU of several numbers and ranges of frequencies on MNIST; figures 10 to 12.

    python -m launch.train --config=experiments/fru/frequencies.py:rows+20+0.25+25 \
        --data_dir=FOLDER --workdir=runs/frequencies

The variant is ``rows`` (28 steps) or ``pixels`` (784 steps), then the number of
frequencies, the frequency 0 among them, the least of the others and the greatest; with
``+small`` as `experiments.fru.pixel_mnist` has it. The paper draws curves of 50 epochs
and gives no numbers; of 784 steps it says that 0.25 to 25 does as well as 0.25 to 784.
"""

import re

from experiments.fru import pixel_mnist
from ssm_jax.config import Config
from ssm_jax.recurrences import log_spaced

_VARIANT = re.compile(r"(rows|pixels)\+(\d+)\+([\d.]+)\+([\d.]+)(\+small)?")


def get_config(variant: str = "rows+20+0.25+25") -> Config:
    """The experiment in one of its variants."""
    match = _VARIANT.fullmatch(variant)
    if match is None:
        raise ValueError(
            "the variant must be rows or pixels, a number of frequencies, the least "
            f"and the greatest, joined by +, as rows+20+0.25+25, got {variant!r}."
        )
    read, n, least, greatest, small = match.groups("")
    config = pixel_mnist.get_config(f"{read}+fru{small}")
    config.experiment, config.variant, config.paper = "fru/frequencies", variant, None
    frequencies = log_spaced(int(n), float(greatest), float(least))
    config.model.recurrence.frequencies = frequencies
    return config
