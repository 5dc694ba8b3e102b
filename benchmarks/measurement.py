"""Time, memory and error of a function, and what its results are compared with."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ssm_jax.types import Array

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


def time_in_turns(runs: Mapping[str, Callable[[], Any]], *, repeats: int) -> Row:
    """Times functions in turns, so that the load of the machine is that of all.

    Every other turn is in the opposite order.

    Args:
      runs: Functions without arguments, by name; each is called once before.
      repeats: Number of timed turns.

    Returns:
      ``name_s`` and ``name_min_s`` of each: median and minimum.
    """
    seconds = {name: [] for name in runs}
    order = list(runs)
    for turn in range(repeats + 1):
        for name in order:
            start = time.perf_counter()
            jax.block_until_ready(runs[name]())
            if turn:
                seconds[name].append(time.perf_counter() - start)
        order.reverse()
    return {
        key: value
        for name, values in seconds.items()
        for key, value in (
            (f"{name}_s", statistics.median(values)),
            (f"{name}_min_s", min(values)),
        )
    }


def states(a: Array, b: Array) -> np.ndarray:
    """Returns the states of a linear recurrence, step by step in float64.

    Args:
      a: Decay, ``(n,)``, or of each step, ``(*b, l, n)``.
      b: Inputs, ``(*b, l, n)``; complex if ``a`` is.
    """
    double = np.complex128 if np.iscomplexobj(b) else np.float64
    b = np.asarray(b, double)
    a = np.broadcast_to(np.asarray(a, double), b.shape)
    h, state = np.empty_like(b), np.zeros_like(b[..., 0, :])
    for t in range(b.shape[-2]):
        h[..., t, :] = state = a[..., t, :] * state + b[..., t, :]
    return h


def relative_error(values: Array, exact: Array) -> float:
    """Returns the largest difference, relative to the largest exact value."""
    values, exact = np.asarray(values), np.asarray(exact)
    return float(np.max(np.abs(values - exact)) / np.max(np.abs(exact)))
