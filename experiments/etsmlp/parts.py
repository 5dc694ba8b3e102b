"""What the experiments of the paper share: settings, models, words of a variant.

A variant is words joined by ``+``: ``gate+small``, ``real``, ``transformer+small``.
"""

import dataclasses

from ml_collections import ConfigDict

from experiments.etsmlp import baselines
from ssm_jax.config import Config, nearest, spec
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

MODELS = ("gate", *baselines.NAMES)
"""Words of a variant that name a model; none of them is ETSMLP without gate."""

ABLATIONS = {
    "real": {"eigenvalues": "real"},
    "no_alpha": {"alpha": False},
    "no_beta": {"beta": False},
    "no_omega": {"shortcut": "none"},
}
"""Table 3: what each changes of a `CES`."""

STARTS = {
    "stable_0.3": {"stable": (0.3, 0.0)},
    "stable_0.5": {"stable": (0.5, 0.0)},
    "stable_0.7": {"stable": (0.7, 0.0)},
    "ring_0.1_0.6": {"r_min": 0.1, "r_max": 0.6},
    "ring_0.6_0.9": {"r_min": 0.6, "r_max": 0.9},
}
"""Table 4: the same; what is left of its rows is ``ring_0.1_0.9``, the usual start."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A row of table 5, and what it leaves open.

    Attributes:
      d_model: Width of the embedding, ``D``.
      n_layers: Blocks, ``L``.
      d_hidden: Width of the smoothing, ``H``.
      norm: ``"layer"`` or ``"batch"``.
      learning_rate: Greatest learning rate.
      weight_decay: Decoupled, of all parameters.
      dropout: Of each block's output, and of what enters the first block.
      ring: ``(r_min, r_max, max_phase)`` of the start.
      alpha: Least and greatest part of the exponent at the start.
      deviation: Of the numbers that tokens start as.
      steps: Updates.
      warmup_parts: The learning rate rises in the first of so many parts of them.
      batch_size: Examples of an update.
      small_change: Whether the smoothing is the variant for very long sequences.
    """

    d_model: int
    n_layers: int
    d_hidden: int
    norm: str = "layer"
    learning_rate: float
    weight_decay: float = 0.01
    dropout: float = 0.0
    ring: tuple[float, float, float] = (0.1, 0.9, 3.14)
    alpha: tuple[float, float] = (1e-3, 1e-1)
    deviation: float = 0.02
    steps: int
    warmup_parts: int = 10
    batch_size: int
    small_change: bool = False


def chosen(variant: str, *groups: tuple[str, ...]) -> list[str]:
    """Splits a variant into its words.

    Args:
      variant: Words joined by ``+``, or nothing.
      groups: Words that exclude each other; at most one of each group is taken.

    Returns:
      For each group the word taken of it, or an empty string.

    Raises:
      ValueError: A word is in no group, or two are of one.
    """
    words = variant.split("+") if variant else []
    known = [word for group in groups for word in group]
    for word in words:
        if word not in known:
            raise ValueError(
                f"the variant must be words of {', '.join(known)} joined by +, got "
                f"{word!r}; {nearest(word, known)}"
            )
    of_groups = [[word for word in words if word in group] for group in groups]
    for taken, group in zip(of_groups, groups, strict=True):
        if len(taken) > 1:
            raise ValueError(
                f"the variant must have one of {', '.join(group)}, got {variant!r}; "
                "they exclude each other."
            )
    return [taken[0] if taken else "" for taken in of_groups]


def experiment(
    name: str,
    variant: str,
    paper: float | None,
    setting: Setting,
    *,
    task: Config,
    length: int,
    encoder: Config,
    head: Config,
    model: str = "",
    language: bool = False,
    **smoothing: object,
) -> Config:
    """An experiment as `launch.train` takes it.

    Args:
      name: As the file is called, ``"etsmlp/..."``.
      variant: As it was asked for.
      paper: The published figure, as a part of 1. None: there is none, or it is of
        other hyperparameters.
      setting: The sizes.
      task: Spec of the task.
      length: Steps of a sequence, which some baselines must know, or a reference.
      encoder: Spec of the encoder.
      head: Spec of the head.
      model: One of `MODELS`, or nothing.
      language: Takes activation, start and optimizer of the language tasks.
      **smoothing: Further fields of `CES`.

    Returns:
      The config.
    """
    training = spec(
        TrainConfig,
        steps=setting.steps,
        batch_size=setting.batch_size,
        evaluate_every=setting.steps // 10,
    )
    if model in baselines.NAMES:
        own = baselines.parts(model, setting, length)
    else:
        own = {
            "block": _block(setting, model == "gate", language, smoothing),
            "encoder_dropout": setting.dropout,
        }
    return ConfigDict(
        {
            "experiment": name,
            "variant": variant,
            "paper": paper,
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=encoder,
                n_layers=setting.n_layers,
                head=head,
                normed_encoder=True,
                **own,
            ),
            "optimizer": _optimizer(setting, training, language),
            "training": training,
        }
    )


def tokens(setting: Setting, vocabulary: int, *, language: bool = False) -> Config:
    """The spec of the encoder of tokens, started as the authors' code starts it."""
    d = setting.d_model
    deviation = d**-0.5 if language else setting.deviation
    return spec(TokenEncoder, d_model=d, vocabulary=vocabulary, std=deviation)


def pixels(setting: Setting) -> Config:
    """The spec of the encoder of pixels."""
    return spec(ScalarEncoder, d_model=setting.d_model)


def pooled(n_classes: int) -> Config:
    """The spec of the head of the long-range tasks: one linear map without bias."""
    return spec(PooledHead, d_output=n_classes, kernel_init="normal", use_bias=False)


def _block(setting, gate, language, smoothing):
    r_min, r_max, max_phase = setting.ring
    ring = {"r_min": r_min, "r_max": r_max, "max_phase": max_phase}
    dt_min, dt_max = setting.alpha
    recurrence = spec(
        CES,
        bidirectional=True,
        small_change=setting.small_change,
        dt_min=dt_min,
        dt_max=dt_max,
        **(ring | smoothing),
    )
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
    """Adam with decoupled decay, a rise from 1e-7 and a fall along a line."""
    return spec(
        Optimizer,
        learning_rate=setting.learning_rate,
        schedule="linear",
        warmup_steps=training.get_ref("steps") // setting.warmup_parts,
        warmup_from=1e-7,
        schedule_steps=training.get_ref("steps"),
        weight_decay=setting.weight_decay,
        b1=0.9,
        b2=0.98,
        eps=1e-6 if language else 1e-8,
        clip_norm=None if language else 1.0,
    )
