"""What a language model remembers of a text: how far back, and in states of what size.

Recurrent models that fail on texts longer than those of their training do so in one of
two ways, or both: their predictions still depend on the first tokens of a text, which
no longer matter, and their states grow without bound.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.fields import NonNegativeInt, PositiveInt, check_value
from ssm_jax.types import Array, Float, Integer, PyTree


class StateSize(NamedTuple):
    """The size of one array of the state of a model by position.

    Attributes:
      name: Where the array is in the state: ``"0"`` is that of the first layer,
        ``"1/0"`` the first of those of the second.
      norm: Norm of all entries of a row, mean over the rows, float64, ``(p,)``.
      deviation: Standard deviation of the entries of all rows, float64, ``(p,)``.
    """

    name: str
    norm: Float[np.ndarray, " p"]
    deviation: Float[np.ndarray, " p"]


def effective_remembrance(
    model: nn.Module,
    variables: PyTree,
    texts: Integer[Array, "b l"],
    starts: Sequence[int],
) -> Float[np.ndarray, " t"]:
    r"""Measures how much the first tokens of texts change the prediction at their end.

    .. math::
      \operatorname{EffRem}(t) = \tfrac 1 2 \sum_k
        |q_k(x_0, \dots, x_{l-1}) - q_k(x_t, \dots, x_{l-1})|

    with the probability ``q_k`` of the next token ``k``, read from the initial state:
    the distance in total variation between predictions from all tokens and from those
    from ``t`` on, in [0, 1]. It is 0 for ``t = 0``. A model that forgets what is too
    far back to matter has small values until ``t`` is near ``l``.

    Args:
      model: Causal model that predicts the next token at each step.
      variables: Parameters and other variables of the model.
      texts: Tokens, ``(b, l)``.
      starts: The ``t``, at least 0 and below ``l``.

    Returns:
      Means over the texts, float64, ``(t,)``.

    Raises:
      ValueError: ``starts`` is empty or out of range.

    References:
      Buitrago and Gu, `Understanding and Improving Length Generalization in Recurrent
      Models <https://arxiv.org/abs/2507.02782>`_, 2025
    """
    length = np.shape(texts)[1]
    check_value("starts", tuple(starts), tuple[NonNegativeInt, ...], "0 is one")
    if not starts or max(starts) >= length:
        raise ValueError(
            f"`starts` must be below the {length} tokens of a text, got "
            f"{list(starts)}; {length // 2} is one."
        )
    texts = jnp.asarray(texts, jnp.int32)
    whole = _last_prediction(model, variables, texts, None)
    return np.array(
        [
            # A reset at t: the model reads on from its initial state, and one program
            # serves all t.
            _distance(whole, _last_prediction(model, variables, texts, t))
            for t in starts
        ]
    )


@partial(jax.jit, static_argnums=0)
def _predict(model, variables, texts, reset):
    logits, _ = model.apply(variables, texts, reset=reset)
    return jax.nn.softmax(logits[:, -1].astype(jnp.float32))


def _last_prediction(model, variables, texts, start):
    # A reset at the first step changes nothing.
    reset = np.zeros(texts.shape, bool)
    reset[:, start or 0] = True
    return np.asarray(_predict(model, variables, texts, reset), np.float64)


def _distance(p, q):
    return float(np.mean(np.sum(np.abs(p - q), -1) / 2))


def state_sizes(
    model: nn.Module,
    variables: PyTree,
    texts: Integer[Array, "b l"],
    positions: Sequence[int],
) -> list[StateSize]:
    """Measures the size of the states of a model while it reads texts.

    Args:
      model: Causal model with states of a fixed size.
      variables: Parameters and other variables of the model.
      texts: Tokens, ``(b, l)``.
      positions: Numbers of steps after which states are measured, increasing, at most
        ``l``.

    Returns:
      The sizes of each array of the state of the model.

    Raises:
      ValueError: ``positions`` is empty, does not increase, or is beyond ``l``.

    References:
      Buitrago and Gu, `Understanding and Improving Length Generalization in Recurrent
      Models <https://arxiv.org/abs/2507.02782>`_, 2025
    """
    n_rows, length = np.shape(texts)
    check_value("positions", tuple(positions), tuple[PositiveInt, ...], "16 is one")
    if not positions or list(positions) != sorted(set(positions)):
        raise ValueError(
            f"`positions` must increase, got {list(positions)}; 16,32,64 do."
        )
    if positions[-1] > length:
        raise ValueError(
            f"`positions` must be at most the {length} tokens of a text, got "
            f"{positions[-1]}; read longer texts."
        )
    state, begin, sizes = model.initial_state((n_rows,)), 0, []
    for end in positions:
        piece = jnp.asarray(texts[:, begin:end], jnp.int32)
        state, begin = _read(model, variables, piece, state), end
        leaves = jax.tree.leaves_with_path(state)
        sizes.append({_name(path): _size(leaf) for path, leaf in leaves})
    return [
        StateSize(name, *np.array([size[name] for size in sizes]).T)
        for name in sizes[0]
    ]


@partial(jax.jit, static_argnums=0)
def _read(model, variables, texts, state):
    return model.apply(variables, texts, state)[1]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _size(state):
    """The mean norm of a row, and the deviation of the entries."""
    rows = np.asarray(state).reshape(len(state), -1)
    rows = rows.astype(np.complex128 if np.iscomplexobj(rows) else np.float64)
    return np.mean(np.linalg.norm(rows, axis=-1)), np.std(rows)
