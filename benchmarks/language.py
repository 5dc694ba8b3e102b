"""Language models: generated text, and training by length as in figure 3 of ETSMLP."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.core import meta

from benchmarks.measurement import Row, bytes_held, time_in_turns
from experiments.longssm import text
from ssm_jax.config import build
from ssm_jax.evaluation import GenerationState, generate
from ssm_jax.layers import ETSMLP, MLP, Attention, ChannelMixing, RecurrentLayer
from ssm_jax.models import (
    Block,
    PositionalEmbedding,
    SequenceModel,
    StepHead,
    TokenEncoder,
)
from ssm_jax.recurrences import CES, S4, S4D
from ssm_jax.types import Array, Int, PyTree

MODELS = get_args(text.Variant.__annotations__["model"])
"""The models that generate, of bytes, with two layers of width 64: the small ones of
`experiments.longssm.text`. Their cost does not depend on training."""

PROMPT = 50
"""Tokens of a prompt."""

TEXTS = (1, 32)
"""Texts that are generated at once."""

_VOCABULARY = 1000

TARGETS = {"dlr": 0.95}
"""Targets of the ratio to the loop, by model."""


def decoding_rows(n_tokens: int, *, repeats: int) -> Iterable[Row]:
    """Times generation against one `jax.lax.scan` over all tokens, in turns.

    Args:
      n_tokens: Number of tokens of each text.
      repeats: Number of timed turns.

    Yields:
      A row for each model and number of texts: seconds until the first token, with the
      evaluation of the prompt; tokens per second, of all texts together, by the single
      loop, by `generate` and by `generate` one token a call, each with the prompt and
      by minima of time; the ratio of the first two, by minima and by medians, with
      its target or None; and whether the texts are equal.
    """
    for name, rows in itertools.product(MODELS, TEXTS):
        logging.info("%s, %d texts of %d tokens", name, rows, n_tokens)
        model, variables = initialize_model(name)
        prompts = random_tokens(rows, PROMPT).tolist()
        start = partial(generate, model, variables, prompts)
        texts = {
            "loop": partial(_text_of_loop, model, n_tokens, variables, start),
            "blocks": partial(_text, start, n_tokens),
            "tokens": partial(_text, partial(start, block_size=1), n_tokens),
        }
        expected, *other_texts = (text() for text in texts.values())
        seconds = time_in_turns(
            texts | {"first": lambda start=start: next(start()).tokens},
            repeats=repeats,
        )
        per_second = {
            f"{name}_per_s": rows * n_tokens / seconds[f"{name}_min_s"]
            for name in texts
        }
        yield {
            "what": name,
            "texts": rows,
            "tokens": n_tokens,
            "first_token_s": seconds["first_s"],
            **per_second,
            "of_loop_min": seconds["loop_min_s"] / seconds["blocks_min_s"],
            "of_loop": seconds["loop_s"] / seconds["blocks_s"],
            "target": TARGETS.get(name),
            "same_text": all(np.array_equal(expected, text) for text in other_texts),
        }


Start = Callable[[], Iterator[GenerationState]]


def _text(start: Start, n: int) -> np.ndarray:
    """The ``n`` tokens after the first one."""
    return np.stack([step.tokens for step in itertools.islice(start(), 1, n + 1)])


def _text_of_loop(
    model: nn.Module, n: int, variables: PyTree, start: Start
) -> Int[Array, "n b"]:
    first = next(start())
    return loop(model, n, variables, jax.device_put(first.tokens), first.state)


@partial(jax.jit, static_argnums=(0, 1))
def loop(
    model: nn.Module, n: int, variables: PyTree, tokens: Array, state: PyTree
) -> Int[Array, "n b"]:
    """Samples ``n`` tokens after the first one as `generate` does, in one loop."""

    def step(carry, count):
        tokens, state = carry
        logits, state = model.apply(variables, tokens[:, None], state)
        key = jax.random.fold_in(jax.random.key(0), count)
        keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(tokens)))
        tokens = jax.vmap(jax.random.categorical)(keys, logits[:, 0])
        return (tokens, state), tokens

    return jax.lax.scan(step, (tokens, state), jnp.arange(1, n + 1))[1]


def initialize_model(name: str) -> tuple[nn.Module, PyTree]:
    """Returns a small model with its initial parameters."""
    config = text.get_config(f"model={name},length=16,state_init=zero,size=small")
    model = build(config.model, "config.model")
    start = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))
    return model, meta.unbox(start)


def random_tokens(*shape: int) -> np.ndarray:
    """Returns random bytes and separators."""
    return np.random.default_rng(0).integers(0, 257, shape, np.int32)


def throughput_rows(
    length: int,
    *,
    width: int | None = None,
    n_layers: int | None = None,
    repeats: int,
) -> Iterable[Row]:
    """Times a training step of each model, in turns.

    The models are causal and of nearly equal size: 30 million parameters on
    accelerators as in the paper, one million on CPUs. A step is the gradient of the
    mean cross-entropy of the next token on one sequence. The fastest turn counts, since
    other processes on the machine only add to the seconds.

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
    for name, model in throughput_models(width, n_layers, length).items():
        logging.info("%s, %d steps", name, length)
        variables = meta.unbox(model.init(jax.random.key(1), tokens[:, :2]))
        step = jax.jit(_gradient(model)).lower(variables, tokens).compile()
        runs[name] = partial(step, variables, tokens)
        sizes = [leaf.size for leaf in jax.tree.leaves(variables)]
        row = {"what": name, "length": length, "parameters": sum(sizes)}
        rows.append(row | {"step_bytes": bytes_held(step)})
    seconds = time_in_turns(runs, repeats=repeats)
    for row in rows:
        fastest = seconds[f"{row['what']}_min_s"]
        yield row | {"tokens_a_second": length / fastest}


def throughput_models(width: int, n_layers: int, length: int) -> dict[str, nn.Module]:
    """Returns the trained models, with depths at which their sizes are nearly equal.

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
        cross_entropy = optax.softmax_cross_entropy_with_integer_labels
        return jnp.mean(cross_entropy(logits[:, :-1], tokens[:, 1:]))

    return jax.grad(loss)
