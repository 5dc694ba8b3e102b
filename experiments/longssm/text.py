r"""Language models trained on short windows, with carried states or zero states.

    python -m launch.train \
        --config=experiments/longssm/text.py:model=s5,length=16,state_init=carry \
        --data_dir=FOLDER --workdir=runs/s5
    python -m launch.evaluate --workdir=runs/s5 --mode=length_extension

Figures 4 to 10 of the paper. ``FOLDER`` contains text files; those of the paper are
WikiText-103, which ``launch.prepare`` prepares. ``model`` is ``s5``, ``mamba`` or
``gru``, or in addition to the paper ``dlr``, ``ets``, ``fru``, ``mamba2``,
``gated_delta_net`` or ``hybrid``: two recurrences of Griffin, then attention to the
last 64 steps, and so on (one of each with two layers); ``length`` is the window length
of training; ``state_init`` is the initial state of a batch, with ``hybrid`` also of the
steps attended to. With ``order=shuffled`` the windows are shuffled. ``size`` is a
width, with 6, 6, 12 and 24 layers; with ``size=small`` tokens are bytes, and the model
trains on two CPU cores in minutes; ``size=tiny`` is half as wide and trains on one core
in a minute or two. ``dtype=bfloat16`` computes in that dtype. Other tokens:
``--config.task.tokenizer=FILE.json --config.task.vocabulary=N``, as in the file.

A batch has 32,768 tokens (small: 2,048) for every length, so that all lengths read the
same text in the same number of steps; longer windows have fewer rows. With ``rows=32``
a batch has 32 rows for every length: each row reads the same text, half as much as
without ``rows``, and longer windows have fewer steps. Rows, text and steps cannot all
be equal; lengths are compared by the runs with ``rows=32``.

``mamba2`` and ``gated_delta_net`` have layers of the published proportions, each
followed by an MLP so narrow that a model has as many parameters as one of ``s5`` or
``hybrid``; ``mamba``, without an MLP as published, has fewer.

Training with carried states may become unstable (section 4.3): ``model=s5_bounded``
bounds the states by its eigenvalues, ``state_penalty`` by the loss. ``learning_rate``
is that after the warmup. With ``--config.training.gradient_windows`` gradients also
flow between batches.

``d_state``, ``learning_rate``, ``weight_decay`` and ``steps`` are for the question when
a Mamba that was trained from zero states fails on longer windows, and ``width``, the
channels, with ``steps`` for the question whether wider models need longer windows:
``rows=32,size=tiny,steps=800`` has equal steps for every length, and more text for
longer windows.

The paper states models, numbers of parameters and lengths, but no widths, vocabulary,
learning rates or batch sizes; those here are ours. ``docs/papers/longssm.md`` has the
numbers of parameters beside those of the paper.
"""

import dataclasses
import math
from typing import Literal

from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from ssm_jax.layers import (
    ETSMLP,
    MLP,
    ChannelMixing,
    GatedDeltaNet,
    Griffin,
    Mamba,
    Mamba2,
    RecurrentLayer,
    SlidingAttention,
)
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.models.precision import ComputeDtype
from ssm_jax.recurrences import (
    CES,
    DLR,
    FRU,
    GRU,
    RGLRU,
    S5,
    SSD,
    BoundedEigenvalues,
    GatedDeltaRule,
    SelectiveSSM,
    log_spaced,
)
from ssm_jax.tasks import TextFolder
from ssm_jax.training import Optimizer, TrainConfig
from ssm_jax.training.initial import StateInitKind
from ssm_jax.variants import format_variant, parse_variant

SIZES = {
    "tiny": (32, 2),
    "small": (64, 2),
    "d192": (192, 6),
    "d384": (384, 6),
    "d768": (768, 12),
    "d1024": (1024, 24),
}
"""Width and layers."""

