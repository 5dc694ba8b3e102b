"""Measures time, memory and accuracy of kernels, layers and models.

    python -m benchmarks --suite=recurrence
    python -m benchmarks --suite=peers --output=peers.json --markdown=peers.md
    python -m benchmarks --suite=costs --target=gpu:h100:1 --output=costs.json

A suite is a function of a length that yields rows, with one sentence that says what
they are; its docstring describes their fields. `costs`, `pallas` and `matrix_costs`
compile for ``--target`` and run nothing: they keep the rows of other programs in
``--output``, and each row has its own commit and version of JAX.
`benchmarks.compilation` is a program of its own: every experiment compiled for GPUs and
TPUs that need not be there.

Where a docstring says no more, times are medians, bytes are those of temporary memory
and results, ``grad`` is the value and the gradient together, and errors are maximum
absolute differences divided by the maximum absolute value. Times depend on the machine
and its load; ``--output`` has the rows with a description of the machine, and is
written after each row.
"""

import inspect
import itertools
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import flags

from benchmarks import (
    accelerators,
    dlr,
    forecasts,
    iterations,
    kernels,
    language,
    lengths,
    limits,
    matrix,
    meshes,
    peers,
    roofline,
    startup,
    training_steps,
)
from benchmarks.measurement import Row
from experiments.records import machine
from ssm_jax import plots
from ssm_jax.cli import app
from ssm_jax.cli.run_flags import PICTURES, check_writable
from ssm_jax.cli.tables import markdown
from ssm_jax.files import write_text
from ssm_jax.training import environment


class Suite(NamedTuple):
    """What is measured, and what it says.

    Attributes:
      rows: Function of a length that returns its rows. A call checks the length and
        measures nothing; rows are measured when they are iterated over.
      lengths: The lengths if none are given.
      sentence: What the rows show.
    """

    rows: Callable[..., Iterable[Row]]
    lengths: Sequence[int]
    sentence: str


