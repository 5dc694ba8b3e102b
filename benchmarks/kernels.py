"""Methods of the linear recurrence and of the convolution with a kernel of modes."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import plain
from benchmarks.measurement import (
    Row,
    bytes_held,
    measure,
    relative_error,
    states,
    time_in_turns,
)
from ssm_jax.kernels import LogDecay, linear_recurrence
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.recurrences import DLR, S4, Recurrence, SGConv
from ssm_jax.types import Method

LENGTHS = 1, 2, 4, 8, 15, 16, 32, 33, 64, 256, 512, 1024, 4096, 8192
"""Steps of the timed sequences."""

MODES = 1, 2, 4, 8, 16, 64, 256
"""Modes of each channel."""

SCAN_WIDTHS = {1024: 1024, 4096: 512, 16384: 64}
"""States of the timed scans, by length."""

SCAN_TARGET = 1.1
"""What the time of ours over that of a plain scan is to be at most."""

# States of more modes take seconds, and the program of more blocks minutes to compile.
_MOST_STATES = 2**22
_MOST_BLOCKS = 64
_BLOCK = 32


def recurrence_rows(length: int, *, n: int = 64, repeats: int) -> Iterable[Row]:
    """Times every method of `linear_recurrence`.

    Args:
      length: Sequence length.
      n: Number of complex states.
      repeats: Number of timed runs of each.

    Yields:
      A row for each kind of decay and each method that evaluates it.
    """
    rng = np.random.default_rng(0)
    b = jnp.asarray(rng.normal(size=(length, n, 2)) @ [1, 1j], jnp.complex64)
    log = LogDecay(
        jnp.asarray(-np.geomspace(1e-6, 0.1, n), jnp.float32),
        jnp.asarray(rng.uniform(-np.pi, np.pi, n), jnp.float32),
    )
    exponent = np.asarray(log.log_abs, float) + 1j * np.asarray(log.phase, float)
    decay = np.exp(exponent + 1j * rng.uniform(-0.1, 0.1, (length, n)))
    decay = jnp.asarray(decay, jnp.complex64)
    scans = ["sequential", "associative", "chunked"]
    # On a CPU it is interpreted.
    scans += ["pallas"] * (target_platform() != "cpu")
    for kind, a, numbers, methods in (
        ("time-invariant", log, np.exp(exponent), [*scans, "fft"]),
        ("input-dependent", decay, decay, scans),
    ):
        exact = states(numbers, b)
        for method in methods:
            logging.info("%s decay, %s, %d steps", kind, method, length)
            states_of_method = partial(_states, method=method)
            row = {"what": method, "decay": kind, "length": length}
            yield row | _costs(states_of_method, a, b, exact=exact, repeats=repeats)


def _states(a, b, *, method):
    return linear_recurrence(a, b, method=method)[0]


def _costs(
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

    def loss(x, y):
        return jnp.sum(jnp.abs(function(x, y)) ** 2)

    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    forward, values = measure("forward", function, *arguments, repeats=repeats)
    backward, _ = measure("grad", gradient, *arguments, repeats=repeats)
    error = relative_error(values[: len(exact)], exact)
    return forward | backward | {"error": error}


def scan_rows(
    length: int, *, batch: int = 1, width: int = 0, repeats: int
) -> Iterator[Row]:
    """Times ``"sequential"`` and a plain `jax.lax.scan` of the recurrence in turns.

    Args:
      length: Number of steps.
      batch: Number of sequences.
      width: Number of states. 0: that of `SCAN_WIDTHS`, or 64.
      repeats: Number of timed turns.

    Yields:
      A row of real and of complex states with input-dependent decays, without and with
      resets: milliseconds and bytes of all states and of the gradient of the sum of
      their squares, ours, of the plain scan and their ratio, by medians, and their
      largest difference, relative to the largest state. ``forward_target`` is what the
      ratio is to be at most, on CPUs.
    """
    width = width or SCAN_WIDTHS.get(length, 64)
    rng = np.random.default_rng(0)
    b = rng.normal(size=(batch, length, width, 2)) @ [1, 1j]
    decay = np.exp(rng.uniform(-0.1, 0, b.shape) + 1j * rng.uniform(-3, 3, b.shape))
    resets = jnp.asarray(rng.random((batch, length)) < 0.01)
    for dtype, reset in itertools.product(("float32", "complex64"), (None, resets)):
        arrays = [
            jnp.asarray(x if dtype == "complex64" else abs(x), dtype)
            for x in (decay, b)
        ]
        functions, held = {}, {}
        for name, run in (("ours", _sequential_states), ("plain", _plain_states)):
            compiled = {
                "forward": jax.jit(partial(run, reset=reset)),
                "grad": jax.jit(jax.grad(_squares(run, reset), (0, 1))),
            }
            for what, function in compiled.items():
                program = function.lower(*arrays).compile()
                functions[f"{name} {what}"] = partial(program, *arrays)
                held[f"{name} {what}"] = bytes_held(program)
        seconds = time_in_turns(functions, repeats=repeats)
        ours, peer = (functions[f"{name} forward"]() for name in ("ours", "plain"))
        row = {"what": dtype, "resets": reset is not None, "length": length}
        row |= {"batch": batch, "width": width}
        for what in ("forward", "grad"):
            pair = [seconds[f"{name} {what}_s"] for name in ("ours", "plain")]
            row |= {
                f"{what}_ms": 1e3 * pair[0],
                f"{what}_plain_ms": 1e3 * pair[1],
                f"{what}_ratio": pair[0] / pair[1],
                f"{what}_bytes_ratio": held[f"ours {what}"] / held[f"plain {what}"],
            }
        target = SCAN_TARGET if target_platform() == "cpu" else None
        yield row | {
            "forward_target": target,
            "difference": relative_error(ours, np.asarray(peer)),
        }


def _sequential_states(a, b, *, reset):
    return linear_recurrence(a, b, reset=reset, method="sequential")[0]


def _plain_states(a, b, *, reset):
    if reset is not None:
        a = jnp.where(reset[..., None], 0, a)
    return plain.scan(a, b)


def _squares(run, reset):
    return lambda a, b: jnp.sum(jnp.abs(run(a, b, reset=reset)) ** 2)


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
        seconds = time_in_turns(functions, repeats=repeats)
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
