r"""ETSMLP on Retrieval: whether two papers are related, byte by byte; table 1.

    python -m launch.train --config=experiments/etsmlp/retrieval.py:model=gate \
        --data_dir=FOLDER --workdir=runs/retrieval

``FOLDER`` contains aan as prepared by ``python -m launch.prepare --dataset=aan`` from
the files of the Long Range Arena. ``model=gate`` has a gate, other models are
baselines, and ``size=small`` reads the first 1,024 bytes and trains on two CPU cores in
a quarter of an hour.

The model with a gate is initialized with slower decays in a smaller range of phases, as
in the authors' code.
"""

import dataclasses

from experiments.etsmlp import settings
from experiments.etsmlp.settings import Setting, Variant
from ssm_jax.config import Config, spec
from ssm_jax.models import PairHead
from ssm_jax.tasks import Retrieval
from ssm_jax.variants import parse_variant

PAPER = {"": 0.8578, "model=gate": 0.8672}
FULL = Setting(
    d_model=160,
    n_layers=6,
    d_hidden=160,
    learning_rate=0.005,
    dropout=0.1,
    steps=91_960,
    batch_size=64,
)
GATE_RING = {"r_min": 0.9, "r_max": 0.99, "max_phase": 0.314}
SMALL = dataclasses.replace(
    FULL, d_model=64, n_layers=2, d_hidden=64, steps=2_000, batch_size=16
)


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    setting = SMALL if small else FULL
    if choices.model == "gate":
        setting = dataclasses.replace(setting, **GATE_RING)
    task = spec(Retrieval, length=1024 if small else 4000)
    return settings.experiment(
        "etsmlp/retrieval",
        choices,
        setting,
        published=PAPER,
        task=task,
        length=task.get_ref("length"),
        encoder=settings.token_encoder(setting, 257),
        head=spec(
            PairHead,
            d_output=2,
            d_hidden=setting.d_model,
            dropout=setting.dropout,
            kernel_init="normal",
            use_bias=False,
        ),
    )