SUITES = {
    "recurrence": Suite(
        kernels.recurrence_rows,
        (2**10, 2**14, 2**17),
        "Every method of `linear_recurrence` with 64 complex states, and its error "
        "against float64.",
    ),
    "scans": Suite(
        kernels.scan_rows,
        tuple(kernels.SCAN_WIDTHS),
        "`linear_recurrence` by `sequential`, real and complex, relative to a plain "
        "`jax.lax.scan`, and on CPUs what the ratio is to be at most; timed in turns.",
    ),
    "convolutions": Suite(
        kernels.convolution_rows,
        kernels.LENGTHS,
        "DLR with 1 to 256 modes, S4 and SGConv by each method, by which "
        "`ssm_jax.kernels.plan` chooses on CPUs; timed in turns.",
    ),
    "roofline": Suite(
        roofline.roofline_rows,
        (64, 512, 4096),
        "Recurrences of 8 sequences and 1,024 states or channels by every method, "
        "beside the time that a copy of their arguments and results takes.",
    ),
    "limits": Suite(
        limits.limit_rows,
        (4096,),
        "Kernels in float32, beside the time that their bytes and the operations of a "
        "plain form take at the rates of this machine, measured in the same run.",
    ),
    "costs": Suite(
        accelerators.cost_rows,
        (64, 256, 1024, 4096),
        "Passes over the states and kernels of the methods of a recurrence, of DLR and "
        "of a GRU with their gradients, counted in programs compiled for `--target`; "
        "`ssm_jax.kernels.plan` predicts times by them.",
    ),
    "pallas": Suite(
        accelerators.pallas_rows,
        (4096,),
        "Bytes that the kernels in Pallas move for `--target`, relative to those of "
        "their arguments and results.",
    ),
    "matrix_costs": Suite(
        accelerators.matrix_cost_rows,
        (4096,),
        "Bytes and operations of `matrix_recurrence` compiled for `--target`, relative "
        "to those that it must move and compute.",
    ),
    "peers": Suite(
        peers.peer_rows,
        (2048,),
        "Layers relative to the same layers written plainly as their authors' code "
        "evaluates them, with the same parameters; timed in turns.",
    ),
    "matrix": Suite(
        matrix.matrix_rows,
        (1024,),
        "`matrix_recurrence` with decays of heads, of entries of keys and with the "
        "delta rule, relative to plain scans over steps and over chunks; in turns.",
    ),
    "selective": Suite(
        peers.selective_rows,
        tuple(peers.SELECTIVE_SIZES),
        "The selective SSM relative to a plain `jax.lax.scan` of its equations, and on "
        "CPUs what these ratios are to be at most; timed in turns.",
    ),
    "training_steps": Suite(
        training_steps.training_step_rows,
        (1024,),
        "Training steps of small classifiers relative to plain steps by Flax and optax "
        "with the same parameters, to ours without a recurrence, and to ours with a "
        "scan over the blocks; timed in turns.",
    ),
    "meshes": Suite(
        meshes.mesh_rows,
        (256,),
        "A training step of Mamba by `pmap`, by `shard_map` and with parameters "
        "sharded over devices: time to compile, time of a step in turns, memory of a "
        "device.",
    ),
    "depth": Suite(
        training_steps.depth_rows,
        (1024,),
        "CPU seconds of compiling a training step and `model.init`, and bytes of the "
        "temporaries of the step, by the number of layers, with and without a scan "
        "over the blocks.",
    ),
    "lengths": Suite(
        lengths.length_rows,
        (2**14, 2**16, 2**18, 2**20),
        "Nanoseconds and bytes per step and channel of S5, LRU, DLR, S4D and CES with "
        "16 channels, and the exponent of the time from 4,096 steps on.",
    ),
    "iterations": Suite(
        iterations.iteration_rows,
        (176, 784, 4096, 16384),
        "FRUs with initial weights and larger ones and a GRU, evaluated by iterations "
        "over all steps in parallel and step by step.",
    ),
    "stability": Suite(
        iterations.stability_rows,
        (784,),
        "Iterations that evaluate all steps of an RNN, a GRU and an FRU in parallel, "
        "beside the largest Lyapunov exponent, by the size of the weights.",
    ),
    "powers": Suite(
        dlr.power_rows,
        (2**12, 2**14, 2**16, 2**18, 2**20),
        "Errors of kernels of DLR by exact powers of the decays, by exponentials in "
        "float32 and by products of decays.",
    ),
    "clock": Suite(
        dlr.clock_rows,
        (2**24,),
        "The step modulo 2 to 60, read from the powers of an eigenvalue of modulus 1, "
        "which are exact, exponentials in float32, products, or float64.",
    ),
    "long_shift": Suite(
        dlr.long_shift_rows,
        (2**16, 2**18, 2**20),
        "The kernel of a single tap by DLR-prod with coarse and fine phases, and a "
        "training step of 32 channels on Shift with a batch of 4.",
    ),
    "throughput": Suite(
        language.throughput_rows,
        (512, 1024, 2048, 4096),
        "Tokens per second and memory of training steps of language models of equal "
        "size; timed in turns.",
    ),
    "forecasts": Suite(
        forecasts.forecast_rows,
        (4000,),
        "The forecaster that `ssm-jax new` writes beside ridge regression on lags, the "
        "last value and the linear forecast that it is added to, on generated series "
        "and those of statsmodels, over three seeds.",
    ),
    "startup": Suite(
        startup.startup_rows,
        (20,),
        "CPU and wall seconds of programs: training up to the first step, and "
        "evaluation, forecast and text of small runs; in turns.",
    ),
    "decoding": Suite(
        language.decoding_rows,
        (1024,),
        "Texts generated in blocks of tokens and one token a call, relative to a "
        "single compiled loop over all tokens; timed in turns.",
    ),
}

_PROGRAM = ("target", "what", "pass", "method", "length", "size")
"""Fields that say which compiled program a row is of."""


def define_flags() -> None:
    """Defines the flags of this program."""
    # Times to compile are measured.
    flags.FLAGS.set_default("compile_cache", "none")
    sentences = (f"{name}: {suite.sentence}" for name, suite in SUITES.items())
    flags.DEFINE_enum("suite", None, list(SUITES), " ".join(sentences), required=True)
    flags.DEFINE_multi_integer(
        "lengths", None, "Steps; may be repeated (default: the suite's).", 1
    )
    flags.DEFINE_integer(
        "repeats",
        7,
        "Timings per row; the suite takes their median or their minimum.",
        lower_bound=1,
    )
    flags.DEFINE_list(
        "options", [], "Numbers of the suite, such as `batch=256,frequencies=40`."
    )
    flags.DEFINE_string(
        "target", None, "Of costs, pallas and matrix_costs, as `compile` takes it."
    )
    flags.DEFINE_list(
        "methods", None, "Of pallas and matrix_costs (default: `pallas` and `auto`)."
    )
    flags.DEFINE_string("output", None, "JSON file for the rows and the machine.")
    flags.DEFINE_string("markdown", None, "Markdown file for the page of the suite.")
    flags.DEFINE_string("figure", None, "PNG file for the throughput by length.")


