"""Texts that are written in several sittings: what is kept between them."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from flax import serialization

from ssm_jax.types import Int, PyTree


class GenerationState(NamedTuple):
    """How far texts have been written.

    To go on, `generate` is prompted with ``tokens`` from ``state``, after ``n_drawn``.

    Attributes:
      tokens: The last token of each row, ``(b,)``, which has not been read.
      state: The model's state before it, ``(b, ...)`` leaves.
      n_drawn: Tokens that each row has drawn.
    """

    tokens: Int[np.ndarray, " b"]
    state: PyTree
    n_drawn: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file, whole or not at all."""
        path = Path(path)
        part = path.with_name(path.name + ".part")
        part.write_bytes(serialization.to_bytes(jax.device_get(self)))
        part.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> "GenerationState":
        """Reads what `save` wrote.

        Args:
          path: The file.
          model: The model that the state is of.

        Raises:
          FileNotFoundError: There is no such file.
          ValueError: It is of another model, or no file that `save` wrote.
        """
        content = Path(path).read_bytes()
        try:
            fields: Any = serialization.msgpack_restore(content)
            tokens, n_drawn = np.asarray(fields["tokens"]), int(fields["n_drawn"])
            wanted = jax.eval_shape(lambda: model.initial_state((len(tokens),)))
            state = serialization.from_state_dict(wanted, fields["state"])
        except Exception as error:  # of msgpack there are many
            raise _foreign(path, repr(error)) from error
        for leaf, like in zip(*map(jax.tree.leaves, (state, wanted)), strict=True):
            if (leaf.shape, leaf.dtype) != (like.shape, like.dtype):
                got = f"{leaf.dtype}{list(leaf.shape)} in place of {like}"
                raise _foreign(path, got)
        return cls(tokens, state, n_drawn)


def _foreign(path, got):
    return ValueError(
        f"`path` must hold what this model has written, got {path} with {got}; it is "
        "of another model, or no such file."
    )
