r"""Counts what the methods of a linear recurrence cost on a GPU or a TPU.

    python -m benchmarks.costs --target=gpu:h100:1
    python -m benchmarks.costs --target=tpu:v5e:1x1

The extra ``[compile]`` must be installed; programs are compiled, and nothing is run. A
row is a method with its gradient, of the states of a recurrence or of the outputs of
DLR, or the nonlinear term of a GRU without. ``passes`` is
the number of times that its kernels read or write an array of the size of the states;
``kernels`` is the number of kernels, also for each level of
`ssm_jax.kernels.plan.depth`. ``predicted_ms`` is the time that the model of ``"auto"``
predicts. Rows of other targets in ``--output`` are kept.
"""

import itertools
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags

from benchmarks.__main__ import table
from benchmarks.compiled import of_call, placed, record
from benchmarks.measurement import Row
from benchmarks.programs import ROWS, WIDTH, states, with_gradient
from ssm_jax import aot
from ssm_jax.cli import app
from ssm_jax.kernels import LogDecay, compiling_for, plan
from ssm_jax.recurrences import DLR, GRU
from ssm_jax.training import environment
from ssm_jax.types import Method

RECORDS = Path(__file__).parents[1] / "experiments" / "benchmarks" / "costs.json"

LENGTHS = 64, 256, 1024, 4096
"""Steps."""

CHANNELS = 128
"""Width of DLR, whose convolutions have as many kernels."""

_CONVOLUTIONS: tuple[Method, ...] = "fft", "chunked", "associative"


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("target", None, "As `compile` takes it.", required=True)
    flags.DEFINE_string("output", str(RECORDS), "JSON file of the rows.")


def main(argv):
    """Compiles for ``--target``; prints the rows and writes them to ``--output``."""
    del argv
    values = flags.FLAGS
    target, file = aot.parse_target(values.target), Path(values.output)
    aot.prepare(target)
    measured = environment()  # A commit may follow while programs are compiled.
    common = of_call(target, measured)
    device = aot.topology_devices(target)[0]
    rows = []
    platform = target.device.platform
    counted = (
        function(device, platform)
        for function in (cost_rows, convolution_rows, nonlinear_rows)
    )
    for row in itertools.chain(*counted):
        rows.append(common | row)
        print(f"{row['what']}, {row['method']}, {row['length']}", file=sys.stderr)
    print(table(rows))
    record(file, "costs", measured, rows, lambda row: row["target"])


def cost_rows(device: Any, platform: str) -> Iterator[Row]:
    """Yields a row for each kind of decay, method and length.

    Args:
      device: A device that programs can be compiled for.
      platform: ``"cuda"`` or ``"tpu"``.
    """
    for length in LENGTHS:
        b, n = _float32(device, ROWS, length, WIDTH), _float32(device, WIDTH)
        for what, a in (("time-invariant", LogDecay(n)), ("input-dependent", b)):
            for method in plan.METHODS:
                both = partial(with_gradient, partial(states, method))
                predicted = plan.seconds(
                    method,
                    platform,
                    time_invariant=a is not b,
                    length=length,
                    n_bytes=4 * b.size,
                )
                counted = _counts(both, ((a, b), b), platform, method, length)
                yield {"what": what} | counted | {"predicted_ms": 1e3 * predicted}


def convolution_rows(device: Any, platform: str) -> Iterator[Row]:
    """Yields a row of DLR for each number of modes, method and length.

    Args:
      device: A device that programs can be compiled for.
      platform: ``"cuda"`` or ``"tpu"``.
    """
    for n, length in itertools.product((1, 2, 4, 64), (32, *LENGTHS)):
        dlr, x = DLR(d_state=n), _float32(device, ROWS, length, CHANNELS)
        init = partial(dlr.init, d_in=CHANNELS)
        params = jax.eval_shape(init, jax.random.key(0))
        params = jax.tree.map(lambda leaf: placed(leaf, device), params)
        for method in _CONVOLUTIONS:

            def outputs(params, x, dlr=dlr, method: Method = method):
                return dlr.apply(params, x, method=method)[0]

            both = partial(with_gradient, outputs)
            counted = _counts(both, ((params, x), x), platform)
            row = {"what": f"DLR, modes={n}"} | counted | {"method": method}
            yield row | {"kernels_per_level": None, "predicted_ms": None}


def nonlinear_rows(device: Any, platform: str) -> Iterator[Row]:
    """Yields rows of a GRU: its steps with their gradient, and its nonlinear term.

    The steps also read the weights, which are in the cache of most devices.

    Args:
      device: A device that programs can be compiled for.
      platform: ``"cuda"`` or ``"tpu"``.
    """
    gru, length = GRU(d_state=WIDTH), LENGTHS[2]
    x = _float32(device, ROWS, length, WIDTH)
    params = jax.tree.map(
        lambda leaf: placed(leaf, device),
        jax.eval_shape(lambda key: gru.init(key, WIDTH), jax.random.key(0)),
    )

    def steps(params, x):
        def outputs(params, x):
            return gru.apply(params, x, method="sequential")[0]

        y, gradient = jax.vjp(outputs, params, x)
        return y, gradient(y)

    def term(params, x, h):
        u = gru.input_projection(params, x)
        return gru.nonlinear_term(params, h, u), gru.diagonal(params, h, u)

    counted = _counts(steps, (params, x), platform, "sequential", length)
    yield {"what": "GRU"} | counted | {"predicted_ms": None}
    counted = _counts(term, (params, x, x), platform)
    yield {"what": "GRU, nonlinear term"} | counted | {"predicted_ms": None}


def _float32(device, *shape) -> Any:
    return placed(jax.ShapeDtypeStruct(shape, jnp.float32), device)


def _counts(function, arguments, platform, method=None, length=1) -> Row:
    with compiling_for(platform):
        lowered = jax.jit(function).lower(*arguments)
    text = str(lowered.compile().as_text())
    array, kernels = arguments[1], aot.kernels_run(text)
    return {
        "method": method,
        "length": array.shape[1],
        "passes": aot.bytes_moved(text) / (4 * array.size),
        "kernels": kernels,
        "kernels_per_level": kernels / (plan.depth(method, length) if method else 1),
    }


if __name__ == "__main__":
    app.run(main, define_flags)
