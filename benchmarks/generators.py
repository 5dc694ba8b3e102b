"""Examples per second of the generators of the long-range tasks."""

import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np

from benchmarks.measurement import Row
from ssm_jax.tasks.listops import expressions, shapes
from ssm_jax.tasks.pathfinder import drawing, settings

# Lengths of the Long Range Arena.
BOUNDS = shapes.Bounds(500, 2000, 10, 10)
N_EXPRESSIONS = 256

# Lengths of ListOps-SubTrees.
LONG_BOUNDS = shapes.Bounds(7001, 8179, 15, 9)


def _images(setting):
    def draw(seed):
        return len(drawing.draw_block(setting, seed, "train", 0).labels)

    return draw


def _expressions(seed):
    return len(expressions.draw(np.random.default_rng(seed), N_EXPRESSIONS, BOUNDS)[1])


def _subtrees(seed):
    rng, draw = np.random.default_rng(seed), shapes.draw_long_shapes
    return len(
        expressions.draw(rng, N_EXPRESSIONS, LONG_BOUNDS, shapes=draw, labelled=True)[1]
    )


GENERATORS = {
    32**2: ("Pathfinder, 32 x 32", _images(settings.PATHFINDER[32])),
    128**2: ("Path-X, 128 x 128", _images(settings.PATHFINDER[128])),
    2000: ("ListOps", _expressions),
    8192: ("ListOps-SubTrees", _subtrees),
}
"""By the steps of a sequence."""


def generator_rows(length: int, *, repeats: int) -> Iterable[Row]:
    """Times the generation of blocks of examples of one task.

    Args:
      length: Sequence length, which selects the task: one of `GENERATORS`.
      repeats: Number of timed blocks, after one that is not timed.

    Returns:
      One row, measured when it is iterated over: the task, and examples per second.

    Raises:
      ValueError: No task has this length.
    """
    if length not in GENERATORS:
        raise ValueError(
            f"`lengths` must be of {', '.join(map(str, GENERATORS))}, got {length}; "
            "they say the task."
        )
    name, draw = GENERATORS[length]
    return _rows(length, name, draw, repeats)


def _rows(
    length: int, name: str, draw: Callable[[int], int], repeats: int
) -> Iterable[Row]:
    draw(0)
    rates = []
    for seed in range(1, repeats + 1):
        start = time.perf_counter()
        n = draw(seed)
        rates.append(n / (time.perf_counter() - start))
    yield {"steps": length, "examples_per_s": statistics.median(rates), "task": name}
