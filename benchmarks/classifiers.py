"""Small classifiers and their training step, for `training_steps` and `depth`."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.core import meta

from ssm_jax.layers import ChannelMixing, Mamba, RecurrentLayer
from ssm_jax.models import Block, PooledHead, SequenceModel, VectorEncoder
from ssm_jax.recurrences import CES, DLR, S4D, S5, Recurrence, SelectiveSSM
from ssm_jax.recurrences.families.base import Params
from ssm_jax.tasks.base import Batch, TaskSpec
from ssm_jax.training import Optimizer
from ssm_jax.training.groups import groups_of
from ssm_jax.training.state import RunSpec, TrainState
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


class Classifier(NamedTuple):
    """A model with what a training step of it takes.

    Attributes:
      run: The constant parts of a run.
      init: Returns the state before the first step.
      batch: A batch of random vectors and classes.
    """

    run: RunSpec
    init: partial[TrainState]
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
    rng = np.random.default_rng(0)
    spec = TaskSpec(
        length=length,
        inputs="vector",
        d_input=FEATURES,
        targets="classification",
        d_output=CLASSES,
        l_output=None,
    )
    rows = Batch(
        rng.normal(size=(batch, length, FEATURES)).astype(np.float32),
        rng.integers(CLASSES, size=batch).astype(np.int32),
        np.ones(batch, bool),
    )
    shapes = jax.eval_shape(model.init, jax.random.key(0), rows.inputs[:1])
    optimizer = Optimizer(learning_rate=learning_rate)
    transform = optimizer.transform(groups_of(shapes["params"]))
    run = RunSpec(model, spec, transform, ())
    return Classifier(run, partial(_first_state, run, rows.inputs[:1]), rows)


def _first_state(run, inputs):
    boxed = jax.jit(run.model.init)(jax.random.key(0), inputs)
    params = meta.unbox(boxed)["params"]
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        model_state={},
        opt_state=run.transform.init(params),
        key=jax.random.key(1),
    )
