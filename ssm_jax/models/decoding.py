"""Which models decode token by token, and which tokens they accept."""

import jax
from flax import linen as nn


def can_decode(model: nn.Module) -> bool:
    """Whether the states of a model hold all that its next token depends on.

    Args:
      model: The model; one with positional embeddings or a layer without a state, such
        as softmax attention or a bidirectional recurrence, does not decode.
    """
    return getattr(model, "positions", None) is None and not stateless(model)


def vocabulary_size(model: nn.Module) -> int | None:
    """Returns the number of tokens that a model accepts.

    Args:
      model: The model.

    Returns:
      The ``vocabulary`` of its encoder; None if it has no encoder with such a field.
    """
    return getattr(getattr(model, "encoder", None), "vocabulary", None)


def stateless(model: nn.Module) -> list[str]:
    """Returns the places in the states of a model that are None.

    Args:
      model: The model.
    """
    # Shapes only: no array is allocated.
    states = jax.eval_shape(lambda: model.initial_state((1,)))
    leaves = jax.tree.leaves_with_path(states, is_leaf=lambda leaf: leaf is None)
    return [jax.tree_util.keystr(path) for path, leaf in leaves if leaf is None]
