"""Training of language models of equal size by length, as in figure 3 of ETSMLP.

The models are causal and of nearly equal size: 30 million parameters on accelerators as
in the paper, one million on CPUs. A step is the gradient of the mean cross-entropy of
the next token on one sequence. The models are timed in turns, and the fastest turn
counts, since other processes on the machine only add to the seconds.
"""

import functools
import logging
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.core import meta

from benchmarks.measurement import Row, bytes_held, in_turns
from ssm_jax.layers import ETSMLP, MLP, Attention, ChannelMixing, RecurrentLayer
from ssm_jax.models import (
    Block,
    PositionalEmbedding,
    SequenceModel,
    StepHead,
    TokenEncoder,
)
from ssm_jax.recurrences import CES, S4, S4D
from ssm_jax.types import Array, Int

_VOCABULARY = 1000


def throughput_rows(
    length: int,
    *,
    width: int | None = None,
    n_layers: int | None = None,
    repeats: int,
) -> Iterable[Row]:
    """Times a training step of each model.

    Args:
      length: Length of the sequence, which is the whole batch.
      width: Number of channels. None means 128 on CPUs and 512 otherwise.
      n_layers: Number of Transformer blocks. None means 4 on CPUs and 12 otherwise.
      repeats: Number of timed turns.

    Yields:
      A row for each model: parameters, tokens per second, and memory in bytes.
    """
    tokens = jax.random.randint(jax.random.key(0), (1, length), 0, _VOCABULARY)
    small = jax.default_backend() == "cpu"
    width = width or (128 if small else 512)
    n_layers = n_layers or (4 if small else 12)
    rows, runs = [], {}
    for name, model in models(width, n_layers, length).items():
        logging.info("%s, %d steps", name, length)
        variables = meta.unbox(model.init(jax.random.key(1), tokens[:, :2]))
        step = jax.jit(_gradient(model)).lower(variables, tokens).compile()
        runs[name] = functools.partial(step, variables, tokens)
        sizes = [leaf.size for leaf in jax.tree.leaves(variables)]
        row = {"what": name, "length": length, "parameters": sum(sizes)}
        rows.append(row | {"step_bytes": bytes_held(step)})
    seconds = in_turns(runs, repeats=repeats)
    for row in rows:
        fastest = seconds[f"{row['what']}_min_s"]
        yield row | {"tokens_a_second": length / fastest}


def models(width: int, n_layers: int, length: int) -> dict[str, nn.Module]:
    """Returns the models, with depths at which their sizes are nearly equal.

    Args:
      width: Number of channels.
      n_layers: Number of Transformer blocks, with ``12 width**2`` parameters each.
      length: Maximum sequence length.
    """

    def n_parameters(block):
        variables = jax.eval_shape(
            block.init, jax.random.key(0), jnp.zeros((1, 2, width))
        )
        return sum(leaf.size for leaf in jax.tree.leaves(variables))

    def model(block, positions=None):
        depth = round(12 * width**2 * n_layers / n_parameters(block))
        return SequenceModel(
            encoder=TokenEncoder(width, _VOCABULARY),
            block=block,
            n_layers=depth,
            head=StepHead(_VOCABULARY),
            positions=positions,
        )

    gated = ETSMLP(CES(), d_hidden=2 * width, gate=True)
    mixing = ChannelMixing(kind="glu")
    attention = Attention(n_heads=width // 64)
    mlp = MLP(d_hidden=4 * width)
    return {
        "ETSMLP-Gate": model(Block(gated, prenorm=True)),
        "S4": model(Block(RecurrentLayer(S4(), mixing), prenorm=True)),
        "S4D": model(Block(RecurrentLayer(S4D(), mixing), prenorm=True)),
        "Transformer": model(
            Block(attention, prenorm=True, feedforward=mlp),
            PositionalEmbedding(max_length=length),
        ),
    }


def _gradient(model):
    def loss(variables, tokens: Int[Array, "1 l"]):
        logits, _ = model.apply(variables, tokens)
        of_next = optax.softmax_cross_entropy_with_integer_labels
        return jnp.mean(of_next(logits[:, :-1], tokens[:, 1:]))

    return jax.grad(loss)
