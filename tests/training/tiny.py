"""Experiments that compile in a second and train in another."""

from typing import Any

from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, PooledHead, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.tasks import Digits, Shift
from ssm_jax.training import Optimizer, TrainConfig


def model(head: Any, *, norm: str = "layer", dropout: float = 0.0) -> Config:
    """The spec of one block of 4 channels with 4 states each."""
    layer = RecurrentLayer(DLR(d_state=4), ChannelMixing(dropout=dropout))
    return spec(
        SequenceModel,
        encoder=VectorEncoder(d_model=4),
        block=Block(layer, norm=norm),
        n_layers=1,
        head=head,
    )


def digits(**training: Any) -> Config:
    """Classification of a finite set; all that is random or runs on is in it."""
    optimizer = spec(
        Optimizer,
        learning_rate=1e-2,
        schedule="cosine",
        warmup_steps=2,
        schedule_steps=100,
        clip_norm=1.0,
    )
    return ConfigDict(
        {
            "experiment": "tests/digits",
            "task": spec(Digits),
            "model": model(PooledHead(d_output=10), norm="batch", dropout=0.2),
            "optimizer": optimizer,
            "training": _training(training),
        }
    )


def shift(**training: Any) -> Config:
    """Regression on endless data, where the recurrent state can be carried on."""
    return ConfigDict(
        {
            "experiment": "tests/shift",
            "task": spec(Shift, length=16, n_shifts=2),
            "model": model(StepHead(d_output=2)),
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": _training({"evaluation_batches": 2, **training}),
        }
    )


def _training(changes):
    numbers = {"steps": 7, "batch_size": 16, "log_every": 2, "evaluate_every": 3}
    return spec(TrainConfig, **numbers | changes)
