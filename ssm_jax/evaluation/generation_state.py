"""The state of text generation, saved between calls that continue one text."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import serialization

from ssm_jax.files import replaced
from ssm_jax.types import Int, PyTree


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
        with replaced(Path(path)) as file:
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


def _mismatch(path, got):
    return ValueError(
        f"`path` must hold a state saved with this model, got {path} with {got}; load "
        "it with the model that generated the text."
    )
