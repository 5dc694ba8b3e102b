"""The recurrence of matrices beside plain forms in JAX, with heads of several sizes."""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measurement import Row, bytes_held, time_in_turns
from ssm_jax.kernels import matrix_recurrence
from ssm_jax.kernels.matrix import MatrixMethod
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.types import Array

SIZES = 16, 64, 128
"""Sizes of keys and values."""

KINDS = "head", "entry", "delta"
"""Decays of heads, of entries of keys, and of heads with the delta rule."""

# Chunks of the papers' forms; both are measured, as the best one depends on the size.
_CHUNKS = 32, 64


def matrix_rows(
    length: int, *, batch: int = 4, width: int = 256, repeats: int
) -> Iterator[Row]:
    """Times `matrix_recurrence` and the plain forms in turns.

    Args:
      length: Number of steps, a multiple of 64.
      batch: Number of sequences.
      width: Entries of the values of all heads, a multiple of 128.
      repeats: Number of timed turns.

    Yields:
      A row for each kind of decay and size of a head, and each plain form: a
      `jax.lax.scan` over steps, and over chunks of 32 and of 64 steps by differences of
      cumulative sums; on accelerators also ``"pallas"``. Minimal milliseconds of the
      outputs (``value``) and of the gradient of a weighted sum of them in all arrays
      (``grad``), ours, of the plain form and their ratio; MiB of temporary memory and
      results of the gradients; and the largest difference of the outputs and of a
      gradient, relative to the largest.
    """
    for kind in KINDS:
        for size in SIZES:
            arrays, weight = problem(kind, length, batch, width // size, size)
            functions = {"ours": _ours, "scan": scan_of_matrices} | {
                f"chunks of {chunk}": partial(chunked, size=chunk) for chunk in _CHUNKS
            }
            # On a CPU it is interpreted.
            if target_platform() != "cpu":
                functions["pallas"] = partial(_ours, method="pallas")
            yield from _rows(kind, size, functions, arrays, weight, repeats)


def problem(
    kind: str, length: int, batch: int, heads: int, size: int
) -> tuple[Mapping[str, Array], Array]:
    """Returns the arguments of a kind, in their order, and weights of the outputs."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=(batch, length, heads, *shape))

    k = normal(size)
    arrays = {
        "q": normal(size) * size**-0.5,
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": normal(size),
        # Slow enough for the plain form, whose inverse decays overflow.
        "log_decay": -0.1 * np.abs(normal(size) if kind == "entry" else normal()),
    }
    if kind == "delta":
        arrays["beta"] = 1 / (1 + np.exp(normal()))
    arrays = {name: jnp.asarray(x, jnp.float32) for name, x in arrays.items()}
    return arrays, jnp.asarray(normal(size), jnp.float32)


def _rows(kind, size, functions, arrays, weight, repeats):
    runs, gradients, held = {}, {}, {}
    for name, function in functions.items():
        logging.info("%s, %d entries, %s", kind, size, name)

        def total(arrays, function=function):
            return jnp.vdot(function(**arrays), weight)

        value = jax.jit(lambda arrays, f=function: f(**arrays)).lower(arrays).compile()
        gradient = jax.jit(jax.grad(total)).lower(arrays).compile()
        held[name] = bytes_held(gradient) / 2**20
        runs[name], gradients[name] = partial(value, arrays), partial(gradient, arrays)
    values = time_in_turns(runs, repeats=repeats)
    grads = time_in_turns(gradients, repeats=repeats)
    expected, expected_gradient = runs["ours"](), gradients["ours"]()
    for name in list(functions)[1:]:
        differences = jax.tree.map(
            _difference, gradients[name](), dict(expected_gradient)
        )
        yield {
            "what": kind,
            "size": size,
            "peer": name,
            "length": weight.shape[1],
            **_times("value", values, name),
            **_times("grad", grads, name),
            "grad_mib": held["ours"],
            "grad_peer_mib": held[name],
            "difference": _difference(runs[name](), expected),
            "gradient_difference": max(differences.values()),
        }


def _times(what, seconds, name) -> Row:
    ours, peer = (1e3 * seconds[f"{key}_min_s"] for key in ("ours", name))
    return {f"{what}_ms": ours, f"{what}_peer_ms": peer, f"{what}_ratio": ours / peer}


def _difference(result: Array, expected: Array) -> float:
    return float(jnp.max(jnp.abs(result - expected)) / jnp.max(jnp.abs(expected)))


def _ours(*, method: MatrixMethod = "auto", **arrays: Any) -> Array:
    return matrix_recurrence(**arrays, method=method)[0]


def _steps_first(x):
    return None if x is None else jnp.moveaxis(x, 1, 0)


def scan_of_matrices(
    q: Array, k: Array, v: Array, log_decay: Array, beta: Any = None
) -> Array:
    """One step after another, with the outer product of each; as `chunked`."""

    def step(S, x):
        q, k, v, log_decay, beta = x
        decay = jnp.exp(log_decay)[..., None]
        S *= decay if decay.ndim == S.ndim else decay[..., None]
        if beta is not None:
            v = beta[..., None] * (v - jnp.einsum("bhk,bhkv->bhv", k, S))
        S += k[..., None] * v[..., None, :]
        return S, jnp.einsum("bhk,bhkv->bhv", q, S)

    zeros = jnp.zeros((len(q), *q.shape[2:], v.shape[-1]))
    steps = map(_steps_first, (q, k, v, log_decay, beta))
    return jnp.moveaxis(jax.lax.scan(step, zeros, tuple(steps))[1], 0, 1)


def chunked(
    q: Array, k: Array, v: Array, log_decay: Array, beta: Any = None, *, size: int
) -> Array:
    """The papers' chunks: differences of cumulative sums, one matrix of pairs.

    Args:
      q: Queries, ``(b, l, h, k)``.
      k: Keys, ``(b, l, h, k)``.
      v: Values, ``(b, l, h, v)``.
      log_decay: Of heads, ``(b, l, h)``, or of entries of keys, ``(b, l, h, k)``.
      beta: Weights of the delta rule, ``(b, l, h)``, with decays of heads; or None.
      size: Steps of a chunk, which divide ``l``.

    Returns:
      Outputs, ``(b, l, h, v)``.
    """
    batch, length, heads, d_key = q.shape
    zeros = jnp.zeros((batch, heads, d_key, v.shape[-1]))

    def split(x):
        if x is None:
            return None
        x = x.reshape(batch, length // size, size, heads, *x.shape[3:])
        return jnp.moveaxis(x, (1, 3), (0, 2))

    one_chunk: Callable[..., Any] = partial(_one_chunk, np.tri(size, dtype=bool))
    chunks = tuple(map(split, (q, k, v, log_decay, beta)))
    o = jnp.moveaxis(jax.lax.scan(one_chunk, zeros, chunks)[1], (0, 2), (1, 3))
    return o.reshape(batch, length, heads, -1)


def _one_chunk(causal, S, x):
    q, k, v, g, beta = x
    if g.ndim == q.ndim:
        sums = jnp.cumsum(g, -2)
        total = sums[..., -1:, :]
        from_start, to_end = q * jnp.exp(sums), k * jnp.exp(total - sums)
        pairs = from_start @ jnp.swapaxes(k * jnp.exp(-sums), -2, -1)
        pairs = jnp.where(causal, pairs, 0)
    else:
        sums = jnp.cumsum(g, -1)[..., None]
        total = sums[..., -1:, :]
        from_start, to_end = q * jnp.exp(sums), k * jnp.exp(total - sums)
        exponent = jnp.where(causal, sums - jnp.swapaxes(sums, -2, -1), -jnp.inf)
        pairs = q @ jnp.swapaxes(k, -2, -1) * jnp.exp(exponent)
        if beta is not None:
            v = _values_of_delta_rule(k, v, beta[..., None], sums, exponent, S)
    o = from_start @ S + pairs @ v
    S = jnp.swapaxes(jnp.exp(total), -2, -1) * S + jnp.swapaxes(to_end, -2, -1) @ v
    return S, o


def _values_of_delta_rule(k, v, beta, sums, exponent, S):
    """The WY form: one triangular system for values and keys."""
    system = jnp.tril(beta * k @ jnp.swapaxes(k, -2, -1) * jnp.exp(exponent), -1)
    sides = jnp.concatenate([beta * v, beta * jnp.exp(sums) * k], -1)
    solved = jax.lax.custom_linear_solve(
        lambda x: x + system @ x,
        sides,
        solve=lambda _, b: _substitute(system, b),
        transpose_solve=lambda _, b: jnp.flip(
            _substitute(
                jnp.flip(jnp.swapaxes(system, -2, -1), (-2, -1)), jnp.flip(b, -2)
            ),
            -2,
        ),
    )
    u, w = jnp.split(solved, [v.shape[-1]], -1)
    return u - w @ S


def _substitute(system, sides):
    """Solves ``(I + N) x = b`` row by row, for a strictly lower triangular ``N``.

    As in the papers' code. On CPUs the solver of triangular systems of XLA may wait for
    ever within a loop: its own threads are those that evaluate the loop.
    """

    def row(x, i):
        known = jnp.einsum("...j,...jd->...d", system[..., i, :], x)
        return x.at[..., i, :].add(-known), None

    return jax.lax.scan(row, sides, jnp.arange(sides.shape[-2]))[0]
