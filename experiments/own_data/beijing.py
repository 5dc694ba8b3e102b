r"""PM2.5 of Beijing: the next day of a measured series from the days before.

    python -m launch.train --config=experiments/own_data/beijing.py:model=s5 \
        --data_dir=. --workdir=runs/beijing
    python -m launch.evaluate --workdir=runs/beijing
    python -m launch.report --workdirs=runs/beijing

``--data_dir`` is the directory of the file PRSA_data_2010.1.1-2014.12.31.csv of the UCI
repository's set `Beijing PM2.5 <https://archive.ics.uci.edu/dataset/381>`_ (licence CC
BY 4.0): the concentration in micrograms per cubic metre and the weather, each hour of
five years. The model reads a week, ``size=small`` three days, and predicts the next 24
values of ``pm2.5``. Five of every hundred are missing; see `SeriesTask` for the rule.
The last command prints MAE and R2 beside those of the last value and of the value of
the day before, and draws forecasts beside the series.

==============  ===================================================================
variant         description
==============  ===================================================================
model=...       ``s5``, ``dlr``, ``ces`` or ``gru``
size=small      two layers of 32 channels, three days, a few minutes on 2 CPU cores
==============  ===================================================================
"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, LastHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import CES, DLR, GRU, S5
from ssm_jax.tasks import SeriesTask
from ssm_jax.training import Optimizer, TrainConfig
from ssm_jax.variants import format_variant, parse_variant

HORIZON = 24
INPUTS = ("pm2.5", "DEWP", "TEMP", "PRES", "Iws", "Is", "Ir", "month", "hour")


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    model: Literal["s5", "dlr", "ces", "gru"]
    size: Literal["full", "small"] = "full"


def get_config(variant: str = "model=s5") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    sizes = {"d_model": 32, "d_state": 32, "n_layers": 2}
    if not small:
        sizes = {"d_model": 128, "d_state": 128, "n_layers": 4}
    task = spec(
        SeriesTask,
        file="PRSA_data_2010.1.1-2014.12.31.csv",
        data_dir=None,
        time="No",
        target="pm2.5",
        inputs=INPUTS,
        missing="last",
        window=72 if small else 168,
        horizon=HORIZON,
        season=24,
        differences=True,
    )
    training = spec(
        TrainConfig,
        steps=1_000 if small else 10_000,
        batch_size=64,
        evaluate_every=250 if small else 1_000,
    )
    return ConfigDict(
        {
            "experiment": "own_data/beijing",
            "variant": format_variant(choices),
            "paper": None,
            "task": task,
            "model": _model(choices.model, **sizes),
            "optimizer": spec(
                Optimizer,
                learning_rate=3e-3 if small else 1e-3,
                schedule="cosine",
                warmup_steps=100,
                schedule_steps=training.get_ref("steps"),
                weight_decay=0.05,
            ),
            "training": training,
        }
    )


def _model(name: str, *, d_model: int, d_state: int, n_layers: int) -> Config:
    """Causal pre-norm blocks; the last step predicts the whole horizon."""
    recurrence = {
        "s5": lambda: spec(S5, d_state=d_state),
        "dlr": lambda: spec(DLR, d_state=d_state),
        "ces": lambda: spec(CES),
        "gru": lambda: spec(GRU, d_state=d_model),
    }[name]()
    mixing = spec(ChannelMixing, kind="glu", dropout=0.1)
    layer = spec(RecurrentLayer, recurrence=recurrence, mixing=mixing)
    return spec(
        SequenceModel,
        encoder=spec(VectorEncoder, d_model=d_model),
        block=spec(Block, layer=layer, prenorm=True),
        n_layers=n_layers,
        head=spec(LastHead, d_output=HORIZON),
    )
