"""The programs of a kernel for GPUs or TPUs, compiled or timed."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels import LogDecay, linear_recurrence
from ssm_jax.kernels.input_dependent import by_chunks
from ssm_jax.kernels.plan import chunk_size
from ssm_jax.kernels.selective import selective_form
from ssm_jax.types import Method, PyTree

ROWS, LENGTH, WIDTH, STATES = 8, 4096, 1024, 16
"""Sequences, steps, states of `linear_recurrence` or channels, states per channel."""


class Pass(NamedTuple):
    """A program to compile.

    Attributes:
      name: ``"value"`` or ``"value and gradient"``.
      function: Its function.
      arguments: Shapes and dtypes of its arguments.
      min_bytes: Bytes of its arguments and results, each read or written once.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    min_bytes: int


def programs(
    length: int, *, rows: int = ROWS, width: int = WIDTH
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Returns the programs by name.

    Args:
      length: Number of steps.
      rows: Number of sequences.
      width: Number of states, or of channels.

    Returns:
      Functions of a method and of arguments, and the shapes and dtypes of these.
    """
    n: Any = jax.ShapeDtypeStruct((width,), jnp.float32)
    real = jax.ShapeDtypeStruct((rows, length, width), jnp.float32)
    complex_ = jax.ShapeDtypeStruct(real.shape, jnp.complex64)
    shared = jax.ShapeDtypeStruct((rows, length, STATES), jnp.float32)
    rates = jax.ShapeDtypeStruct((width, STATES), jnp.float32)
    state = jax.ShapeDtypeStruct((rows, width, STATES), jnp.float32)
    return {
        "input-dependent, real": (states, (real, real)),
        "time-invariant, real": (states, (LogDecay(n), real)),
        "input-dependent, complex": (states, (complex_, complex_)),
        "time-invariant, complex": (states, (LogDecay(n, n), complex_)),
        "selective": (_selective, (real, real, shared, shared, rates, n, state)),
    }


def passes(
    what: str, forward: Callable[..., Any], arguments: tuple[Any, ...]
) -> Iterator[Pass]:
    """Yields the evaluation of a program, and the evaluation with its gradient.

    Args:
      what: Name of the program.
      forward: Function of the arguments.
      arguments: Shapes and dtypes of the arguments.
    """
    results = jax.eval_shape(forward, *arguments)
    n_bytes = _n_bytes((arguments, results))
    yield Pass("value", forward, arguments, n_bytes)
    # The backward pass reads the decays, the states and what is given; the selective
    # one reads all arguments and recomputes the states.
    read = arguments if what == "selective" else (arguments[0], results)
    n_bytes += _n_bytes((read, results, arguments))
    both = partial(with_gradient, forward)
    yield Pass("value and gradient", both, (arguments, results), n_bytes)


def states(method: Method, a: Any, b: Any) -> Any:
    """Returns the states of `linear_recurrence` by a method."""
    return linear_recurrence(a, b, method=method)[0]


def _selective(method: Method, x, dt, B, C, rates, feedthrough, state):
    return by_chunks(
        selective_form(x, dt, B, C, rates, feedthrough),
        state,
        axis=1,
        reset=None,
        lengths=None,
        size=chunk_size(x.shape[1], STATES),
        method=method,
    )


def with_gradient(
    forward: Callable[..., Any], arguments: tuple[Any, ...], given: PyTree
) -> tuple[Any, tuple[Any, ...]]:
    """Evaluates a function and its gradient.

    Args:
      forward: Function of the arguments.
      arguments: The arguments.
      given: Gradient in the results of the function.

    Returns:
      The results of the function, and the gradients in its arguments.
    """
    values, gradient = jax.vjp(forward, *arguments)
    return values, gradient(given)


def _n_bytes(tree: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
