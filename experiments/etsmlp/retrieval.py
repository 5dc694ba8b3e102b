r"""ETSMLP on Retrieval: whether two papers are related, byte by byte; table 1.

    python -m launch.train --config=experiments/etsmlp/retrieval.py:gate \
        --data_dir=FOLDER --workdir=runs/retrieval

``FOLDER`` holds aan, as ``python -m launch.prepare --dataset=aan`` makes it of the
arena's files. The variant is ``gate`` or a baseline or nothing, and ``small`` for the
first 1,024 bytes and a size that two CPU cores train in a quarter of an hour.

The model with a gate starts from slower decays in a narrower sector, as the authors'
code.
"""

import dataclasses

from experiments.etsmlp import parts
from experiments.etsmlp.parts import Setting
from ssm_jax.config import Config, spec
from ssm_jax.models import PairHead
from ssm_jax.tasks import Retrieval

PAPER = {"": 0.8578, "gate": 0.8672}
FULL = Setting(
    d_model=160,
    n_layers=6,
    d_hidden=160,
    learning_rate=0.005,
    dropout=0.1,
    steps=91_960,
    batch_size=64,
)
GATE_RING = (0.9, 0.99, 0.314)
SMALL = dataclasses.replace(
    FULL, d_model=64, n_layers=2, d_hidden=64, steps=2_000, batch_size=16
)


def get_config(variant: str = "") -> Config:
    """The experiment in one of its variants."""
    model, small = parts.chosen(variant, parts.MODELS, ("small",))
    setting = SMALL if small else FULL
    if model == "gate":
        setting = dataclasses.replace(setting, ring=GATE_RING)
    task = spec(Retrieval, length=1024 if small else 4000)
    return parts.experiment(
        "etsmlp/retrieval",
        variant,
        PAPER.get(variant),
        setting,
        task=task,
        length=task.get_ref("length"),
        encoder=parts.tokens(setting, 257),
        head=spec(
            PairHead,
            d_output=2,
            d_hidden=setting.d_model,
            dropout=setting.dropout,
            kernel_init="normal",
            use_bias=False,
        ),
        model=model,
    )
