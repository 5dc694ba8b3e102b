"""Methods of a convolution with the kernel of modes, by length and number of modes."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.measurement import Row, in_turns
from ssm_jax.recurrences import DLR, S4, Recurrence, SGConv
from ssm_jax.types import Method

LENGTHS = 1, 2, 4, 8, 15, 16, 32, 33, 64, 256, 512, 1024, 4096, 8192
"""Steps of the timed sequences."""

MODES = 1, 2, 4, 8, 16, 64, 256
"""Modes of each channel."""

# States of more modes take seconds, and the program of more blocks minutes to compile.
_MOST_STATES = 2**22
_MOST_BLOCKS = 64
_BLOCK = 32


def convolution_rows(
    length: int, *, batch: int = 4, width: int = 64, repeats: int
) -> Iterator[Row]:
    """Times each method of DLR by number of modes, of S4 and of SGConv.

    Args:
      length: Number of steps.
      batch: Number of sequences.
      width: Number of channels.
      repeats: Number of timed turns of the methods.

    Yields:
      For each recurrence and method the milliseconds of the outputs (``value``) and of
      the gradient of the sum of their squares (``grad``), medians. Of one step, the
      outputs are the output and the state after a given one.
    """
    for what, n, recurrence, methods in _recurrences(length, batch * width):
        params = recurrence.init(jax.random.key(0), width)
        x = jax.random.normal(jax.random.key(1), (batch, length, width))
        state = recurrence.initial_state((batch,), width) if length == 1 else None
        functions = {}
        for method in methods:
            logging.info("%s, %s modes, %d steps, %s", what, n, length, method)
            for name, function in _functions(recurrence, method).items():
                compiled = jax.jit(function).lower(params, x, state).compile()
                functions[f"{method} {name}"] = partial(compiled, params, x, state)
        seconds = in_turns(functions, repeats=repeats)
        for method in methods:
            row = {"what": what, "modes": n, "length": length, "method": method}
            yield row | {
                name: 1e3 * seconds[f"{method} {name}_s"] for name in ("value", "grad")
            }


def _recurrences(
    length: int, channels: int
) -> Iterator[tuple[str, int | None, Recurrence, list[Method]]]:
    for n in MODES:
        methods: list[Method] = ["fft"]
        if length <= _BLOCK or n <= _MOST_BLOCKS:
            methods.append("chunked")
        if channels * length * n <= _MOST_STATES:
            methods += "sequential", "associative"
        yield "DLR", n, DLR(d_state=n), methods
    if length <= 1024:
        yield "S4", 32, S4(d_state=64), ["fft", "chunked", "sequential"]
        finite = SGConv(d_state=16, length=max(length, 16))
        yield "SGConv", None, finite, ["fft", "sequential"]


def _functions(recurrence, method) -> dict[str, Callable[..., Any]]:
    def value(params, x, state):
        y, last = recurrence.apply(params, x, state, method=method)
        return y if state is None else (y, last)

    def loss(params, x, state):
        leaves = jax.tree.leaves(value(params, x, state))
        return sum(jnp.sum(jnp.abs(leaf) ** 2) for leaf in leaves)

    return {"value": value, "grad": jax.grad(loss, (0, 1))}
