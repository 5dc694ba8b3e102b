"""Time, memory and error of a compiled function."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.exact import relative_error

Row = dict[str, Any]
"""What was measured of one thing, by name."""


def measure(
    name: str, function: Callable[..., Any], *arguments: Any, repeats: int
) -> tuple[Row, Any]:
    """Compiles a function and times it.

    Args:
      name: Prefix of the keys of the measurements.
      function: Function of arrays.
      arguments: Arguments of the function.
      repeats: Number of timed runs, after one that is not timed.

    Returns:
      ``name_s``, ``name_bytes`` and ``name_compile_s``, and the result of the function.
    """
    # An argument in host memory would be copied to the device at every call.
    arguments = jax.device_put(arguments)
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    compile_s = time.perf_counter() - start
    result = jax.block_until_ready(compiled(*arguments))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - start)
    row = {
        f"{name}_s": statistics.median(seconds),
        f"{name}_bytes": bytes_held(compiled),
        f"{name}_compile_s": compile_s,
    }
    return row, result


def bytes_held(compiled: jax.stages.Compiled) -> float:
    """Returns the bytes of temporary memory and results; NaN if they are not known."""
    memory = compiled.memory_analysis()
    if not memory:
        return float("nan")
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


def costs(
    function: Callable[..., Any], *arguments: Any, exact: np.ndarray, repeats: int
) -> Row:
    """Measures a function of two arguments, its gradient and its error.

    Args:
      function: Function of two pytrees of arrays that returns an array.
      arguments: The two arguments.
      exact: The exact result in float64, possibly only its first rows.
      repeats: Number of timed runs.

    Returns:
      The results of `measure` for ``forward`` and ``grad``, and ``error``.
    """

    def loss(one, other):
        return jnp.sum(jnp.abs(function(one, other)) ** 2)

    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    forward, values = measure("forward", function, *arguments, repeats=repeats)
    backward, _ = measure("grad", gradient, *arguments, repeats=repeats)
    error = relative_error(values[: len(exact)], exact)
    return forward | backward | {"error": error}


def ratios(of: Row, over: Row) -> Row:
    """Divides every number of a row by that of another row."""
    return {name: value / over[name] for name, value in of.items()}


def in_turns(runs: Mapping[str, Callable[[], Any]], *, repeats: int) -> Row:
    """Times functions in turns, so that the load of the machine is that of all.

    Args:
      runs: Functions without arguments, by name; each is called once before.
      repeats: Number of timed turns.

    Returns:
      ``name_s`` and ``name_min_s`` of each: median and minimum.
    """
    seconds = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {
        key: value
        for name, found in seconds.items()
        for key, value in (
            (f"{name}_s", statistics.median(found)),
            (f"{name}_min_s", min(found)),
        )
    }
