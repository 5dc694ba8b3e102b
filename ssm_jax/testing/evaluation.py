"""A map over sequences with its parameters, and its compiled evaluation."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.types import Outputs, PyTree

BATCH, PREFIX = 3, 3


class SequenceMap(NamedTuple):
    """What the checks need of a recurrence or a layer.

    Attributes:
      name: Name in messages.
      apply: ``(params, x, state, **options) -> (y, state)``.
      params: Its parameters.
      x: Inputs, ``(BATCH, l, d)``.
      start: A state after some steps; None if it has none.
      tolerance: Largest difference, relative to the largest value.
    """

    name: str
    apply: Callable[..., tuple[Outputs, PyTree]]
    params: PyTree
    x: np.ndarray
    start: PyTree
    tolerance: float


def draw_inputs(d: int, length: int) -> np.ndarray:
    """Returns random inputs, ``(BATCH, length, d)``."""
    if length < 4:
        raise ValueError(f"`length` must be at least 4, got {length}; 17 is usual.")
    rng = np.random.default_rng(0)
    return rng.standard_normal((BATCH, length, d)).astype(np.float32)


def state_after_some_steps(apply, params, x, module, d):
    """Returns a state that the map itself has made; None if it has none."""
    state = module.initial_state((BATCH,), d)
    if state is None:
        return None
    return _apply(apply, params, -x[:, :PREFIX], state)[1]


def draw_weights(shape: tuple[int, ...]) -> np.ndarray:
    """Returns the weights of the loss whose gradients are compared."""
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


# Compiled once for all checks of a map: `apply` is compared by its value.
_compiled = functools.partial(jax.jit, static_argnames=("apply", "method"))


@_compiled
def _apply(apply, params, x, state, **options):
    return apply(params, x, state, **options)


@_compiled
def _apply_with_gradients(apply, params, x, state, weights, **options):
    def loss(params, x, state):
        y, last = apply(params, x, state, **options)
        total = jnp.sum(weights * y)
        for leaf in jax.tree.leaves(last):
            total += jnp.sum(jnp.real(leaf * draw_weights(leaf.shape)))
        return total, (y, last)

    argnums = (0, 1) if state is None else (0, 1, 2)
    gradients, out = jax.grad(loss, argnums, has_aux=True, allow_int=True)(
        params, x, state
    )
    return out, (*gradients, None)[:3]


def outputs(m: SequenceMap, x, state, **options) -> tuple[Outputs, PyTree]:
    """Returns ``(y, last)``."""
    return _apply(m.apply, m.params, x, state, **options)


def with_gradients(m: SequenceMap, x, state, *, weights=None, **options) -> Any:
    """Returns ``(y, last)`` and the gradients of a loss of both."""
    if weights is None:
        y, _ = jax.eval_shape(m.apply, m.params, x, state)
        weights = draw_weights(y.shape)
    return _apply_with_gradients(m.apply, m.params, x, state, weights, **options)


@dataclasses.dataclass(frozen=True)
class OneByOne:
    """Evaluates one step at a time, each from the state after the last."""

    apply: Callable[..., tuple[Outputs, PyTree]]

    def __call__(self, params, x, state=None):
        """Maps a sequence to a sequence."""

        def step(state, x):
            y, state = self.apply(params, x[:, None], state)
            return state, y[:, 0]

        last, y = jax.lax.scan(step, state, jnp.moveaxis(x, 1, 0))
        return jnp.moveaxis(y, 0, 1), last
