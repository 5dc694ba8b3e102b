"""Settings and model of the sequence classification of table 4.

Layers, decay rates, learning rates, batch sizes, epochs, weight decays and dropouts are
those of the paper's table of hyperparameters, whose values for channels, states, steps
and length of the kernels are not known to us. Chosen here: 128 channels and 1,024
states, as for the smaller tasks of table 3, kernels as long as the sequences, a warmup
of 1,000 steps, and bidirectional DLRs in pre-norm blocks with the scalar norm and a
GLU, as for Pathfinder-Segmentation. Steps are the epochs on the train split here, in
full batches.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel
from ssm_jax.recurrences import DLR, S4
from ssm_jax.training import Optimizer, TrainConfig

ModelName = Literal["dlr", "s4"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A row of the table of hyperparameters, with values that are not known of it.

    Attributes:
      n_layers: Number of blocks.
      dt_min: Minimum initial decay rate.
      dt_max: Maximum initial decay rate.
      learning_rate: Maximum learning rate of all parameters.
      batch_size: Number of examples per step.
      epochs: Number of epochs.
      n_train: Number of train examples.
      weight_decay: Weight decay of all parameters but those of DLR.
      dropout: Dropout in and after each layer.
      d_model: Number of channels.
      d_state: Number of states per channel.
      warmup_steps: Number of steps of the linear warmup.
    """

    n_layers: int = 6
    dt_min: float
    dt_max: float
    learning_rate: float
    batch_size: int
    epochs: int
    n_train: int
    weight_decay: float
    dropout: float
    d_model: int = 128
    d_state: int = 1024
    warmup_steps: int = 1_000

    def small(self, *, epochs: int, n_train: int, batch_size: int = 16) -> "Setting":
        """Returns the setting at sizes that train on two CPU cores."""
        return dataclasses.replace(
            self,
            n_layers=2,
            learning_rate=4e-3,
            batch_size=batch_size,
            epochs=epochs,
            n_train=n_train,
            dropout=0.0,
            d_model=32,
            d_state=64,
            warmup_steps=50,
        )


def experiment(
    name: str,
    variant: str,
    setting: Setting,
    *,
    published: Mapping[str, float],
    task: Config,
    encoder: Config,
    head: Config,
    model: ModelName = "dlr",
) -> Config:
    """Returns the config of an experiment.

    Args:
      name: Name of the file, ``"dlr/..."``.
      variant: The variant, as formatted by `format_variant`.
      setting: The hyperparameters.
      published: The published accuracies by variant, in [0, 1].
      task: Spec of the task.
      encoder: Spec of the encoder.
      head: Spec of the head.
      model: The recurrence.

    Returns:
      The config.
    """
    steps_per_epoch = setting.n_train // setting.batch_size
    training = spec(
        TrainConfig,
        steps=setting.epochs * steps_per_epoch,
        batch_size=setting.batch_size,
        log_every=100,
        evaluate_every=steps_per_epoch,
    )
    if model == "dlr":
        recurrence = spec(
            DLR,
            d_state=setting.d_state,
            bidirectional=True,
            dt_min=setting.dt_min,
            dt_max=setting.dt_max,
        )
    else:
        # As published: at most this rate for its decays, steps and input matrices.
        multiplier = min(1.0, 1e-3 / setting.learning_rate)
        recurrence = spec(S4, bidirectional=True, lr_multiplier=multiplier)
    mixing = spec(ChannelMixing, kind="glu", dropout=setting.dropout)
    layer = spec(RecurrentLayer, recurrence=recurrence, mixing=mixing)
    return ConfigDict(
        {
            "experiment": name,
            "variant": variant,
            "paper": published.get(variant),
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=encoder,
                block=spec(
                    Block,
                    layer=layer,
                    norm="scalar",
                    prenorm=True,
                    dropout=setting.dropout,
                ),
                n_layers=setting.n_layers,
                head=head,
            ),
            "optimizer": spec(
                Optimizer,
                learning_rate=setting.learning_rate,
                schedule="cosine",
                warmup_steps=setting.warmup_steps,
                schedule_steps=training.get_ref("steps"),
                weight_decay=setting.weight_decay,
            ),
            "training": training,
        }
    )
