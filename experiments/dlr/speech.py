r"""DLR on Speech Commands: which of 35 words a waveform contains; table 4.

    python -m launch.train --config=experiments/dlr/speech.py \
        --data_dir=FOLDER --workdir=runs/speech
    python -m experiments.dlr.sample_rates --workdir=runs/speech --data_dir=FOLDER

The second command evaluates the model at 16 kHz and, without training there, at 8 kHz.
``FOLDER`` contains the published archive speech_commands_v0.02, extracted. The default
variant is table 4 at 16 kHz (paper: accuracy 0.971). ``size=small`` has 2 layers of 32
channels and trains for one epoch at 8 kHz.

The paper's table of hyperparameters is known to us in part; `classification` lists what
is chosen here.
"""

import dataclasses
from typing import Literal

from experiments.dlr import classification
from experiments.dlr.classification import Setting
from ssm_jax.config import Config, spec
from ssm_jax.models import PooledHead, VectorEncoder
from ssm_jax.tasks import SpeechCommands
from ssm_jax.variants import format_variant, parse_variant

PAPER = {"": 0.971}
FULL = Setting(
    dt_min=1e-3,
    dt_max=0.5,
    learning_rate=1e-4,
    batch_size=20,
    epochs=200,
    n_train=84_843,
    weight_decay=0.0,
    dropout=0.05,
)
SMALL = FULL.small(epochs=1, n_train=84_843)


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    size: Literal["full", "small"] = "full"


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    setting = SMALL if small else FULL
    return classification.experiment(
        "dlr/speech",
        format_variant(choices),
        setting,
        published=PAPER,
        task=spec(SpeechCommands, sample_rate=8_000 if small else 16_000),
        encoder=spec(VectorEncoder, d_model=setting.d_model),
        head=spec(PooledHead, d_output=35),
    )
