"""Times the kernels, and says what memory they take and how exact they are.

    python -m launch.benchmark --suite=modal_kernel
    python -m launch.benchmark --suite=recurrence --output=recurrence.json
    python -m launch.benchmark --suite=throughput --figure=throughput.png

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

the second, at 131,072 steps, constant decay (varying decay)::

    forward_s        grad_s        error
    0.094 (0.054)    0.29 (0.28)   9.4e-6 (1.2e-5)  sequential
     0.43 (0.23)      1.2 (0.75)   9.6e-7 (7.2e-6)  associative
     0.38 (0.37)      1.2 (1.1)    7.3e-7 (6.7e-6)  chunked
      1.8             3.1          4.3e-7           fft

and ``smoothing``, batch 8, 160 channels, two directions, beside the same mathematics
with an array of exponentials and an FFT of twice the length::

    forward_s  grad_s   4096 steps
        0.143   0.312   usual smoothing
        0.021   0.086   smoothing
        0.166   0.406   ETSMLP's layer, usual smoothing
        0.066   0.201   ETSMLP's layer
         4.58    12.8   a Transformer's block

``sweeps``: an FRU of 60 waves, its weights at their start and greater, and a GRU, all
steps at once against step by step, which is the faster here, where nothing is parallel;
the number of sweeps does not depend on the length::

    sweeps    error  steps_s  sweeps_s   4096 steps
         6  1.7e-07    0.097      0.13   FRU
         9  4.2e-07    0.098      0.18   FRU, weights doubled
        16  8.6e-07     0.15      0.26   FRU, weights fourfold
        15  2.4e-07    0.029      0.18   GRU

``units``: units of which the last output counts, batches of 64, as their equations are
written, where all sums go from step to step, and as they are here, where what is read
of the sums does::

    forward_s  grad_s  grad_bytes   784 steps
        0.485    1.19   510271236   FRU as written
        0.032    0.16    61734492   FRU
         0.63     1.7   750177612   SRU as written
         0.22    0.78   307784444   SRU

``generators``: the tasks that are drawn, by one process, all cores can draw at once::

    steps  examples_per_s                 task
     1024             953  Pathfinder, 32 x 32
    16384             105    Path-X, 128 x 128
     2000        5.48e+03              ListOps

``throughput``: training steps of language models of one size, with ``--figure`` drawn.

``generation``: a token written by the small models of ``experiments/longssm/text.py``
after so many have been read, over one at the start of a text, timed in turns::

    over_first after 10  1,000  10,000  100,000    token_s  state_bytes
                   1.07   1.02    1.00     1.00    0.00069          512   s5
                   1.02   0.99    1.00     1.00    0.00047        19456   mamba
                   1.01   1.00    0.99     1.01    0.00044          512   gru
                   1.04   1.01    1.01     0.99     0.0015        65536   dlr
                   0.97   0.96    0.97     0.98    0.00054         1024   ets
                   1.01   0.98    0.99     1.01    0.00033         1608   fru

``long_text``: the loss on a million tokens as one sequence, in pieces by
`ssm_jax.evaluation.losses_by_length` and by a single call, each in a process of its
own; the loss is the same::

    pieces_s  pieces_bytes  at_once_s  at_once_bytes    error
        17.5     510763008       17.9     4898963456  1.1e-07   s5
        45.2     508485632       55.2     6848995328  3.9e-08   mamba
        23.6     520052736       22.7     4977459200    4e-08   dlr
        14.8     496750592       17.7     4915507200  4.7e-08   ets
"""

import json
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from launch import cli
from launch.suites import (
    generators,
    kernels,
    language,
    smoothing,
    sweeps,
    throughput,
    units,
)
from launch.suites.measure import Row
from ssm_jax import plots
from ssm_jax.training import circumstances

SUITES = {
    "generators": (generators.generator_rows, tuple(generators.GENERATORS)),
    "modal_kernel": (kernels.modal_kernel_rows, (2**14,)),
    "recurrence": (kernels.recurrence_rows, (2**10, 2**14, 2**17)),
    "smoothing": (smoothing.smoothing_rows, (4096,)),
    "sweeps": (sweeps.sweep_rows, (176, 784, 4096, 16384)),
    "units": (units.unit_rows, (176, 784)),
    "throughput": (throughput.throughput_rows, (512, 1024, 2048, 4096)),
    "generation": (language.generation_rows, (10, 1_000, 10_000, 100_000)),
    "long_text": (language.long_text_rows, (1_000_000,)),
}
"""The suites, and the lengths that each measures if not told others."""

SUITE = flags.DEFINE_enum(
    "suite", None, list(SUITES), "What to measure.", required=True
)
LENGTHS = flags.DEFINE_multi_integer(
    "lengths", None, "Steps; repeat the flag for more. The suite has its own.", 1
)
REPEATS = flags.DEFINE_integer(
    "repeats", 7, "How often each is timed; the median counts.", lower_bound=1
)
OUTPUT = flags.DEFINE_string("output", None, "JSON file for the rows and the machine.")
FIGURE = flags.DEFINE_string("figure", None, "Picture of the throughput, by length.")


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
    if FIGURE.value and SUITE.value != "throughput":
        raise ValueError(
            f"`--figure` must be left out for {SUITE.value}, got {FIGURE.value}; only "
            "throughput has a picture."
        )
    assert SUITE.value is not None
    suite, lengths = SUITES[SUITE.value]
    repeats = REPEATS.value
    rows = [row for n in LENGTHS.value or lengths for row in suite(n, repeats=repeats)]
    print(table(rows))
    if OUTPUT.value:
        found = {"suite": SUITE.value, "repeats": repeats, "rows": rows}
        text = json.dumps(circumstances() | found, indent=2)
        Path(OUTPUT.value).write_text(text + "\n")
    if FIGURE.value:
        plots.throughput(rows, circumstances()["device"]).savefig(FIGURE.value)


def _cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    cli.run(main)
