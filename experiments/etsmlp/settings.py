"""Settings and models of the experiments of the paper."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from ml_collections import ConfigDict

from experiments.etsmlp import baselines
from ssm_jax.config import Config, spec
from ssm_jax.layers import ETSMLP
from ssm_jax.models import (
    Block,
    PooledHead,
    ScalarEncoder,
    SequenceModel,
    TokenEncoder,
)
from ssm_jax.recurrences import CES
from ssm_jax.training import Optimizer, TrainConfig
from ssm_jax.variants import format_variant

Model = Literal[
    "etsmlp",
    "gate",
    "transformer",
    "linear_attention",
    "dss_exp",
    "dss_softmax",
    "s4",
    "s4d",
    "s5",
]
"""ETSMLP without and with a gate, and the `baselines.NAMES`."""

Size = Literal["full", "small"]

Ablation = Literal["none", "real", "no_alpha", "no_beta", "no_omega"]

ABLATIONS = {
    "real": {"eigenvalues": "real"},
    "no_alpha": {"alpha": False},
    "no_beta": {"beta": False},
    "no_omega": {"shortcut": "none"},
}
"""Table 3: what each changes of a `CES`."""

INITS = {
    "stable_0.3": {"stable": (0.3, 0.0)},
    "stable_0.5": {"stable": (0.5, 0.0)},
    "stable_0.7": {"stable": (0.7, 0.0)},
    "ring_0.1_0.6": {"r_min": 0.1, "r_max": 0.6},
    "ring_0.6_0.9": {"r_min": 0.6, "r_max": 0.9},
}
"""Table 4: the same; its row ``ring_0.1_0.9`` is the default initialization."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A row of table 5, with values that the table does not state.

    Attributes:
      d_model: Width of the embedding, ``D``.
      n_layers: Number of blocks, ``L``.
      d_hidden: Width of the smoothing, ``H``.
      norm: ``"layer"`` or ``"batch"``.
      learning_rate: Peak learning rate.
      weight_decay: Decoupled weight decay of all parameters.
      dropout: Dropout of the output of each block and of the first input.
      r_min: Lower bound of the initial modulus of an eigenvalue.
      r_max: Upper bound of the initial modulus.
      max_phase: Upper bound of the initial phase.
      dt_min: Lower bound of the initial ``alpha``.
      dt_max: Upper bound of the initial ``alpha``.
      std: Standard deviation of the initial token embedding.
      steps: Number of training steps.
      warmup_steps: Number of warmup steps. None means a tenth of all steps.
      batch_size: Number of examples per step.
      small_change: Whether to use the smoothing for very long sequences.
    """

    d_model: int
    n_layers: int
    d_hidden: int
    norm: str = "layer"
    learning_rate: float
    weight_decay: float = 0.01
    dropout: float = 0.0
    r_min: float = 0.1
    r_max: float = 0.9
    max_phase: float = 3.14
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    std: float = 0.02
    steps: int
    warmup_steps: int | None = None
    batch_size: int
    small_change: bool = False


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    model: Model = "etsmlp"
    size: Size = "full"


def experiment(
    name: str,
    choices: Any,
    setting: Setting,
    *,
    published: Mapping[str, float],
    task: Config,
    length: int,
    encoder: Config,
    head: Config,
    language: bool = False,
    evaluation_batches: int | None = None,
    **smoothing: object,
) -> Config:
    """Returns the config of an experiment.

    Args:
      name: Name of the file, ``"etsmlp/..."``.
      choices: Choices of the variant, of which ``model`` is one.
      setting: The sizes.
      published: The published results by variant, in [0, 1], without those that were
        measured with other hyperparameters.
      task: Spec of the task.
      length: Length of the sequences, which some baselines need, or a reference to it.
      encoder: Spec of the encoder.
      head: Spec of the head.
      language: Whether to use activation, initialization and optimizer of the language
        tasks.
      evaluation_batches: Number of batches of an evaluation, for endless tasks; None
        means all.
      **smoothing: Further fields of `CES`.

    Returns:
      The config.
    """
    training = spec(
        TrainConfig,
        steps=setting.steps,
        batch_size=setting.batch_size,
        evaluate_every=setting.steps // 10,
        evaluation_batches=evaluation_batches,
    )
    variant, model = format_variant(choices), choices.model
    if model in baselines.NAMES:
        recurrence_fields = baselines.fields(model, setting, length)
    else:
        recurrence_fields = {
            "block": _block(setting, model == "gate", language, smoothing),
            "encoder_dropout": setting.dropout,
        }
    return ConfigDict(
        {
            "experiment": name,
            "variant": variant,
            "paper": published.get(variant),
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=encoder,
                n_layers=setting.n_layers,
                head=head,
                normed_encoder=True,
                **recurrence_fields,
            ),
            "optimizer": _optimizer(setting, training, language),
            "training": training,
        }
    )


def token_encoder(
    setting: Setting, vocabulary: int, *, language: bool = False
) -> Config:
    """Returns the spec of the token encoder, initialized as in the authors' code."""
    d = setting.d_model
    std = d**-0.5 if language else setting.std
    return spec(TokenEncoder, d_model=d, vocabulary=vocabulary, std=std)


def pixel_encoder(setting: Setting) -> Config:
    """Returns the spec of the pixel encoder."""
    return spec(ScalarEncoder, d_model=setting.d_model)


def pooled_head(n_classes: int) -> Config:
    """Returns the spec of the long-range tasks' head: a linear map without bias."""
    return spec(PooledHead, d_output=n_classes, kernel_init="normal", use_bias=False)


def _block(setting, gate, language, smoothing):
    names = ("small_change", "r_min", "r_max", "max_phase", "dt_min", "dt_max")
    fields = {name: getattr(setting, name) for name in names}
    recurrence = spec(CES, **({"bidirectional": True} | fields | smoothing))
    layer = spec(
        ETSMLP,
        recurrence=recurrence,
        d_hidden=setting.d_hidden,
        gate=gate,
        activation="gelu" if language else "relu",
        kernel_init="xavier" if language else "normal",
        dropout=setting.dropout,
    )
    return spec(Block, layer=layer, norm=setting.norm, prenorm=True)


def _optimizer(setting, training, language):
    """AdamW with linear warmup from 1e-7 and linear decay."""
    warmup_steps = setting.warmup_steps or setting.steps // 10
    steps = training.get_ref("steps")
    return spec(
        Optimizer,
        learning_rate=setting.learning_rate,
        schedule="linear",
        # References, so that the warmup scales with an overridden number of steps.
        warmup_steps=steps * warmup_steps // setting.steps,
        warmup_from=1e-7,
        schedule_steps=steps,
        weight_decay=setting.weight_decay,
        b1=0.9,
        b2=0.98,
        eps=1e-6 if language else 1e-8,
        clip_norm=None if language else 1.0,
    )
