"""Text generation: tokens sampled from the predictions of a model, in blocks."""

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn, serialization

from ssm_jax.fields import (
    Interval,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    Seed,
    check_fields,
    check_indices,
    check_value,
)
from ssm_jax.files import atomic_file
from ssm_jax.models.decoding import can_decode, stateless, vocabulary_size
from ssm_jax.types import Array, Float, Int, PRNGKey, PyTree

# Prompts are padded to a multiple of this, so that few lengths are compiled.
_MULTIPLE = 64

# A sampled "token" where the logits are NaN: a compiled function cannot raise an error,
# and the argmax of NaN would be token 0 for ever.
_NO_TOKEN = -1

BLOCK_SIZE = 64
"""Number of tokens that one compiled call samples, if not told otherwise."""

_AHEAD_S = 0.1  # Most seconds that a block takes which is sampled in advance.

_Nucleus = Annotated[float, Interval(gt=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Distribution of the next token, computed from the logits.

    Attributes:
      temperature: Divisor of the logits. 0 selects the most likely token.
      top_k: Number of most likely tokens to sample from. None means all tokens.
      top_p: Total probability of the most likely tokens to sample from (the nucleus);
        the most likely token is always kept. None means all tokens.

    Raises:
      ValueError: A field has the wrong type, ``temperature`` is negative, ``top_k`` is
        not positive, or ``top_p`` is not in (0, 1].

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
        check_fields(self)

    def kept(self, logits: Float[Array, "*b o"]) -> Float[Array, "*b o"]:
        """Replaces the logits of all tokens that are never sampled by minus infinity.

        Tokens with the same logit are kept or removed together.
        """
        threshold = -jnp.inf
        if self.top_k is not None:
            k = min(self.top_k, logits.shape[-1])
            threshold = jax.lax.top_k(logits, k)[0][..., -1:]
        if self.top_p is not None:
            descending = -jnp.sort(-logits)
            p = jax.nn.softmax(descending)
            # The probability of all likelier tokens; 0 for the first, which is kept.
            in_nucleus = jnp.cumsum(p, -1) - p < self.top_p
            last = jnp.min(
                jnp.where(in_nucleus, descending, jnp.inf), -1, keepdims=True
            )
            threshold = jnp.maximum(threshold, last)
        return jnp.where(logits >= threshold, logits, -jnp.inf)

    def draw(self, key: PRNGKey, logits: Float[Array, "*b o"]) -> Int[Array, "*b"]:
        """Samples a token for each row."""
        if self.temperature == 0:
            return jnp.argmax(logits, -1)
        # With a maximum of 0, division by a low temperature overflows to -inf only.
        logits = logits - jnp.max(logits, -1, keepdims=True)
        # The temperature comes first: top_k and top_p restrict the tempered
        # distribution.
        return jax.random.categorical(key, self.kept(logits / self.temperature))


@dataclass(frozen=True)
class GenerationState:
    """The arguments with which `generate` continues texts.

    `generate` continues them with ``tokens[:, None]`` as prompts and with ``state`` and
    ``n_drawn``.

    Attributes:
      tokens: The last token of each row, ``(b,)``, not yet evaluated by the model.
      state_before: Computes ``state``. `generate` samples tokens in blocks and stores
        the states between them; a state within a block is computed from the one before
        the block, when it is asked for.
      n_drawn: Number of tokens sampled in each row.
    """

    tokens: Int[np.ndarray, " b"]
    state_before: Callable[[], PyTree]
    n_drawn: int

    @functools.cached_property
    def state(self) -> PyTree:
        """State of the model before ``tokens``, with leaves ``(b, ...)``."""
        return self.state_before()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a file, atomically."""
        fields = {name: getattr(self, name) for name in ("tokens", "state", "n_drawn")}
        content = serialization.to_bytes(jax.device_get(fields))
        with atomic_file(Path(path)) as file:
            file.write(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> "GenerationState":
        """Reads a state that `save` wrote.

        Args:
          path: The file.
          model: The model that generated the text.

        Raises:
          FileNotFoundError: The file does not exist.
          ValueError: The file was written by another model, or not by `save`.
        """
        content = Path(path).read_bytes()
        try:
            fields: Any = serialization.msgpack_restore(content)
            tokens, n_drawn = np.asarray(fields["tokens"]), int(fields["n_drawn"])
            # The structure of the model's state; a file of another model does not fit.
            expected = jax.eval_shape(lambda: model.initial_state((len(tokens),)))
            state = serialization.from_state_dict(expected, fields["state"])
        except Exception as error:  # msgpack raises errors of many types
            raise _mismatch(path, repr(error)) from error
        if tokens.ndim != 1 or tokens.dtype.kind != "i":
            raise _mismatch(path, f"tokens {tokens.dtype}{list(tokens.shape)}")
        for leaf, like in zip(*map(jax.tree.leaves, (state, expected)), strict=True):
            if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
                got = f"{leaf.dtype}{list(leaf.shape)} instead of {like}"
                raise _mismatch(path, got)
        return cls(tokens, lambda: state, n_drawn)


def generate(
    model: nn.Module,
    variables: PyTree,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling | None = None,
    seed: int = 0,
    state: Any = None,
    n_drawn: int = 0,
    block_size: int = BLOCK_SIZE,
) -> Iterator[GenerationState]:
    """Continues prompts with sampled tokens, without end.

    The prompts are evaluated in one call, and the first token follows from it. After
    that one compiled loop samples ``block_size`` tokens, which are then yielded one by
    one: calls from Python cost more than the tokens of a small model. Each token takes
    the same time and memory, for any length of the text, because the state has a fixed
    size.

    Args:
      model: Model that predicts the next token at each step.
      variables: Parameters and other variables of the model.
      prompts: Tokens, one sequence per row, of any lengths from 1, in
        ``[0, vocabulary)``; those of a text are given by the ``encode`` of its task.
      sampling: Sampling method. None means ``Sampling()``.
      seed: Seed of the sampling; the tokens of row ``r`` do not depend on other rows.
      state: State before the prompts, one row per prompt. None means the initial state
        of the model.
      n_drawn: Number of tokens sampled by earlier calls; a text continued with this
        number is the same as a text generated in one call.
      block_size: Number of tokens sampled in one call; the text does not depend on it.
        1 yields each token as soon as it is sampled.

    Yields:
      A `GenerationState` after each token: the tokens of all rows, and the state to
      continue from.

    Raises:
      ValueError: A prompt is empty, or has a token that is no integer in
        ``[0, vocabulary)``; ``seed`` is not in [0, 2**32), ``n_drawn`` is negative,
        ``block_size`` is not positive, or ``model`` has a layer without a state, or
        positional embeddings, so that a token has no context, or predicts more tokens
        than it accepts; or, at a token, logits have no finite maximum, so that there is
        nothing to sample.
    """
    sampling = sampling or Sampling()
    _check_decodes(model)
    check_value("seed", seed, Seed)
    check_value("n_drawn", n_drawn, NonNegativeInt)
    check_value("block_size", block_size, PositiveInt)
    lengths = np.array([len(prompt) for prompt in prompts])
    if not len(prompts) or lengths.min() == 0:
        raise ValueError(
            f"`prompts` must each have a token, got {len(prompts)} of lengths "
            f"{lengths.tolist()}; a separator of documents is a token."
        )
    width = -(-lengths.max() // _MULTIPLE) * _MULTIPLE
    inputs = np.zeros((len(prompts), width), np.int32)
    n_tokens = vocabulary_size(model) or _n_predicted(model, variables)
    for row, (number, prompt) in zip(inputs, enumerate(prompts), strict=True):
        row[: len(prompt)] = _as_tokens(f"prompts[{number}]", prompt, n_tokens)
    tokens, state = _prefill(
        model, sampling, variables, inputs, lengths, state, seed, n_drawn
    )
    n_drawn += 1
    drawn = np.asarray(tokens)
    if _without_token(drawn):
        raise _not_finite(drawn, n_drawn)
    yield GenerationState(drawn, lambda state=state: state, n_drawn)
    sample_block = partial(_sample_block, model, sampling, block_size, variables)
    sampled, is_short = None, False
    while True:
        start = time.monotonic()
        # `before` precedes `tokens`, so a continuation evaluates `tokens` first.
        block_state = state
        sampled = sampled or sample_block(tokens, block_state, seed, n_drawn)
        block, tokens, state = sampled
        # The next block is sampled while these tokens are waited for and read, unless
        # blocks take so long that a text which ends before it would wait.
        sampled = None
        if is_short:
            sampled = sample_block(tokens, state, seed, n_drawn + block_size)
        # `block` starts with the token before it: (1 + block_size, b).
        block = np.asarray(block)
        is_short = time.monotonic() - start < _AHEAD_S
        refused = _without_token(block).tolist()
        for k in range(1, block_size + 1):
            n_drawn += 1
            if refused[k]:
                raise _not_finite(block[k], n_drawn)
            # Only the states between blocks are stored.
            state_before = partial(
                _state_after, model, variables, block[:k], block_state
            )
            yield GenerationState(block[k], state_before, n_drawn)


@lru_cache(maxsize=8)
def _check_decodes(model):
    """Checks that a model decodes; a loop of steps checks its model once."""
    if can_decode(model):
        return
    if getattr(model, "positions", None) is not None:
        raise ValueError(
            "`model` must have no positional embeddings to decode token by token, got "
            f"`positions` = {type(model.positions).__name__}; positions count from the "
            "first step of a call, so train a model with `positions=None`."
        )
    raise ValueError(
        "`model` must have a state in every layer to decode token by token, got "
        f"`initial_state` = None at layers {', '.join(stateless(model))}; causal "
        "recurrences, `Attention(kind='linear')` and `RotaryAttention(window=...)` "
        "have one."
    )


def _n_predicted(model, variables):
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    logits, _ = jax.eval_shape(model.apply, variables, tokens)
    return logits.shape[-1]


def _check_head(model, predicted):
    """Checks that a model accepts all tokens that it predicts."""
    accepted = vocabulary_size(model)
    if accepted is not None and predicted > accepted:
        raise ValueError(
            f"`model` must accept all tokens that it predicts, got {predicted} of the "
            f"head for a vocabulary of {accepted}; give both the same number."
        )


def _as_tokens(name, prompt, n_tokens):
    """A prompt as an array of tokens."""
    tokens = np.asarray(prompt)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be a sequence of integers, got {tokens.dtype} "
            f"{tokens.shape}; the `encode` of a text's task makes one."
        )
    check_indices(
        name, tokens, n_tokens, "the `encode` of a text's task gives its tokens"
    )
    return tokens


def _without_token(tokens):
    """Whether a row had no token to sample, of tokens ``(..., b)``."""
    return (tokens == _NO_TOKEN).any(-1)


def _not_finite(tokens, n_drawn):
    row = int(np.argmax(tokens == _NO_TOKEN))
    return ValueError(
        f"`variables` must give logits with a finite maximum, got others for token "
        f"{n_drawn} of row {row}; look for parameters or a `state` that are NaN."
    )


# Models are hashable, so that each is compiled once.
@partial(jax.jit, static_argnums=(0, 1))
def _prefill(model, sampling, variables, inputs, lengths, state, seed, n_drawn):
    # The mask makes the final state that of the last token of each prompt.
    mask = jnp.arange(inputs.shape[1]) < lengths[:, None]
    logits, state = model.apply(variables, inputs, state, mask=mask)
    # Here, where it is traced: shapes alone would cost one more trace of each call.
    _check_head(model, logits.shape[-1])
    # The logits at the last token of each prompt predict the first new token.
    logits = logits[jnp.arange(len(lengths)), lengths - 1]
    return _sample(sampling, seed, logits, n_drawn), state


@partial(jax.jit, static_argnums=0)
def decode_step(
    model: nn.Module, variables: PyTree, tokens: Int[Array, " b"], state: PyTree
) -> tuple[Float[Array, "b o"], PyTree]:
    """Evaluates one token of each row.

    Args:
      model: Model that predicts the next token at each step.
      variables: Parameters and other variables of the model.
      tokens: The last token of each row. One that is not in ``[0, vocabulary)`` makes
        the logits of its row NaN.
      state: State before it, ``(b, ...)`` leaves.

    Returns:
      The logits of the next token, and the state after ``tokens``.

    Raises:
      ValueError: ``model`` has a layer without a state, or positional embeddings.
    """
    _check_decodes(model)
    logits, state = model.apply(variables, tokens[:, None], state)
    return logits[:, 0], state


@partial(jax.jit, static_argnums=(0, 1, 2))
def _sample_block(model, sampling, size, variables, tokens, state, seed, n_drawn):
    """Samples tokens in one loop, ``(1 + size, b)`` with the given ones first.

    Also returns the last tokens and the state before them.
    """

    def step(carry, count):
        tokens, state = carry
        logits, state = decode_step(model, variables, tokens, state)
        tokens = _sample(sampling, seed, logits, count)
        return (tokens, state), tokens

    counts = n_drawn + jnp.arange(size)
    (last, state), drawn = jax.lax.scan(step, (tokens, state), counts)
    return jnp.concatenate([tokens[None], drawn]), last, state


def _state_after(model, variables, block, state):
    """Evaluates the tokens of a block, ``(k, b)``, from the state before them."""
    for tokens in block:
        _, state = decode_step(model, variables, tokens, state)
    return state


def _sample(sampling, seed, logits, count):
    # A key per token and per row: samples depend neither on how a text is divided into
    # calls nor on the other rows.
    key = jax.random.fold_in(jax.random.key(seed), count)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(len(logits)))
    tokens = jax.vmap(sampling.draw)(keys, logits).astype(jnp.int32)
    return jnp.where(jnp.isfinite(jnp.max(logits, -1)), tokens, _NO_TOKEN)


def _mismatch(path, got):
    return ValueError(
        f"`path` must hold a state saved with this model, got {path} with {got}; load "
        "it with the model that generated the text."
    )
