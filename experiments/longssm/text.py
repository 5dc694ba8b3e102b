r"""Language models trained on short windows, with states that go on or start afresh.

    python -m launch.train --config=experiments/longssm/text.py:s5+16+previous+small \
        --data_dir=FOLDER --workdir=runs/s5
    python -m launch.evaluate --workdir=runs/s5 --mode=length_extension

Figures 4 to 10 of the paper. ``FOLDER`` holds text files: the paper's are WikiText-103,
which ``launch.prepare`` makes such a folder of. The variant is ``s5``, ``mamba`` or
``gru``, or beyond the paper ``dlr``, ``ets`` or ``fru``; the length of a window; and
what a batch starts from: ``zero``, ``previous``, ``noise`` or ``other``. With
``shuffled`` windows come in no order. ``d192``, ``d384`` (where nothing is said),
``d768`` and ``d1024`` are widths, in 6, 6, 12 and 24 layers; with ``small`` tokens are
bytes and the size one that two CPU cores train in minutes. Other tokens:
``--config.task.tokenizer=FILE.json --config.task.vocabulary=N``, of the file.

A batch has 32,768 tokens (small 2,048) whatever the length, so that all lengths see the
same text in the same number of steps, but in fewer rows the longer the windows. With
``rows32`` a batch has 32 rows whatever the length: each row reads the same text at
every length, half as much as without, in fewer steps the longer the windows. Rows, text
and steps cannot all be the same; what is asked about the length is asked of these runs.

Training that carries states may become unstable (section 4.3): ``s5_bounded`` bounds
them by its eigenvalues, ``--config.training.state_penalty`` by the loss, and with
``--config.training.gradient_windows`` the gradient flows from batch to batch too.

The paper names models and lengths, and no sizes, no rates and no batch; those here are
ours. With the 50,257 tokens of GPT-2's tokenizer S5 has 12, 29, 117 and 329 million
parameters, for its 12M, 30M, 127M and 370M.
"""

import math

from ml_collections import ConfigDict

from ssm_jax.config import Config, nearest, spec
from ssm_jax.layers import ETSMLP, MLP, ChannelMixing, Mamba, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import CES, DLR, FRU, GRU, S5, BoundedEigenvalues, log_spaced
from ssm_jax.tasks import TextFolder
from ssm_jax.training import Optimizer, TrainConfig

MODELS = ("s5", "s5_bounded", "mamba", "gru", "dlr", "ets", "fru")
STARTS = ("zero", "previous", "noise", "other")
MORE = ("shuffled", "rows32")
SIZES = {
    "small": (64, 2),
    "d192": (192, 6),
    "d384": (384, 6),
    "d768": (768, 12),
    "d1024": (1024, 24),
}
"""Width and layers."""

VOCABULARY = 30_000
HORIZON = 1024  # Of the FRU's waves, which the paper above has not.
LARGEST_STATE = 100.0  # Where it is bounded, for inputs within 1.


def get_config(variant: str = "s5+16+previous") -> Config:
    """The experiment in one of its variants."""
    model, length, start, size, more = _chosen(variant)
    small = size == "small"
    d_model, n_layers = SIZES[size]
    steps = 2_000 if small else 20_000
    tokens_of_batch = 2_048 if small else 32_768
    batch_size, validated = max(1, tokens_of_batch // length), 50
    if "rows32" in more:
        steps = max(1, steps * tokens_of_batch // 2 // (32 * length))
        # As many tokens for every length, so that they choose a checkpoint by the same.
        validated = max(1, validated * tokens_of_batch // (32 * length))
        batch_size = 32
    task = spec(
        TextFolder,
        length=length,
        tokenizer="bytes" if small else "words",
        vocabulary=257 if small else VOCABULARY,
        layout="shuffled" if "shuffled" in more else "stream",
    )
    tokens = task.get_ref("vocabulary")
    encoder = spec(TokenEncoder, d_model=d_model, vocabulary=tokens, std=d_model**-0.5)
    training = spec(
        TrainConfig,
        steps=steps,
        batch_size=batch_size,
        initial_state=start,
        evaluate_every=max(1, steps // 4),
        evaluation_batches=validated,
    )
    return ConfigDict(
        {
            "experiment": "longssm/text",
            "variant": variant,
            "paper": None,
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=encoder,
                block=_block(model, d_model, n_layers),
                n_layers=n_layers,
                head=None,
            ),
            "optimizer": spec(
                Optimizer,
                learning_rate=3e-3 if small else 1e-3,
                schedule="cosine",
                warmup_steps=training.get_ref("steps") // 20,
                schedule_steps=training.get_ref("steps"),
                weight_decay=0.05,
                clip_norm=1.0,
            ),
            "training": training,
        }
    )


def _chosen(variant):
    words = variant.split("+")
    known = (*MODELS, *STARTS, *SIZES, *MORE)
    numbers = [int(word) for word in words if word.isdigit()]
    for word in words:
        if word not in known and not word.isdigit():
            raise ValueError(
                f"the variant must be words of {', '.join(known)} and a length, joined "
                f"by +, got {word!r}; {nearest(word, known)}"
            )
    models, starts, sizes = (
        [word for word in words if word in group] for group in (MODELS, STARTS, SIZES)
    )
    one_each = len(models) == len(starts) == len(numbers) == 1 and len(sizes) < 2
    if not one_each or not numbers[0]:
        raise ValueError(
            "the variant must have one model, one length, one start and at most one "
            f"size, as s5+16+previous, got {variant!r}."
        )
    size = sizes[0] if sizes else "d384"
    more = [word for word in words if word in MORE]
    return models[0], numbers[0], starts[0], size, more


def _block(model, d, n_layers):
    """A block of width ``d``: what runs over time, then an MLP but for Mamba."""
    if model == "mamba":
        return Block(Mamba(n_layers=n_layers), norm="rms", prenorm=True)
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
    }[model]()
    return Block(layer, prenorm=True, feedforward=MLP(d_hidden=4 * d))
