"""Language models on long texts: generation after a prompt, and a million tokens.

The models are the small ones of ``experiments/longssm/text.py``, of bytes, with
two layers of width 64 and initial parameters: the cost does not depend on training.
"""

import logging
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.core import meta

from benchmarks.measurement import Row, in_turns
from experiments.longssm import text
from ssm_jax.config import build
from ssm_jax.evaluation import generate, losses_by_length
from ssm_jax.evaluation.generate import BLOCK_SIZE
from ssm_jax.types import PyTree

MODELS = get_args(text.Variant.__annotations__["model"])

LONG = ("s5", "mamba", "dlr", "ets")
"""The models that read the long text."""

WAYS = ("pieces", "at_once")


def generation_rows(position: int, *, repeats: int) -> Iterable[Row]:
    """Times the generation of a token after a prompt.

    Args:
      position: Number of tokens of the prompt, which is read in one call.
      repeats: Number of timed blocks of tokens.

    Yields:
      A row for each model: median seconds per token; their ratio to those of a token at
      the start of a text, timed in turns; and bytes of the state.
    """
    prompt = random_tokens(position).tolist()
    for name in MODELS:
        logging.info("%s, after %d tokens", name, position)
        model, variables = started(name)
        writers = [generate(model, variables, [p]) for p in (prompt[:1], prompt)]
        for writer in writers:  # read their prompts
            next(writer)
        runs = {
            name: partial(_next_block, writer)
            for name, writer in zip(("first", "later"), writers, strict=True)
        }
        seconds = in_turns(runs, repeats=repeats)
        first, later = (seconds[f"{name}_s"] / BLOCK_SIZE for name in runs)
        state = next(writers[1]).state
        yield {
            "what": name,
            "position": position,
            "token_s": later,
            "over_first": later / first,
            "state_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(state)),
        }


def _next_block(writer: Iterator[Any]) -> None:
    for _ in range(BLOCK_SIZE):
        next(writer)


def long_text_rows(length: int, *, repeats: int) -> Iterable[Row]:
    """Evaluates models on one sequence, in pieces and in a single call.

    Args:
      length: Number of tokens of the sequence.
      repeats: Ignored; each is evaluated once, in a process of its own.

    Yields:
      A row for each model: seconds of both ways, including compilation, the peak memory
      of both processes, and the relative difference of the losses.
    """
    del repeats
    for name in LONG:
        logging.info("%s, %d tokens", name, length)
        losses, row = [], {"what": name, "length": length}
        for way in WAYS:
            loss, found = in_a_fresh_process(evaluated, name, length, way)
            losses.append(loss)
            row |= found
        yield row | {"error": abs(losses[1] / losses[0] - 1)}


def evaluated(name: str, length: int, way: str) -> tuple[float, Row]:
    """Evaluates a model on one sequence.

    Args:
      name: The model.
      length: Number of tokens of the sequence.
      way: ``"pieces"``: by `losses_by_length`. ``"at_once"``: by a single call.

    Returns:
      The loss in nats per token; ``WAY_s``, the seconds; and ``WAY_bytes``, the peak
      memory of this process so far.
    """
    model, variables = started(name)
    tokens = random_tokens(length + 1)
    start = time.perf_counter()
    if way == "pieces":
        (measured,) = losses_by_length(model, variables, tokens, [length])
        loss = measured.loss
    else:
        loss = float(_loss(model, variables, tokens))
    seconds = time.perf_counter() - start
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    held *= 1 if sys.platform == "darwin" else 1024
    return loss, {f"{way}_s": seconds, f"{way}_bytes": held}


def in_a_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in a new process, so that its peak memory is its own."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments).result()


@partial(jax.jit, static_argnums=0)
def _loss(model, variables, tokens):
    logits, _ = model.apply(variables, tokens[None, :-1])
    of_next = optax.softmax_cross_entropy_with_integer_labels
    return jnp.mean(of_next(logits[0], tokens[1:]))


def started(name: str) -> tuple[nn.Module, PyTree]:
    """Returns a small model with its initial parameters."""
    config = text.get_config(f"model={name},length=16,state_init=zero,size=small")
    model = build(config.model, "config.model")
    start = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 2), jnp.int32))
    return model, meta.unbox(start)


def random_tokens(*shape: int) -> np.ndarray:
    """Returns random bytes and separators."""
    return np.random.default_rng(0).integers(0, 257, shape, np.int32)
