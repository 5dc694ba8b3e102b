"""Measures time, memory and accuracy of kernels, layers and models.

    python -m benchmarks --suite=modal_kernel
    python -m benchmarks --suite=recurrence --output=recurrence.json
    python -m benchmarks --suite=throughput --figure=throughput.png

``modal_kernel``: `ssm_jax.kernels.modal_kernel` compared to the usual array of
exponentials, for 128 kernels of 64 modes. ``recurrence``: every method of
`ssm_jax.kernels.linear_recurrence`, with 64 complex states. ``grad`` is the value and
the gradient together; seconds are medians; bytes are temporary memory and results; the
error is the maximum absolute error of the values divided by the maximum absolute value,
against float64.

``roofline``: recurrences of 8 sequences and 1,024 states or channels by every method,
with and without their gradient, relative to reading and writing their arguments and
results once at the measured bandwidth of a copy. Recorded on a GPU in
``experiments/benchmarks/roofline.json``.

``scans``: ``"sequential"`` and ``"associative"`` for 64 states with time-invariant
decays, relative to `jax.lax.scan` and `jax.lax.associative_scan` of the same numbers,
which accumulate rounding errors; timed in turns.

``selective``: the selective SSM by ``"sequential"``, relative to a plain `jax.lax.scan`
of its equations; timed in turns. Recorded in ``experiments/benchmarks/selective.json``.

``peers``: S5, LRU, the selective SSM, a real gated scan, GRU, DLR and S4D, relative to
the same layers written plainly as their authors' code evaluates them, in
`benchmarks.plain`, with the same parameters and timed in turns; DLR and S4D also in
torch, if it is installed. Outputs must be equal to those of the peer. Recorded in
``experiments/benchmarks/peers.json``.

``training_steps``: training steps of small classifiers with S5, S4D, DLR, CES and
Mamba, relative to plain steps by Flax and optax with these layers and the same
parameters, to ours without a recurrence, and to ours with a scan over the blocks; timed
in turns. Recorded in ``experiments/benchmarks/training_steps.json``.

``huge_pages``: training steps of small classifiers on a CPU with huge pages of memory,
by ``GLIBC_TUNABLES=glibc.malloc.hugetlb=1``, relative to the usual pages. Recorded in
``experiments/benchmarks/huge_pages.json``.

``convolutions``: DLR with 1 to 256 modes, S4 and SGConv by each method, of 1 to 8,192
steps, by which `ssm_jax.kernels.plan` chooses; timed in turns. Recorded in
``experiments/benchmarks/convolutions.json``.

``lengths``: S5, LRU, DLR, S4D and CES with 16 channels: nanoseconds and bytes per step
and channel, and the exponent of the time from 4,096 steps on. Recorded in
``experiments/benchmarks/lengths.json``.

``depth``: CPU seconds of compiling a training step and ``model.init``, and bytes of the
temporaries of the step, with 4, 8 and 24 layers, by one scan over the blocks and by one
after the other. Recorded in ``experiments/benchmarks/depth.json``.

``startup``: CPU seconds of a process that imports the packages below this library, of
one that imports it, and of training on digits up to its first step, with and without a
cache of compiled programs; the bytecode of all modules is there. Recorded in
``experiments/benchmarks/startup.json``.

``smoothing``: the ETSMLP layer for a batch of 8 with 160 channels, bidirectional,
compared to the same mathematics with an array of exponentials and an FFT of twice the
length, and to a Transformer block.

``iterations``: an FRU with 60 frequencies with its initial weights and larger ones, and
a GRU, evaluated by iterations over all steps in parallel and step by step, which is
faster on devices without parallelism; the number of iterations depends more on the
weights than on the length, and with large weights they may not converge. Recorded in
``experiments/benchmarks/iterations.json``, and on a GPU with
``--lengths=784 --options=batch=256,frequencies=40`` in ``iterations_gpu.json``.

``warm_start``: iterations of GRU, LSTM and RNN from zeros, from the states of another
batch, and from those of the same batch before a small change of the parameters.
Recorded in ``experiments/benchmarks/warm_start.json``.

``units``: units whose last output is used, with batches of 64: as in their equations,
with all sums updated at each step, and as in this library, with only the projections of
the sums that are read.

``generators``: generated tasks, in one process; processes can generate in parallel.

``tasks``: a batch of 16 of each atomic task of the paper on DLR, and a training step of
a DLR layer with 128 channels and 4,096 states on such a batch.

``long_shift``: the kernel of a single tap by DLR-prod with coarse and fine phases, and
a training step of 32 channels on Shift with a batch of 4. Recorded in
``experiments/benchmarks/long_shift.json`` and shown on the page of DLR.

``powers``: kernels of DLR by exact powers of the decays, by exponentials in float32 and
by products of decays. Recorded in ``experiments/benchmarks/powers.json``.

``throughput``: training steps of language models of equal size; ``--figure`` draws it.
Recorded in ``experiments/benchmarks/throughput.json``.

``generation``: one token generated by the small models of
``experiments/longssm/text.py`` after a prompt, relative to one at the start of a text,
timed in turns.

``decoding``: texts generated by the same models in blocks of tokens, and one token a
call, relative to a single compiled loop over all tokens, timed in turns; with the time
to the first token. Recorded in ``experiments/benchmarks/decoding.json``.

``long_text``: the loss on a million tokens as one sequence, in pieces by
`ssm_jax.evaluation.losses_by_length` and by a single call, each in a process of its
own.

``finite``: draws of the parameters of every recurrence, initialization plus ``s`` times
standard normal numbers, whose values or gradients are not finite; ``within`` of them
must be finite, ``bad_within`` of those are not. 10,000 draws each, of 48 steps, are
recorded in ``experiments/benchmarks/finite.json``.

``scaled``: parallel solutions of RNN, GRU, LSTM, FRU and SRU whose feedback weights are
multiplied by 1 to 20, compared to sequential ones; if the iterations do not converge,
the output is the sequential one. Recorded in ``experiments/benchmarks/scaled.json``.

`benchmarks.compilation` is a program of its own: every experiment compiled for GPUs and
TPUs that need not be there.

Results depend on the machine and its load; ``--output`` has them with a description of
the machine, and is written after each row.
"""

