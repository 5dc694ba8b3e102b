"""Scans of recurrences compared to the plain forms of JAX, timed in turns."""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.exact import relative_error, states
from benchmarks.measurement import Row, bytes_held, in_turns
from ssm_jax.kernels import linear_recurrence
from ssm_jax.types import Array, Method

KINDS = ("real", "complex")


METHODS: tuple[Method, ...] = ("sequential", "associative")


def compared(
    ours: Callable[..., Any],
    plain: Callable[..., Any],
    *arguments: Any,
    repeats: int,
) -> Row:
    """Compares two functions of the same arguments, and their gradients.

    Args:
      ours: Function that returns an array.
      plain: Function that returns the same up to rounding.
      *arguments: Their arguments; gradients are in all of them.
      repeats: Number of timed turns.

    Returns:
      Seconds of the plain one, the ratio of ours by medians and by minima, and the
      ratio of bytes (temporary memory and results), all forward and with the gradient.
    """
    # An argument in host memory would be copied to the device at every call.
    arguments = jax.device_put(arguments)
    row = {}
    for name, wrap in (("forward", lambda f: f), ("grad", _with_gradient)):
        programs = {
            key: jax.jit(wrap(f)).lower(*arguments).compile()
            for key, f in (("ours", ours), ("plain", plain))
        }
        runs = {key: partial(run, *arguments) for key, run in programs.items()}
        seconds = in_turns(runs, repeats=repeats)
        row |= {
            f"{name}_plain_s": seconds["plain_min_s"],
            f"{name}_ratio": seconds["ours_s"] / seconds["plain_s"],
            f"{name}_ratio_min": seconds["ours_min_s"] / seconds["plain_min_s"],
            f"{name}_bytes_ratio": bytes_held(programs["ours"])
            / bytes_held(programs["plain"]),
        }
    return row


def _with_gradient(function):
    def loss(arguments):
        return jnp.sum(jnp.abs(function(*arguments)) ** 2)

    return lambda *arguments: jax.value_and_grad(loss)(arguments)


def time_invariant_rows(
    length: int, *, batch: int = 1, n: int = 64, repeats: int
) -> Iterable[Row]:
    """Times ``"sequential"`` and ``"associative"`` for time-invariant decays.

    Args:
      length: Number of steps.
      batch: Number of sequences.
      n: Number of states.
      repeats: Number of timed turns.

    Yields:
      A row for each method, for real and complex decays, with and without resets: the
      ratios of `compared` to `jax.lax.scan` or `jax.lax.associative_scan`, and the
      maximum errors of both relative to the largest state.
    """
    rng = np.random.default_rng(0)
    for kind in KINDS:
        turn = rng.uniform(-np.pi, np.pi, n) if kind == "complex" else 0.0
        a = np.exp(-np.geomspace(1e-6, 0.1, n) + 1j * turn).astype(np.complex64)
        b = (rng.normal(size=(batch, length, n, 2)) @ [1, 1j]).astype(np.complex64)
        if kind == "real":
            a, b = a.real, b.real
        for method in METHODS:
            for reset in (None, jnp.asarray(rng.random((batch, length)) < 1e-3)):
                logging.info("%s, %s, %d steps", kind, method, length)
                ours = partial(_ours, reset=reset, method=method)
                plain = partial(PLAIN[method], reset=reset)
                exact = states(a, b, reset)
                errors = [
                    relative_error(jax.jit(f)(a, b), exact) for f in (ours, plain)
                ]
                yield {
                    "what": method,
                    "decay": kind,
                    "reset": reset is not None,
                    "length": length,
                    "batch": batch,
                    "n": n,
                    **compared(ours, plain, a, b, repeats=repeats),
                    "error": errors[0],
                    "plain_error": errors[1],
                }


def _ours(a, b, *, reset, method):
    return linear_recurrence(a, b, reset=reset, method=method)[0]


def _scan(a, b, *, reset):
    def step(h, inputs):
        reset, b = inputs
        if reset is not None:
            h = jnp.where(reset[:, None], 0, h)
        h = a * h + b
        return h, h

    reset = None if reset is None else reset.T
    inputs = reset, jnp.moveaxis(b, 1, 0)
    return jnp.moveaxis(jax.lax.scan(step, jnp.zeros_like(b[:, 0]), inputs)[1], 0, 1)


def _associative_scan(a, b, *, reset):
    def combine(left, right):
        return right[0] * left[0], right[0] * left[1] + right[1]

    a = jnp.broadcast_to(a, b.shape)
    if reset is not None:
        a = jnp.where(reset[..., None], 0, a)
    return jax.lax.associative_scan(combine, (a, b), axis=1)[1]


PLAIN: Mapping[Method, Callable[..., Array]] = {
    "sequential": _scan,
    "associative": _associative_scan,
}
