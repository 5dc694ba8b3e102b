r"""ETSMLP on Text: the sentiment of film reviews as bytes; table 1.

    python -m launch.train --config=experiments/etsmlp/text.py:model=gate \
        --data_dir=FOLDER --workdir=runs/text

``FOLDER`` contains imdb_reviews as prepared by ``python -m launch.prepare``.
``model=gate`` has a gate, other models are baselines, and ``size=small`` trains on two
CPU cores in an hour, on the first 1,024 bytes of a review.

The model with a gate has six layers and the wider range of radii, as in the authors'
code; table 5 has four layers.
"""

import dataclasses

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting, Variant
from ssm_jax.config import Config, spec
from ssm_jax.tasks import ImdbBytes
from ssm_jax.variants import parse_variant

PAPER = {"": 0.872, "model=gate": 0.8849}
FULL = Setting(
    d_model=160,
    n_layers=4,
    d_hidden=160,
    learning_rate=0.005,
    dropout=0.1,
    r_min=0.9,
    r_max=0.999,
    max_phase=0.314,
    steps=25_000,
    batch_size=50,
)
GATE = dataclasses.replace(FULL, n_layers=6, r_min=0.1, r_max=0.9, max_phase=3.14)
# Faster decays: two layers must represent both letters and words.
SMALL = dataclasses.replace(
    FULL,
    d_model=64,
    n_layers=2,
    d_hidden=64,
    dropout=0.0,
    dt_min=0.1,
    dt_max=3.0,
    std=0.2,
    steps=10_000,
    batch_size=16,
)


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    setting = SMALL if small else GATE if choices.model == "gate" else FULL
    task = spec(ImdbBytes, length=1024 if small else 4000)
    return settings.experiment(
        "etsmlp/text",
        choices,
        setting,
        published=PAPER,
        task=task,
        length=task.get_ref("length"),
        encoder=settings.token_encoder(setting, 257),
        head=settings.pooled_head(2),
    )
