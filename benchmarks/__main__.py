"""Times the kernels, and says what memory they take and how exact they are.

    python -m benchmarks --suite=modal_kernel
    python -m benchmarks --suite=recurrence --output=recurrence.json
    python -m benchmarks --suite=throughput --figure=throughput.png

``modal_kernel``: `ssm_jax.kernels.modal_kernel` against the usual array of
exponentials, 128 kernels of 64 modes. ``recurrence``: every method of
`ssm_jax.kernels.linear_recurrence`, 64 complex states. ``grad`` is value and gradient
together; seconds are medians, bytes temporary memory and results; the error is that of
the values, the largest as a part of the largest value, against float64.

``smoothing``: batch 8, 160 channels, two directions, beside the same mathematics with
an array of exponentials and an FFT of twice the length, and a Transformer's block.

``iterations``: an FRU of 60 frequencies with its initial weights and larger ones, and a
GRU, solved by iterations over all steps at once against step by step, which is the
faster where nothing is parallel; the number of iterations does not depend on the
length.

``units``: units of which the last output counts, batches of 64, as their equations are
written, where all sums go from step to step, and as they are here, where what is read
of the sums does.

``generators``: the tasks that are drawn, by one process; all cores can draw at once.

``throughput``: training steps of language models of one size, with ``--figure`` drawn.

``generation``: a token written by the small models of ``experiments/longssm/text.py``
after so many have been read, over one at the start of a text, timed in turns.

``long_text``: the loss on a million tokens as one sequence, in pieces by
`ssm_jax.evaluation.losses_by_length` and by a single call, each in a process of its
own.

``finite``: draws of the parameters of every recurrence, initialization plus ``s`` times
standard normal numbers, of which values or gradients are not finite; ``within`` of them
must be finite, ``bad_within`` of those are not. 10,000 draws each, of 48 steps, are
recorded in ``experiments/benchmarks/finite.json``.

``scaled``: parallel solutions of RNN, GRU, LSTM, FRU and SRU whose feedback weights are
multiplied by 1 to 20, beside the sequential ones; where the iterations do not converge,
the output is the sequential one. Recorded in ``experiments/benchmarks/scaled.json``.

What a suite measures depends on the machine and on what else it does; ``--output``
keeps it, with the machine. No figures stand here.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from benchmarks import (
    finite,
    generators,
    iterations,
    kernels,
    language,
    scaled,
    smoothing,
    throughput,
    units,
)
from benchmarks.measurement import Row
from ssm_jax import plots
from ssm_jax.cli import app
from ssm_jax.cli.outputs import PICTURES, check_writable
from ssm_jax.training import environment

SUITES = {
    "generators": (generators.generator_rows, tuple(generators.GENERATORS)),
    "modal_kernel": (kernels.modal_kernel_rows, (2**14,)),
    "recurrence": (kernels.recurrence_rows, (2**10, 2**14, 2**17)),
    "smoothing": (smoothing.smoothing_rows, (4096,)),
    "iterations": (iterations.iteration_rows, (176, 784, 4096, 16384)),
    "units": (units.unit_rows, (176, 784)),
    "throughput": (throughput.throughput_rows, (512, 1024, 2048, 4096)),
    "generation": (language.generation_rows, (10, 1_000, 10_000, 100_000)),
    "long_text": (language.long_text_rows, (1_000_000,)),
    "finite": (finite.finite_rows, (48,)),
    "scaled": (scaled.scaled_rows, (200, 1000)),
}
"""The suites, and the lengths that each measures if not told others."""


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_enum("suite", None, list(SUITES), "What to measure.", required=True)
    flags.DEFINE_multi_integer(
        "lengths", None, "Steps; may be repeated (default: the suite's).", 1
    )
    flags.DEFINE_integer(
        "repeats",
        7,
        "Timings per row; the median counts.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "draws",
        None,
        "Draws of the suite `finite` (default: 10000).",
        lower_bound=1,
    )
    flags.DEFINE_string("output", None, "JSON file for the rows and the machine.")
    flags.DEFINE_string("figure", None, "PNG file for the throughput by length.")


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
    values = flags.FLAGS
    name = values.suite
    if values.figure and name != "throughput":
        raise ValueError(
            f"`--figure` must be left out for {name}, got {values.figure}; only "
            "throughput has a picture."
        )
    if values.draws and name != "finite":
        raise ValueError(
            f"`--draws` must be left out for {name}, got {values.draws}; only "
            "finite draws parameters."
        )
    check_writable("output", values.output)
    check_writable("figure", values.figure, PICTURES)
    suite, lengths = SUITES[name]
    options = {"draws": values.draws} if values.draws else {}
    rows = [
        row
        for length in values.lengths or lengths
        for row in suite(length, repeats=values.repeats, **options)
    ]
    print(table(rows))
    if values.output:
        found = {"suite": name, "repeats": values.repeats, "rows": rows}
        text = json.dumps(environment() | found, indent=2)
        Path(values.output).write_text(text + "\n")
    if values.figure:
        plots.throughput(rows, environment()["device"]).savefig(values.figure)


def _cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    app.run(main, define_flags)
