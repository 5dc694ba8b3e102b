"""Training steps on a CPU with memory in pages of the usual size and in huge ones."""

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

import jax

from benchmarks.classifiers import classifier
from benchmarks.measurement import Row, in_turns
from benchmarks.startup import ROOT
from benchmarks.training_steps import our_step

MODELS = ("S5", "DLR", "CES")

TUNABLE = "glibc.malloc.hugetlb=1"
"""Makes the C library ask for huge pages, from glibc 2.35 on."""

STEPS = 10
"""Steps of a turn. A virtual machine may lose memory that is free between two turns,
and it takes time to get it again."""


def huge_page_rows(length: int, *, repeats: int) -> Iterable[Row]:
    """Times training steps of each classifier in two processes, in turns.

    Args:
      length: Number of steps of a sequence.
      repeats: Number of timed turns, of `STEPS` steps each.

    Yields:
      A row for each model: seconds of a step with the pages of the C library
      (``usual``) and with `TUNABLE` (``huge``), median and minimum over the means of
      the turns, and their ratio.
    """
    for name in MODELS:
        logging.info("%s, %d steps", name, length)
        with contextlib.ExitStack() as stack:
            steps = {
                what: stack.enter_context(_in_process(name, length, tunables))
                for what, tunables in (("usual", ""), ("huge", TUNABLE))
            }
            seconds = {
                key: of_turn / STEPS
                for key, of_turn in in_turns(steps, repeats=repeats).items()
            }
        yield {
            "what": name,
            "length": length,
            **seconds,
            "ratio": seconds["huge_s"] / seconds["usual_s"],
            "ratio_min": seconds["huge_min_s"] / seconds["usual_min_s"],
        }


@contextlib.contextmanager
def _in_process(name, length, tunables) -> Iterator[Callable[[], str]]:
    """Starts a process; yields a function that lets it take `STEPS` steps."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, name, str(length)],
        cwd=ROOT,
        env={**os.environ, "GLIBC_TUNABLES": tunables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def take():
            stdin.write("\n")
            stdin.flush()
            if not (answer := stdout.readline()):
                raise RuntimeError(f"The process of {name} failed; see its output.")
            return answer

        yield take


def _take_steps(name: str, length: str) -> None:
    """Takes `STEPS` steps for each line of the standard input; answers by a line."""
    found = classifier(name, int(length), width=128, n_layers=4)
    step, _ = our_step(*found.create(), found.batch)
    for _ in sys.stdin:
        for _ in range(STEPS):
            jax.block_until_ready(step())
        print("taken", flush=True)


if __name__ == "__main__":
    _take_steps(*sys.argv[1:])
