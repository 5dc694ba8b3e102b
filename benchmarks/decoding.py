"""Text generation compared to a single compiled loop over all tokens.

The models are those of `benchmarks.language`, with initial parameters.
"""

import itertools
import logging
from collections.abc import Iterable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from benchmarks import language
from benchmarks.measurement import Row, in_turns
from ssm_jax.evaluation import GenerationState, generate
from ssm_jax.types import Array, Int, PyTree

PROMPT = 50
"""Tokens of a prompt."""

ROWS = (1, 32)
"""Texts that are generated at once."""


def decoding_rows(n_tokens: int, *, repeats: int) -> Iterable[Row]:
    """Times generation against one `jax.lax.scan` over all tokens, in turns.

    Args:
      n_tokens: Number of tokens of each text.
      repeats: Number of timed turns.

    Yields:
      A row for each model and number of texts: seconds until the first token, with the
      evaluation of the prompt; tokens per second, of all texts together, by the single
      loop, by `generate` and by `generate` one token a call, by minima of time; the
      ratio of the first two, by minima and by medians; and whether the texts are equal.
    """
    for name, rows in itertools.product(language.MODELS, ROWS):
        logging.info("%s, %d texts of %d tokens", name, rows, n_tokens)
        model, variables = language.started(name)
        prompts = language.random_tokens(rows, PROMPT).tolist()
        start = partial(generate, model, variables, prompts)
        by_block, by_token = start(), start(block_size=1)
        first = next(by_block), next(by_token)
        tokens = jax.device_put(first[0].tokens)
        texts = {
            "loop": partial(loop, model, n_tokens, variables, tokens, first[0].state),
            "blocks": partial(_texts, by_block, n_tokens),
            "tokens": partial(_texts, by_token, n_tokens),
        }
        wanted, *found = (text() for text in texts.values())
        seconds = in_turns(
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
            "same_text": all(np.array_equal(wanted, text) for text in found),
        }


def _texts(steps: Iterator[GenerationState], n: int) -> np.ndarray:
    return np.stack([step.tokens for step in itertools.islice(steps, n)])


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
