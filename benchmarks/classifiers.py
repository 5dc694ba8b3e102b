"""Small classifiers and their training step, for `training_steps` and `depth`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from flax import linen as nn

from ssm_jax.layers import ChannelMixing, Mamba, RecurrentLayer
from ssm_jax.models import Block, PooledHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import CES, DLR, S4D, S5, Recurrence, SelectiveSSM
from ssm_jax.recurrences.families.base import Params
from ssm_jax.tasks.base import Batch, Split, TaskSpec, generator
from ssm_jax.training import Optimizer
from ssm_jax.training.state import RunSpec, TrainState, create
from ssm_jax.types import Activations, Outputs, PRNGKey, PyTree

FEATURES, CLASSES = 4, 10

RECURRENCES: Mapping[str, Recurrence] = {
    "S5": S5(d_state=128, blocks=1),
    "S4D": S4D(d_state=64),
    "DLR": DLR(d_state=64, dt_min=1e-3),
    "CES": CES(),
    "Mamba": SelectiveSSM(),
}
"""Of each model, with 64 states stored (S5), 32 and 64 per channel (S4D, DLR), one
(CES) and 16 (Mamba)."""


class Identity(Recurrence):
    """No recurrence: the output is the input."""

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Returns no parameters."""
        del key, d_in
        return {}

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns None."""
        del batch_shape, d_in

    def apply(
        self, params: Params, x: Activations, state: PyTree = None, **options
    ) -> tuple[Outputs, PyTree]:
        """Returns ``x``."""
        del params, state, options
        return x, None


@dataclass(frozen=True)
class RandomVectors:
    """Sequences of random vectors with random classes.

    Attributes:
      length: Number of steps.
    """

    length: int

    @property
    def spec(self) -> TaskSpec:
        """Vectors and one class of each sequence."""
        return TaskSpec(
            length=self.length,
            inputs="vector",
            d_input=FEATURES,
            targets="classification",
            d_output=CLASSES,
            l_output=None,
        )

    def n_examples(self, split: Split) -> None:
        """Returns None: every split is endless."""
        del split

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        rng = generator("random_vectors", split, seed, index)
        shape = (batch_size, self.length, FEATURES)
        return Batch(
            rng.normal(size=shape).astype(np.float32),
            rng.integers(CLASSES, size=batch_size).astype(np.int32),
            np.ones(batch_size, bool),
        )


class Classifier(NamedTuple):
    """A model with what a training step of it takes.

    Attributes:
      model: The model.
      create: Returns the run and its state before the first step.
      batch: A batch of random vectors and classes.
    """

    model: nn.Module
    create: partial[tuple[RunSpec, TrainState]]
    batch: Batch


def classifier(
    name: str,
    length: int,
    *,
    width: int,
    n_layers: int,
    batch: int = 8,
    remat: bool = False,
    scan_blocks: bool | None = None,
    recurrent: bool = True,
    learning_rate: float = 1e-3,
) -> Classifier:
    """Returns a classifier of sequences of vectors.

    Args:
      name: One of `RECURRENCES`. Pre-norm blocks with a GLU, or of `Mamba`.
      length: Number of steps.
      width: Number of channels.
      n_layers: Number of blocks.
      batch: Number of sequences.
      remat: See `SequenceModel`.
      scan_blocks: See `SequenceModel`.
      recurrent: If False, `Identity` is in the place of the recurrence.
      learning_rate: Learning rate of AdamW, without weight decay.
    """
    recurrence = RECURRENCES[name] if recurrent else Identity()
    layer: nn.Module = RecurrentLayer(recurrence, ChannelMixing(kind="glu"))
    if name == "Mamba":
        layer = Mamba(recurrence)
    model = SequenceModel(
        encoder=VectorEncoder(width),
        block=Block(layer, prenorm=True),
        n_layers=n_layers,
        head=PooledHead(CLASSES),
        remat=remat,
        scan_blocks=scan_blocks,
    )
    task = RandomVectors(length)
    optimizer = Optimizer(learning_rate=learning_rate)
    first = partial(create, model, task, optimizer, seed=0)
    return Classifier(model, first, task.batch("train", 0, batch, seed=0))
