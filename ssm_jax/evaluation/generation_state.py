"""The state of text generation, saved between calls that continue one text."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from flax import serialization

from ssm_jax.types import Int, PyTree


class GenerationState(NamedTuple):
    """The arguments with which `generate` continues texts.

    `generate` continues them with ``tokens[:, None]`` as prompts and with ``state`` and
    ``n_drawn``.

    Attributes:
      tokens: The last token of each row, ``(b,)``, not yet evaluated by the model.
      state: State of the model before that token, with leaves ``(b, ...)``.
      n_drawn: Number of tokens sampled in each row.
    """

    tokens: Int[np.ndarray, " b"]
    state: PyTree
    n_drawn: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a file, atomically."""
        path = Path(path)
        # `replace` is atomic: an interrupted save leaves the previous file.
        part = path.with_name(path.name + ".part")
        part.write_bytes(serialization.to_bytes(jax.device_get(self)))
        part.replace(path)

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
        for leaf, like in zip(*map(jax.tree.leaves, (state, expected)), strict=True):
            if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
                got = f"{leaf.dtype}{list(leaf.shape)} instead of {like}"
                raise _mismatch(path, got)
        return cls(tokens, state, n_drawn)


def _mismatch(path, got):
    return ValueError(
        f"`path` must hold a state saved with this model, got {path} with {got}; load "
        "it with the model that generated the text."
    )
