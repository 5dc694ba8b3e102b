r"""ETSMLP on Text: whether a review praises its film, byte by byte; table 1.

    python -m launch.train --config=experiments/etsmlp/text.py:gate \
        --data_dir=FOLDER --workdir=runs/text

``FOLDER`` holds imdb_reviews, as ``python -m launch.prepare`` makes it. The variant is
``gate`` or a baseline or nothing, and ``small`` for a size that two CPU cores train in
an hour, on the first 1,024 bytes of a review: ``gate+small``.

The model with a gate has six layers and the wide ring, as the authors' code; table 5
has four layers.
"""

import dataclasses

from experiments.etsmlp import parts
from experiments.etsmlp.parts import Setting
from ssm_jax.config import Config, spec
from ssm_jax.tasks import ImdbBytes

PAPER = {"": 0.872, "gate": 0.8849}
FULL = Setting(
    d_model=160,
    n_layers=4,
    d_hidden=160,
    learning_rate=0.005,
    dropout=0.1,
    ring=(0.9, 0.999, 0.314),
    steps=25_000,
    batch_size=50,
)
GATE = dataclasses.replace(FULL, n_layers=6, ring=(0.1, 0.9, 3.14))
# Faster exponents: two layers must see letters and words, where six see them by turns.
SMALL = dataclasses.replace(
    FULL,
    d_model=64,
    n_layers=2,
    d_hidden=64,
    dropout=0.0,
    alpha=(0.1, 3.0),
    deviation=0.2,
    steps=10_000,
    batch_size=16,
)


def get_config(variant: str = "") -> Config:
    """The experiment in one of its variants."""
    model, small = parts.chosen(variant, parts.MODELS, ("small",))
    setting = SMALL if small else GATE if model == "gate" else FULL
    task = spec(ImdbBytes, length=1024 if small else 4000)
    return parts.experiment(
        "etsmlp/text",
        variant,
        PAPER.get(variant),
        setting,
        task=task,
        length=task.get_ref("length"),
        encoder=parts.tokens(setting, 257),
        head=parts.pooled(2),
        model=model,
    )
