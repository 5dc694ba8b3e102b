"""Recurrences timed on a device, beside the time that their bytes take to be copied."""

import logging
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerators import ROWS, WIDTH, Pass, passes, programs
from benchmarks.measurement import Row, relative_error, states
from ssm_jax.kernels import LogDecay, plan
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Method

COPY_BYTES = 2**30
"""Bytes of the array by which the bandwidth is measured; not in a cache."""

N_CHECKED = 4
"""States of the first sequence, or channels, that are compared with float64."""


def roofline_rows(
    length: int, *, rows: int = ROWS, width: int = WIDTH, repeats: int
) -> Iterable[Row]:
    """Times every method of the recurrences that have a kernel of their own.

    Calls follow each other without waiting for results, so that the time is that of the
    device, not that of starting a program from Python.

    Args:
      length: Number of steps.
      rows: Number of sequences.
      width: Number of states, or of channels.
      repeats: Number of timings of each, of several calls; the median counts.

    Yields:
      A row for each program, pass and method: milliseconds; those of reading and
      writing its arguments and results once at the bandwidth of a copy, and this time
      relative to the measured one; the milliseconds that `ssm_jax.kernels.plan`
      predicts; the largest difference of the values from float64, and that of the
      gradients from ``"sequential"``, relative to the largest value.
    """
    methods: list[Method] = ["sequential", "associative", "chunked"]
    if target_platform() != "cpu":  # There it would be interpreted.
        methods.append("pallas")
    for what, (run, shapes) in programs(length, rows=rows, width=width).items():
        logging.info("%s, %d steps", what, length)
        arguments = random_arguments(what, shapes)
        exact = _exact(what, arguments)
        results = jax.eval_shape(partial(run, "sequential"), *shapes)
        cotangents = jax.tree.map(partial(_normal, jax.random.key(9)), results)
        cells: list[tuple[Method, Pass]] = [
            (method, evaluation)
            for method in methods
            for evaluation in passes(
                partial(run, method), shapes, recomputes=what == "selective"
            )
        ]
        reference = None
        for (method, evaluation), compiled in zip(cells, _compile(cells), strict=True):
            with_gradient = evaluation.name != "value"
            inputs = (arguments, cotangents) if with_gradient else arguments
            result = compiled(*inputs)
            values, gradient = result if with_gradient else (result, None)
            values = jax.tree.leaves(values)[0]
            reference = reference or gradient
            copy = evaluation.min_bytes / bandwidth(repeats)
            seconds = seconds_of_call(compiled, inputs, repeats)
            yield {
                "what": what,
                "pass": evaluation.name,
                "method": method,
                "length": length,
                "ms": 1e3 * seconds,
                "copy_ms": 1e3 * copy,
                "of_copy": copy / seconds,
                "predicted_ms": _predicted_ms(
                    what, evaluation, method, length, rows * width
                ),
                "error": relative_error(values[0, :, :N_CHECKED], exact),
                "gradient_error": gradient and _largest_error(gradient, reference),
            }


def random_arguments(what: str, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments at random, of decays between .5 and almost 1."""
    keys = iter(jax.random.split(jax.random.key(0), 16))

    def uniform(shape, low, high):
        return jax.random.uniform(next(keys), shape, minval=low, maxval=high)

    def normal(shape):
        return _normal(next(keys), shape)

    if what == "selective":
        x, dt, B, C, rates, feedthrough, state = shapes
        steps = uniform(dt.shape, 0.001, 0.1)
        rate = uniform(rates.shape, 0.1, 16.0)
        parameters = normal(B), normal(C), rate, normal(feedthrough), normal(state)
        return normal(x), steps, *parameters
    a, b = shapes
    if isinstance(a, LogDecay):
        log_abs = -jnp.geomspace(1e-4, 0.7, a.log_abs.size)
        phase = None if a.phase is None else uniform(log_abs.shape, -3.0, 3.0)
        return LogDecay(log_abs, phase), normal(b)
    decay = jnp.exp(-uniform(a.shape, 1e-4, 0.7))
    if jnp.iscomplexobj(b):
        decay = decay * jnp.exp(1j * uniform(a.shape, -3.0, 3.0))
    return decay.astype(a.dtype), normal(b)


def _normal(key, shape):
    return jax.random.normal(key, shape.shape, shape.dtype)


def _exact(what: str, arguments: tuple[Any, ...]) -> np.ndarray:
    """The first states or outputs of the first sequence, step by step in float64."""
    first = slice(N_CHECKED)
    if what != "selective":
        a, b = arguments
        if not isinstance(a, LogDecay):
            return states(a[0, :, first], b[0, :, first])
        decay = np.exp(np.asarray(a.log_abs[first], float))
        if a.phase is not None:
            decay = decay * np.exp(1j * np.asarray(a.phase[first], float))
        return states(decay, b[0, :, first])
    x, dt, B, C, rates, feedthrough, state = arguments
    x, dt = (np.asarray(values[0, :, first], float) for values in (x, dt))
    B, C = (np.asarray(values[0], float) for values in (B, C))
    rates = np.asarray(rates[first], float)
    feedthrough = np.asarray(feedthrough[first], float)
    out, h = np.empty_like(x), np.asarray(state[0, first], float)
    for t in range(len(x)):
        decay = np.exp(-dt[t, :, None] * rates)
        h = decay * h + (dt[t] * x[t])[:, None] * B[t]
        out[t] = h @ C[t] + feedthrough * x[t]
    return out


def _compile(cells: list[tuple[Method, Pass]]) -> list[Any]:
    """Compiles in several threads what is traced in one."""
    lowered = [
        jax.jit(evaluation.function).lower(*evaluation.arguments)
        for _, evaluation in cells
    ]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda program: program.compile(), lowered))


def seconds_of_call(
    compiled: Callable[..., Any], inputs: tuple[Any, ...], repeats: int
):
    """The median time of a call among many that follow each other."""

    def time_calls(calls):
        start = time.perf_counter()
        result = None
        for _ in range(calls):
            result = compiled(*inputs)
        jax.block_until_ready(result)
        return (time.perf_counter() - start) / calls

    calls = int(min(max(0.02 / time_calls(2), 2), 200))
    return statistics.median(time_calls(calls) for _ in range(repeats))


@cache
def bandwidth(repeats: int) -> float:
    """Bytes per second of reading and writing an array."""
    x = jnp.ones(COPY_BYTES // 4)
    compiled = jax.jit(lambda x: x + 1).lower(x).compile()
    return 2 * x.nbytes / seconds_of_call(compiled, (x,), repeats)


def _predicted_ms(what, evaluation, method, length, n_states) -> float | None:
    """What the model of ``"auto"`` knows: real decays, with the gradient."""
    platform = target_platform()
    is_in_model = what.endswith("real") and evaluation.name != "value"
    if platform == "cpu" or method not in plan.METHODS or not is_in_model:
        return None
    return 1e3 * plan.seconds(
        method,
        platform,
        time_invariant=what.startswith("time-invariant"),
        length=length,
        n_bytes=4 * length * n_states,
    )


def _largest_error(result, reference) -> float:
    return max(jax.tree.leaves(jax.tree.map(relative_error, result, reference)))