def main(argv):
    """Runs the suite of ``--suite``; prints and writes each row."""
    del argv
    values = flags.FLAGS
    name = values.suite
    suite = SUITES[name]
    if values.figure and name != "throughput":
        raise ValueError(
            f"`--figure` must be left out for {name}, got {values.figure}; only "
            "throughput has a picture."
        )
    check_writable("output", values.output, ("json",))
    check_writable("markdown", values.markdown, ("md",))
    check_writable("figure", values.figure, PICTURES)
    options = read_options(suite.rows, values.options)
    target_options = read_target(suite.rows, values.target, values.methods)
    if "repeats" in inspect.signature(suite.rows).parameters:
        target_options["repeats"] = values.repeats
    # All calls before the first measurement, since they check the lengths.
    calls = [
        suite.rows(length, **target_options, **options)
        for length in values.lengths or suite.lengths
    ]
    # Before the first measurement, since a commit may follow meanwhile; in a process of
    # its own, since compilers for other devices are loaded before JAX is used.
    record = _call_in_new_process(environment)
    record |= {"suite": name} | ({"options": options} if options else {})
    record |= {"repeats": values.repeats} if "repeats" in target_options else {}
    common, other_rows = {}, []
    if values.target:
        common = {"target": values.target, "commit": record["commit"]}
        common["jax"] = jax.__version__
        if values.output and Path(values.output).exists():
            other_rows = json.loads(Path(values.output).read_text())["rows"]
    rows = []
    for row in itertools.chain.from_iterable(calls):
        rows.append(common | row)
        other_rows = [row for row in other_rows if _program(row) != _program(rows[-1])]
        print(", ".join(f"{key} {_cell(row[key])}" for key in row), file=sys.stderr)
        if values.output:
            # After each row: an interrupted run keeps what it has measured.
            text = json.dumps(record | {"rows": [*other_rows, *rows]}, indent=2)
            write_text(Path(values.output), text + "\n")
    print(table(rows))
    if values.markdown:
        write_text(Path(values.markdown), page(record | {"rows": rows}))
    if values.figure:
        plots.save(plots.throughput(rows, record["device"]), Path(values.figure))


def read_options(suite: Callable[..., Any], texts: Sequence[str]) -> dict[str, int]:
    """Returns the numbers that a suite is called with, by name.

    Args:
      suite: Function of a length, with keyword arguments.
      texts: Texts such as ``"batch=256"``.

    Raises:
      ValueError: The suite has no such argument, or it is not a positive integer.
    """
    names = [
        name
        for name, parameter in inspect.signature(suite).parameters.items()
        if isinstance(parameter.default, int)
    ]
    options = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in names or not number.isdecimal() or int(number) == 0:
            raise ValueError(
                "`--options` must be `name=number`, a positive integer and one of the "
                f"names {', '.join(names) or '(none)'}, got {text}."
            )
        options[name] = int(number)
    return options


def read_target(
    suite: Callable[..., Any], target: str | None, methods: Sequence[str] | None
) -> dict[str, Any]:
    """Returns the arguments of a suite that compiles for a target.

    Args:
      suite: Function of a length, with keyword arguments.
      target: Text of the target, if one is given.
      methods: Methods, if some are given.

    Raises:
      ValueError: One is given to a suite without it, or a suite lacks its target.
    """
    parameters = inspect.signature(suite).parameters
    target_options = {"target": target, "methods": methods}
    for name, value in target_options.items():
        if value and name not in parameters:
            raise ValueError(
                f"`--{name}` must be left out for a suite without it, got {value}."
            )
    if "target" in parameters and not target:
        raise ValueError(
            "`--target` must be given for a suite that compiles programs and runs none."
        )
    return {name: value for name, value in target_options.items() if value}


def table(rows: Sequence[Row]) -> str:
    """Formats rows as a table, numbers with three digits; what one lacks is empty."""
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def page(record: Mapping[str, Any]) -> str:
    """Returns the Markdown page of a suite.

    Args:
      record: The suite, the machine and the rows, as ``--output`` has them.
    """
    name, rows = record["suite"], record["rows"]
    command = f"python -m benchmarks --suite={name}"
    if "target" in rows[0]:
        command += f" --target={rows[0]['target']}"
    return (
        f"# Benchmark: {name}\n\n{SUITES[name].sentence}\n\n"
        f"Measured by `{command}` on {machine(record)}.\n\n{markdown(_cells(rows))}"
    )


def _cells(rows):
    names = dict.fromkeys(name for row in rows for name in row)
    return [[*names], *([_cell(row.get(name, "")) for name in names] for row in rows)]


def _cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _program(row):
    return tuple(row.get(name) for name in _PROGRAM)


def _call_in_new_process(function: Callable[[], Any]) -> Any:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function).result()


if __name__ == "__main__":
    app.run(main, define_flags)
