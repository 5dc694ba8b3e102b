"""Experiments that compile in a second and train in another."""

import dataclasses
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, PooledHead, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.tasks import Digits, Shift, TaskSpec
from ssm_jax.tasks.base import Batch, Split
from ssm_jax.tasks.order import shuffled_indices
from ssm_jax.training import Optimizer, TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise around the number of its class, in three splits of the same size.

    Attributes:
      n: Number of examples of a split.
      length: Number of steps.
      classes: The classes of the targets, of which a model has two.
      per_step: Whether each step has a target, or each sequence.
      n_nan: Number of examples of the test split whose inputs are NaN.
    """

    n: int = 50
    length: int = 8
    classes: tuple[int, ...] = (0, 1)
    per_step: bool = False
    n_nan: int = 0

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            length=self.length,
            inputs="vector",
            d_input=1,
            targets="classification",
            d_output=2,
            l_output=self.length if self.per_step else None,
        )

    def n_examples(self, split: Split) -> int:
        return self.n

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        rng = np.random.default_rng(["train", "validation", "test"].index(split))
        shape = (self.n, self.length) if self.per_step else (self.n, 1)
        targets = rng.choice(self.classes, shape).astype(np.int32)
        inputs = targets + rng.normal(size=(self.n, self.length)).astype(np.float32)
        if split == "test":
            inputs[: self.n_nan] = np.nan
        rows, counts = shuffled_indices(self.n, split, index, batch_size, seed)
        if self.per_step:
            mask = np.repeat(counts[:, None], self.length, 1)
            return Batch(inputs[rows, :, None], targets[rows], mask)
        return Batch(inputs[rows, :, None], targets[rows, 0], counts)


def model(
    head: Any, *, norm: str = "layer", dropout: float = 0.0, width: int = 4
) -> Config:
    """The spec of one block of ``width`` channels with 4 states each."""
    layer = RecurrentLayer(DLR(d_state=4), ChannelMixing(dropout=dropout))
    return spec(
        SequenceModel,
        encoder=VectorEncoder(d_model=width),
        block=Block(layer, norm=norm),
        n_layers=1,
        head=head,
    )


def digits(*, width: int = 4, **training: Any) -> Config:
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
            "model": model(
                PooledHead(d_output=10), norm="batch", dropout=0.2, width=width
            ),
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


def noise(task: Any = None, **training: Any) -> Config:
    """Classification of two classes, whose scores are kept."""
    return ConfigDict(
        {
            "experiment": "tests/noise",
            "task": spec(Noise, **task or {}),
            "model": model(PooledHead(d_output=2)),
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": _training(training),
        }
    )


def _training(changes):
    numbers = {"steps": 7, "batch_size": 16, "log_every": 2, "evaluate_every": 3}
    return spec(TrainConfig, **numbers | changes)
