"""Times the kernels, and says what memory they take and how exact they are.

    python -m launch.benchmark --suite=modal_kernel
    python -m launch.benchmark --suite=recurrence --output=recurrence.json

``modal_kernel``: `ssm_jax.kernels.modal_kernel` against the usual array of
exponentials, 128 kernels of 64 modes. ``recurrence``: every method of
`ssm_jax.kernels.linear_recurrence`, 64 complex states. ``grad`` is value and gradient
together; seconds are medians, bytes temporary memory and results; the error is that of
the values, the largest as a part of the largest value, against float64. On 2 CPU cores
that other work shared (jax 0.10.2, float32) the first command gave::

    forward_s  forward_bytes  grad_s  grad_bytes     error
          1.9     1115684864    1.91  2189492772  6.72e-06   usual, 16384 steps
        0.005       18026496  0.0596    37416484  1.64e-07   modal_kernel
          381           61.9      32        58.5      40.9   ratio

and the second, at 131,072 steps, constant decay (varying decay)::

    forward_s        grad_s        error
    0.060 (0.070)    0.28 (0.32)   1.2e-5 (1.2e-5)  sequential
     1.00 (0.37)      3.4 (1.4)    9.6e-7 (7.2e-6)  associative
     0.47 (0.44)      1.2 (1.0)    7.3e-7 (6.7e-6)  chunked
      1.9             3.0          4.3e-7           fft
"""

import json
import logging
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from launch import cli
from ssm_jax.kernels import LogDecay, linear_recurrence, modal_kernel
from ssm_jax.training import circumstances

SUITE = flags.DEFINE_enum(
    "suite", None, ["modal_kernel", "recurrence"], "What to time."
)
LENGTHS = flags.DEFINE_multi_integer(
    "lengths", None, "Steps; repeat the flag for more. The suite has its own.", 1
)
REPEATS = flags.DEFINE_integer(
    "repeats", 7, "How often each is timed; the median counts.", lower_bound=1
)
OUTPUT = flags.DEFINE_string("output", None, "JSON file for the rows and the machine.")

Row = dict[str, Any]


def measure(
    name: str, function: Callable[..., Any], *arguments: Any, repeats: int
) -> tuple[Row, Any]:
    """Compiles a function and times it.

    Args:
      name: Begins the keys of what is measured.
      function: Function of arrays.
      arguments: What it is called with.
      repeats: Number of timed runs, after one that is not.

    Returns:
      ``name_s``, ``name_bytes`` and ``name_compile_s``, and what the function returns.
    """
    start = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    compile_s = time.perf_counter() - start
    memory = compiled.memory_analysis()
    held = float("nan")  # where the platform does not say
    if memory:
        held = memory.temp_size_in_bytes + memory.output_size_in_bytes
    result = jax.block_until_ready(compiled(*arguments))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        seconds.append(time.perf_counter() - start)
    row = {
        f"{name}_s": statistics.median(seconds),
        f"{name}_bytes": held,
        f"{name}_compile_s": compile_s,
    }
    return row, result


def _costs(function, *arguments, exact, repeats):
    """Measures a function of two arguments, its gradient, and its error."""

    def loss(one, other):
        return jnp.sum(jnp.abs(function(one, other)) ** 2)

    gradient = jax.value_and_grad(loss, argnums=(0, 1))
    forward, values = measure("forward", function, *arguments, repeats=repeats)
    backward, _ = measure("grad", gradient, *arguments, repeats=repeats)
    gap = np.abs(np.asarray(values)[: len(exact)] - exact).max()
    return forward | backward | {"error": float(gap / np.abs(exact).max())}


def modal_kernel_rows(
    length: int, *, d: int = 128, n: int = 64, repeats: int
) -> Iterable[Row]:
    """Times `modal_kernel`, the usual array of exponentials, and gives their ratio.

    Args:
      length: Steps of a kernel.
      d: Number of kernels.
      n: Modes that they share.
      repeats: Timed runs of each.

    Yields:
      A row for each of the two and one for the usual over ours.
    """
    rng = np.random.default_rng(0)
    log = LogDecay(
        jnp.asarray(-rng.uniform(1e-4, 0.1, n), jnp.float32),
        jnp.asarray(2 * np.pi * np.arange(n) / n, jnp.float32),
    )
    w = rng.normal(size=(d, n, 2)) @ [1, 1j] / n
    w = jnp.asarray(w, jnp.complex64)

    def usual(log, w, length):
        exponent = jax.lax.complex(log.log_abs, log.phase)[:, None] * jnp.arange(length)
        return jnp.real(jnp.sum(w[:, :, None] * jnp.exp(exponent), -2))

    lam = np.asarray(log.log_abs, float) + 1j * np.asarray(log.phase, float)
    first = [np.exp(lam * t) @ np.asarray(w[0], complex) for t in range(length)]
    found = {}
    for name, function in (("usual", usual), ("modal_kernel", modal_kernel)):
        logging.info("%s, %d steps", name, length)
        kernels, exact = partial(function, length=length), np.real([first])
        found[name] = _costs(kernels, log, w, exact=exact, repeats=repeats)
        yield {"what": name, "length": length} | found[name]
    ours = found["modal_kernel"]
    ratios = {key: value / ours[key] for key, value in found["usual"].items()}
    yield {"what": "ratio", "length": length} | ratios


def recurrence_rows(length: int, *, n: int = 64, repeats: int) -> Iterable[Row]:
    """Times every method of `linear_recurrence`.

    Args:
      length: Steps of the sequence.
      n: Complex states.
      repeats: Timed runs of each.

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
    varying = np.exp(exponent + 1j * rng.uniform(-0.1, 0.1, (length, n)))
    varying = jnp.asarray(varying, jnp.complex64)
    scans = ["sequential", "associative", "chunked"]
    for kind, a, numbers, methods in (
        ("constant", log, np.exp(exponent), [*scans, "fft"]),
        ("varying", varying, varying, scans),
    ):
        exact = _loop(numbers, b)
        for method in methods:
            logging.info("%s decay, %s, %d steps", kind, method, length)
            states = partial(_states, method=method)
            row = {"what": method, "decay": kind, "length": length}
            yield row | _costs(states, a, b, exact=exact, repeats=repeats)


def table(rows: Sequence[Row]) -> str:
    """Lays out rows of the same keys, numbers to three digits."""
    cells = [[*rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def main(argv):
    """Runs a suite."""
    del argv
    if SUITE.value == "modal_kernel":
        suite, lengths = modal_kernel_rows, [2**14]
    else:
        suite, lengths = recurrence_rows, [2**10, 2**14, 2**17]
    repeats = REPEATS.value
    rows = [row for n in LENGTHS.value or lengths for row in suite(n, repeats=repeats)]
    print(table(rows))
    if OUTPUT.value:
        found = {"suite": SUITE.value, "repeats": repeats, "rows": rows}
        text = json.dumps(circumstances() | found, indent=2)
        Path(OUTPUT.value).write_text(text + "\n")


def _states(a, b, *, method):
    return linear_recurrence(a, b, method=method)[0]


def _loop(a, b):
    """The definition in double precision."""
    b = np.asarray(b, complex)
    a = np.broadcast_to(np.asarray(a, complex), b.shape)
    h, state = np.empty_like(b), np.zeros_like(b[0])
    for t in range(len(b)):
        h[t] = state = a[t] * state + b[t]
    return h


def _cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    flags.mark_flag_as_required("suite")
    cli.run(main)
