r"""Language models of books: a linear DLR, or attention, and a mixture of experts.

    python -m launch.prepare --dataset=pg19 --manual_dir=pg19 --data_dir=FOLDER
    python -m launch.train --config=experiments/dlr/pg19.py --data_dir=FOLDER/pg19 \
        --workdir=runs/pg19

Table 5 of Gupta, Mehta and Berant, arXiv 2212.00768. ``FOLDER/pg19`` contains text
files and the tokenizer of T5 as ``tokenizer.json``; any folder of text files will do.
With ``size=small`` tokens are bytes, without a tokenizer. Other tokens:
``--config.task.tokenizer=FILE.json --config.task.vocabulary=N
--config.task.separator=TOKEN``.

========  ============================================================================
variant   description
========  ============================================================================
model     ``dlr`` (default): a DLR without nonlinearity and output projection.
          ``transformer``: attention with rotary positions, 8 heads of width 64
experts   16 (default) or 64, each of which chooses its tokens (`ExpertChoiceMLP`), or
          1, an `MLP`
norm      ``pre`` (default) or ``post``
size      ``full`` (default), or ``small``, 2 blocks of 64 channels, which trains on a
          CPU core in minutes
========  ============================================================================

Experts choose among all tokens of a sequence, later ones included. What a model with
experts predicts at a token therefore depends on later tokens, and its bits per token
are not those of a causal model; with ``experts=1`` they are. No published number stands
beside the results: the paper names neither the unit of its numbers nor the version of
the tokenizer, on which a loss per token depends.

Of the paper are the 16 blocks, the table of width 128 tied to the output, the initial
decays, the learning rates 2e-4 of decays and weights of the DLR and 1e-3 of all others,
the weight decay, 120 sequences of 4,096 tokens per step, and twice the capacity in
evaluation. Widths and states are those that give the published numbers of parameters.
The positions, the warmup, the schedule and the clipping are ours. The paper trains for
10 epochs in a day of three A100s; 50,000 steps are about as many epochs, at 1.3 tokens
per word.
"""

import dataclasses
from typing import Literal, NamedTuple

from ml_collections import ConfigDict

from ssm_jax.config import Config, spec
from ssm_jax.layers import MLP, Attention, ExpertChoiceMLP, Recurrent
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import DLR
from ssm_jax.tasks import TextFolder
from ssm_jax.training import Optimizer, TrainConfig
from ssm_jax.variants import format_variant, parse_variant


@dataclasses.dataclass(frozen=True)
class Variant:
    """Choices of the variant."""

    model: Literal["dlr", "transformer"] = "dlr"
    experts: Literal[16, 64, 1] = 16
    norm: Literal["pre", "post"] = "pre"
    size: Literal["full", "small"] = "full"


class Size(NamedTuple):
    """Sizes of a model and of its training.

    Attributes:
      n_layers: Number of blocks.
      d_model: Number of channels.
      d_embedding: Width of the table of tokens.
      d_hidden: Width of the hidden layer of each expert.
      d_state: Number of states per channel of the DLR.
      n_heads: Number of heads of the attention.
      d_head: Width of a head.
      length: Number of tokens of a sequence.
      learning_rate: Maximum learning rate.
      batch_size: Number of sequences per step.
      steps: Number of steps.
    """

    n_layers: int
    d_model: int
    d_embedding: int
    d_hidden: int
    d_state: int
    n_heads: int
    d_head: int
    length: int
    learning_rate: float
    batch_size: int
    steps: int


FULL = Size(16, 384, 128, 1536, 512, 8, 64, 4096, 1e-3, 120, 50_000)
SMALL = Size(2, 64, 32, 128, 64, 4, 16, 256, 3e-3, 8, 2_000)


def get_config(variant: str = "") -> Config:
    """Returns the config of a variant."""
    choices = parse_variant(variant, Variant)
    small = choices.size == "small"
    size = SMALL if small else FULL
    task = spec(TextFolder, length=size.length, layout="shuffled")
    if not small:
        task.update(tokenizer="tokenizer.json", vocabulary=32_128, separator="</s>")
    block = spec(
        Block,
        layer=_layer(choices.model, size),
        prenorm=choices.norm == "pre",
        feedforward=_feedforward(choices.experts, size),
    )
    training = spec(
        TrainConfig,
        steps=size.steps,
        batch_size=size.batch_size,
        evaluate_every=size.steps // 4,
        evaluation_batches=50,
    )
    return ConfigDict(
        {
            "experiment": "dlr/pg19",
            "variant": format_variant(choices),
            "paper": None,
            "task": task,
            "model": spec(
                SequenceModel,
                encoder=spec(
                    TokenEncoder,
                    d_model=size.d_model,
                    vocabulary=task.get_ref("vocabulary"),
                    std=size.d_embedding**-0.5,
                    d_embedding=size.d_embedding,
                ),
                block=block,
                n_layers=size.n_layers,
                head=None,
            ),
            "optimizer": spec(
                Optimizer,
                learning_rate=size.learning_rate,
                schedule="cosine",
                warmup_steps=training.get_ref("steps") // 20,
                schedule_steps=training.get_ref("steps"),
                weight_decay=0.1,
                clip_norm=1.0,
            ),
            "training": training,
        }
    )


def _layer(model: str, size: Size) -> Config:
    """The spec of the layer over time."""
    if model == "transformer":
        return spec(Attention, n_heads=size.n_heads, kind="rotary", d_head=size.d_head)
    dlr = spec(DLR, d_state=size.d_state, dt_min=1e-3, dt_max=1e-1, lr_multiplier=0.2)
    return spec(Recurrent, recurrence=dlr)


def _feedforward(n_experts: int, size: Size) -> Config:
    """The spec of the feed-forward module; a single expert takes every token."""
    if n_experts == 1:
        return spec(MLP, d_hidden=size.d_hidden)
    return spec(ExpertChoiceMLP, d_hidden=size.d_hidden, n_experts=n_experts)