import inspect
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import (
    convolutions,
    decoding,
    depth,
    finite,
    generators,
    huge_pages,
    iterations,
    kernels,
    language,
    lengths,
    long_shift,
    peers,
    powers,
    roofline,
    scaled,
    scans,
    selective,
    smoothing,
    startup,
    synthetic,
    throughput,
    training_steps,
    units,
    warm_start,
)
from benchmarks.measurement import Row
from ssm_jax import plots
from ssm_jax.cli import app
from ssm_jax.cli.run_flags import PICTURES, check_writable
from ssm_jax.files import write_text
from ssm_jax.training import environment

SUITES = {
    "generators": (generators.generator_rows, tuple(generators.GENERATORS)),
    "tasks": (synthetic.task_rows, (4096,)),
    "long_shift": (long_shift.long_shift_rows, (2**16, 2**18, 2**20)),
    "powers": (powers.power_rows, (2**12, 2**14, 2**16, 2**18, 2**20)),
    "modal_kernel": (kernels.modal_kernel_rows, (2**14,)),
    "recurrence": (kernels.recurrence_rows, (2**10, 2**14, 2**17)),
    "roofline": (roofline.roofline_rows, (64, 512, 4096)),
    "scans": (scans.time_invariant_rows, (2**12, 2**14, 2**17)),
    "convolutions": (convolutions.convolution_rows, convolutions.LENGTHS),
    "selective": (selective.selective_rows, (512, 4096)),
    "peers": (peers.peer_rows, (2048,)),
    "training_steps": (training_steps.training_step_rows, (1024,)),
    "lengths": (lengths.length_rows, (2**14, 2**16, 2**18, 2**20)),
    "depth": (depth.depth_rows, (1024,)),
    "huge_pages": (huge_pages.huge_page_rows, (1024,)),
    "startup": (startup.startup_rows, (1,)),
    "smoothing": (smoothing.smoothing_rows, (4096,)),
    "iterations": (iterations.iteration_rows, (176, 784, 4096, 16384)),
    "warm_start": (warm_start.warm_start_rows, (64, 512)),
    "units": (units.unit_rows, (176, 784)),
    "throughput": (throughput.throughput_rows, (512, 1024, 2048, 4096)),
    "generation": (language.generation_rows, (10, 1_000, 10_000, 100_000)),
    "decoding": (decoding.decoding_rows, (512,)),
    "long_text": (language.long_text_rows, (1_000_000,)),
    "finite": (finite.finite_rows, (48,)),
    "scaled": (scaled.scaled_rows, (200, 1000)),
}
"""The suites, and the lengths that each measures if not told others.

A call of a suite checks the length and measures nothing; rows are measured when they
are iterated over.
"""


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_enum("suite", None, list(SUITES), "What to measure.", required=True)
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
    flags.DEFINE_string("output", None, "JSON file for the rows and the machine.")
    flags.DEFINE_string("figure", None, "PNG file for the throughput by length.")


def table(rows: Sequence[Row]) -> str:
    """Formats rows with equal keys as a table, numbers with three digits."""
    cells = [[*rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )


def read_options(suite: Callable[..., Any], given: Sequence[str]) -> dict[str, int]:
    """Returns the numbers that a suite is called with, by name.

    Args:
      suite: Function of a length, with keyword arguments.
      given: Texts such as ``"batch=256"``.

    Raises:
      ValueError: The suite has no such argument, or it is not a positive integer.
    """
    known = [
        name
        for name, parameter in inspect.signature(suite).parameters.items()
        if isinstance(parameter.default, int)
    ]
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in known or not number.isdecimal() or int(number) == 0:
            raise ValueError(
                "`--options` must be `name=number`, a positive integer and one of the "
                f"names {', '.join(known) or '(none)'}, got {text}."
            )
        found[name] = int(number)
    return found


def main(argv):
    """Runs the suite of ``--suite``; prints and writes each row."""
    del argv
    values = flags.FLAGS
    name = values.suite
    if values.figure and name != "throughput":
        raise ValueError(
            f"`--figure` must be left out for {name}, got {values.figure}; only "
            "throughput has a picture."
        )
    check_writable("output", values.output, ("json",))
    check_writable("figure", values.figure, PICTURES)
    suite, lengths = SUITES[name]
    options = read_options(suite, values.options)
    # All calls before the first measurement, since they check the lengths.
    found = [
        suite(length, repeats=values.repeats, **options)
        for length in values.lengths or lengths
    ]
    # Before the first measurement, since a commit may follow meanwhile; in a process of
    # its own, since the processes of some suites need the memory of the device.
    record = language.in_a_fresh_process(environment)
    record |= {"suite": name, "repeats": values.repeats}
    record |= {"options": options} if options else {}
    rows = record["rows"] = []
    for row in itertools.chain.from_iterable(found):
        rows.append(row)
        print(", ".join(f"{key} {_cell(row[key])}" for key in row), file=sys.stderr)
        if values.output:
            # After each row: an interrupted run keeps what it has measured.
            write_text(Path(values.output), json.dumps(record, indent=2) + "\n")
    print(table(rows))
    if values.figure:
        plots.save(plots.throughput(rows, record["device"]), Path(values.figure))


def _cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    app.run(main, define_flags)