TINY_STEPS = 400
VOCABULARY = 30_000
ATTENDED = 64  # Steps that the attention of the hybrid reaches, and its heads.
HEADS = 4
MAX_KEY = 256  # Size of a key of Gated DeltaNet.
HORIZON = 1024  # Of the FRU, which the paper has not.
LARGEST_STATE = 100.0  # Bound of the states of s5_bounded, for inputs within 1.


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant.

    ``rows``: rows of a batch, None for equal tokens; ``learning_rate``, ``width`` and
    ``steps``: None for those of the size; ``d_state``: states of each channel of Mamba.
    """

    model: Literal[
        "s5",
        "s5_bounded",
        "mamba",
        "gru",
        "dlr",
        "ets",
        "fru",
        "hybrid",
        "mamba2",
        "gated_delta_net",
    ]
    length: PositiveInt
    state_init: StateInitKind
    order: Literal["text", "shuffled"] = "text"
    rows: PositiveInt | None = None
    size: Literal["d384", "d192", "d768", "d1024", "small", "tiny"] = "d384"
    dtype: ComputeDtype = "float32"
    learning_rate: PositiveFloat | None = None
    state_penalty: NonNegativeFloat = 0.0
    d_state: PositiveInt = 16
    weight_decay: NonNegativeFloat = 0.05
    width: PositiveInt | None = None
    steps: PositiveInt | None = None


def get_config(variant: str = "model=s5,length=16,state_init=carry") -> Config:
    """Returns the config of a variant.

    Raises:
      ValueError: ``d_state`` is of another model, or ``width`` no multiple of 16.
    """
    choices = parse_variant(variant, Variant)
    if choices.model != "mamba" and choices.d_state != Variant.d_state:
        raise ValueError(
            f"`variant: d_state` must be left out for {choices.model}, got "
            f"{choices.d_state}; it is of model=mamba."
        )
    length, rows, small = (
        choices.length,
        choices.rows,
        choices.size in ("small", "tiny"),
    )
    d_model, n_layers = SIZES[choices.size]
    d_model = choices.width or d_model
    if d_model % 16:
        raise ValueError(
            f"`variant: width` must be a multiple of 16, got {d_model}; heads and "
            "blocks divide it."
        )
    steps = {"small": 2_000, "tiny": TINY_STEPS}.get(choices.size, 20_000)
    tokens_of_batch = 2_048 if small else 32_768
    batch_size, n_validation = max(1, tokens_of_batch // length), 50
    if rows is not None:
        steps = max(1, steps * tokens_of_batch // 2 // (rows * length))
        # Equally many tokens for every length, so that checkpoints are chosen alike.
        n_validation = max(1, n_validation * tokens_of_batch // (rows * length))
        batch_size = rows
    steps = choices.steps or steps
    learning_rate = choices.learning_rate or (3e-3 if small else 1e-3)
    task = spec(
        TextFolder,
        length=length,
        tokenizer="bytes" if small else "words",
        vocabulary=257 if small else VOCABULARY,
        layout="shuffled" if choices.order == "shuffled" else "stream",
    )
    tokens = task.get_ref("vocabulary")
    encoder = spec(TokenEncoder, d_model=d_model, vocabulary=tokens, std=d_model**-0.5)
    training = spec(
        TrainConfig,
        steps=steps,
        batch_size=batch_size,
        initial_state=choices.state_init,
        state_penalty=choices.state_penalty,
        evaluate_every=max(1, steps // 4),
        evaluation_batches=n_validation,
    )
    return ConfigDict(
        {
            "experiment": "longssm/text",
            "variant": format_variant(choices),
            "paper": None,
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=encoder,
                n_layers=n_layers,
                **_blocks(choices, d_model, n_layers),
                head=None,
                dtype=choices.dtype,
            ),
            "optimizer": spec(
                Optimizer,
                learning_rate=learning_rate,
                schedule="cosine",
                warmup_steps=training.get_ref("steps") // 20,
                schedule_steps=training.get_ref("steps"),
                weight_decay=choices.weight_decay,
                clip_norm=1.0,
            ),
            "training": training,
        }
    )


def _blocks(choices, d, n_layers):
    """The fields of the model that say which blocks it has."""
    if choices.model != "hybrid":
        return {"block": _block(choices, d, n_layers)}
    attention = SlidingAttention(n_heads=HEADS, window=ATTENDED, n_kv_heads=1)
    blocks = tuple(
        Block(layer, prenorm=True, feedforward=MLP(d_hidden=4 * d))
        for layer in (Griffin(RGLRU(n_heads=HEADS)), attention)
    )
    # Two recurrences, then attention, as in Griffin.
    return {"block": blocks, "pattern": "aab" if n_layers > 2 else "ab"}


def _block(choices, d, n_layers):
    """A block of width ``d``: a layer over time and, except for Mamba, an MLP."""
    if choices.model == "mamba":
        layer = Mamba(SelectiveSSM(d_state=choices.d_state), n_layers=n_layers)
        return Block(layer, norm="rms", prenorm=True)
    if choices.model in ("mamba2", "gated_delta_net"):
        return _matrix_block(choices.model, d, n_layers)
    mixing = ChannelMixing()
    s5 = S5(d_state=d, blocks=math.gcd(d, 32) // 2)
    layer = {
        "s5": lambda: RecurrentLayer(s5, mixing),
        "s5_bounded": lambda: RecurrentLayer(
            BoundedEigenvalues(recurrence=s5, largest_state=LARGEST_STATE), mixing
        ),
        "gru": lambda: RecurrentLayer(GRU(d_state=d), mixing),
        "dlr": lambda: RecurrentLayer(DLR(d_state=64), mixing),
        "ets": lambda: ETSMLP(CES(), d_hidden=d, gate=True),
        "fru": lambda: RecurrentLayer(
            FRU(
                frequencies=log_spaced(20, HORIZON / 4),
                horizon=HORIZON,
                d_output=d,
            ),
            mixing,
        ),
    }[choices.model]()
    return Block(layer, prenorm=True, feedforward=MLP(d_hidden=4 * d))


def _matrix_block(model, d, n_layers):
    """A block whose states are matrices, with as many parameters as one of S5.

    That has 3 d^2 of them in its layer and 8 d^2 in its MLP. These layers have 6 d^2,
    and Mamba-2 also 2 d d_state for B and C.
    """
    d_hidden = 5 * d // 2
    if model == "mamba2":
        # The published sizes where the width allows it.
        ssd = SSD(d_head=min(64, d // 2), d_state=min(128, d // 2))
        layer, d_hidden = Mamba2(ssd, n_layers=n_layers), d_hidden - ssd.d_state
    else:
        # Keys of 3/4 of the width and values of twice as much, as published, in heads
        # of at most the published size.
        n_heads = math.ceil(3 * d / (4 * MAX_KEY))
        d_key = 3 * d // (4 * n_heads)
        layer = GatedDeltaNet(
            GatedDeltaRule(n_heads=n_heads, d_key=d_key, d_value=2 * d_key)
        )
    return Block(layer, norm="rms", prenorm=True, feedforward=MLP(d_hidden=d_hidden))
