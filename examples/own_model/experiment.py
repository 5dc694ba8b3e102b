"""The value at the last mark, or the next byte of a text, by an HGRU.

    ssm-jax train --config=experiment.py --workdir=runs/marks

=========  =============================================================
variant    description
=========  =============================================================
(none)     `own_model.task.LastMarked`; half a minute on 2 CPU cores
data=text  bytes of the text files of ``--data_dir``, for ``generate``
=========  =============================================================
"""

import dataclasses
from typing import Literal

from ml_collections import ConfigDict
from own_model.layer import GatedOutput
from own_model.optimizer import NAdam
from own_model.recurrence import HGRU
from own_model.task import LastMarked

from ssm_jax.config import Config, spec
from ssm_jax.models import Block, SequenceModel, StepHead, TokenEncoder, VectorEncoder
from ssm_jax.tasks import TextFolder
from ssm_jax.training import TrainConfig
from ssm_jax.variants import parse_variant

VOCABULARY = 257
"""The bytes, and the separator between texts."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    data: Literal["marks", "text"] = "marks"


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    text = parse_variant(variant, Variant).data == "text"
    task = spec(TextFolder, length=64) if text else spec(LastMarked)
    encoder = spec(VectorEncoder, d_model=32)
    if text:
        encoder = spec(TokenEncoder, d_model=32, vocabulary=VOCABULARY)
    layer = spec(GatedOutput, recurrence=spec(HGRU, d_state=32))
    return ConfigDict(
        {
            "experiment": "own_model",
            "variant": variant,
            "paper": None,
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=encoder,
                block=spec(Block, layer=layer, prenorm=True),
                n_layers=2,
                head=spec(StepHead, d_output=VOCABULARY if text else 1),
            ),
            "optimizer": spec(NAdam, learning_rate=5e-3),
            "training": spec(
                TrainConfig,
                steps=400,
                batch_size=32,
                evaluate_every=200,
                evaluation_batches=8,
            ),
        }
    )
