"""Writing on: tokens drawn one after another, from what a model predicts."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.evaluation.written import GenerationState
from ssm_jax.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Rule,
    Seed,
    check_fields,
    check_value,
)
from ssm_jax.types import Array, Float, Int, PRNGKey, PyTree

# Prompts are filled up to a multiple, so that few lengths are compiled.
_MULTIPLE = 64

_Nucleus = Annotated[float, Rule("in (0, 1]", lambda p: 2.0**-126 <= p <= 1)]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is drawn from the logits.

    Attributes:
      temperature: What logits are divided by. 0: the likeliest token is taken.
      top_k: Only the likeliest so many tokens are drawn from. None means all.
      top_p: Only the likeliest tokens that together have this probability are drawn
        from (the nucleus), at least one. None means all.

    Raises:
      ValueError: A field has another type, ``temperature`` is negative, ``top_k`` not
        positive, or ``top_p`` not in (0, 1].

    Example:
      >>> logits = jnp.log(jnp.array([0.5, 0.3, 0.2]))
      >>> kept = jnp.exp(Sampling(top_p=0.6).kept(logits))
      >>> [round(float(p), 3) for p in kept]
      [0.5, 0.3, 0.0]

    References:
      Holtzman et al., `The Curious Case of Neural Text Degeneration
      <https://arxiv.org/abs/1904.09751>`_, 2019, section 3
    """

    temperature: Annotated[NonNegativeFloat, "1 draws as the model predicts"] = 1.0
    top_k: PositiveInt | None = None
    top_p: _Nucleus | None = None

    def __post_init__(self):
        """Validates the fields."""
        check_fields(self)

    def kept(self, logits: Float[Array, "*b o"]) -> Float[Array, "*b o"]:
        """The logits of tokens that may be drawn; minus infinity for the others."""
        least = -jnp.inf
        if self.top_k is not None:
            k = min(self.top_k, logits.shape[-1])
            least = jax.lax.top_k(logits, k)[0][..., -1:]
        if self.top_p is not None:
            descending = -jnp.sort(-logits)
            p = jax.nn.softmax(descending)
            in_nucleus = jnp.cumsum(p, -1) - p < self.top_p
            last = jnp.min(
                jnp.where(in_nucleus, descending, jnp.inf), -1, keepdims=True
            )
            least = jnp.maximum(least, last)
        return jnp.where(logits >= least, logits, -jnp.inf)

    def draw(self, key: PRNGKey, logits: Float[Array, "*b o"]) -> Int[Array, "*b"]:
        """Draws a token for each row."""
        if self.temperature == 0:
            return jnp.argmax(logits, -1)
        # The likeliest token at 0: a low temperature overflows to minus infinity alone.
        logits = logits - jnp.max(logits, -1, keepdims=True)
        return jax.random.categorical(key, self.kept(logits / self.temperature))


def generate(
    model: nn.Module,
    variables: PyTree,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling | None = None,
    seed: int = 0,
    state: Any = None,
    n_drawn: int = 0,
) -> Iterator[GenerationState]:
    """Writes on from prompts, without end; a state of fixed size is all that it keeps.

    The prompts are read all steps at once; from then on each token takes the same time
    and no more memory, however long the text.

    Args:
      model: A model that predicts the next token at each step.
      variables: Its parameters and other variables.
      prompts: Tokens, one sequence a row, of any lengths but 0.
      sampling: How tokens are drawn. None means `Sampling` as it stands.
      seed: Of what is drawn; row ``r`` draws the same beside any other rows.
      state: State before the prompts, a row of each leaf a prompt. None means a fresh
        start.
      n_drawn: Tokens that were drawn before: a text that goes on after a break is that
        without one.

    Yields:
      After each token `GenerationState`: the tokens of all rows, and what it takes to go on.

    Raises:
      ValueError: A prompt is empty, ``seed`` is not in [0, 2**32), or ``n_drawn`` is
        negative.
    """
    sampling = sampling or Sampling()
    check_value("seed", seed, Seed)
    check_value("n_drawn", n_drawn, NonNegativeInt)
    lengths = np.array([len(prompt) for prompt in prompts])
    if not len(prompts) or lengths.min() == 0:
        raise ValueError(
            f"`prompts` must each have a token, got {len(prompts)} of lengths "
            f"{lengths.tolist()}; a border between documents is one."
        )
    width = -(-lengths.max() // _MULTIPLE) * _MULTIPLE
    inputs = np.zeros((len(prompts), width), np.int32)
    for row, prompt in zip(inputs, prompts, strict=True):
        row[: len(prompt)] = prompt
    logits, state = _read(model, variables, inputs, lengths, state)
    for count in itertools.count(n_drawn):
        tokens = _drawn(sampling, seed, logits, count)
        yield GenerationState(np.asarray(tokens), state, count + 1)
        logits, state = _advance(model, variables, tokens, state)


# Compiled once a model, which is why models are hashable.
@partial(jax.jit, static_argnums=0)
def _read(model, variables, inputs, lengths, state):
    mask = jnp.arange(inputs.shape[1]) < lengths[:, None]
    logits, state = model.apply(variables, inputs, state, mask=mask)
    return logits[jnp.arange(len(lengths)), lengths - 1], state


@partial(jax.jit, static_argnums=0)
def _advance(model, variables, tokens, state):
    logits, state = model.apply(variables, tokens[:, None], state)
    return logits[:, 0], state


@partial(jax.jit, static_argnums=0)
def _drawn(sampling, seed, logits, count):
    key = jax.random.fold_in(jax.random.key(seed), count)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(logits)))
    return jax.vmap(sampling.draw)(keys, logits).astype(jnp.int32)
