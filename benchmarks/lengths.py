"""Time and memory of layers against the length."""

import logging
import math
from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp

from benchmarks.measurement import Row, bytes_held, time_in_turns
from ssm_jax.recurrences import CES, DLR, LRU, S4D, S5, Recurrence

SHORTEST = 2**12
LAYERS: dict[str, Recurrence] = {
    "S5": S5(d_state=128, blocks=1),
    "LRU": LRU(d_state=64, r_min=0.9, r_max=0.999),
    "DLR": DLR(d_state=64, dt_min=1e-3),
    "S4D": S4D(d_state=64),
    "CES": CES(),
}


def length_rows(length: int, *, width: int = 16, repeats: int) -> Iterable[Row]:
    """Times one sequence through each layer, beside one of `SHORTEST` steps.

    Args:
      length: Number of steps, more than `SHORTEST`.
      width: Number of channels.
      repeats: Number of timed turns of the two lengths.

    Returns:
      A row for each layer, of the output (``forward``) and of the sum of its squares
      with the gradient in parameters and input (``grad``): nanoseconds per step and
      channel, the exponent, such that the time of `SHORTEST` steps times
      ``(length / SHORTEST) ** exponent`` is that of ``length`` steps, and bytes per
      step and channel of temporary memory and results; and the quotient of the times
      of both. Times are minima. They are measured when they are iterated over.

    Raises:
      ValueError: ``length`` is not more than `SHORTEST`.
    """
    if length <= SHORTEST:
        raise ValueError(
            f"`lengths` must be more than {SHORTEST}, the length that all are compared "
            f"to, got {length}; give longer ones."
        )
    return _rows(length, width, repeats)


def _rows(length: int, width: int, repeats: int) -> Iterable[Row]:
    for name, layer in LAYERS.items():
        logging.info("%s, %d steps", name, length)
        params = layer.init(jax.random.key(0), width)

        def output(params, x, layer=layer):
            return layer.apply(params, x)[0]

        def loss(params, x, layer=layer):
            return jnp.sum(layer.apply(params, x)[0] ** 2)

        row = {"what": name, "length": length, "width": width}
        functions = {"forward": output, "grad": jax.value_and_grad(loss, (0, 1))}
        for key, function in functions.items():
            programs = {}
            for steps in (SHORTEST, length):
                x = jax.random.normal(jax.random.key(1), (1, steps, width))
                compiled = jax.jit(function).lower(params, x).compile()
                programs[str(steps)] = compiled, partial(compiled, params, x)
            runs = {steps: run for steps, (_, run) in programs.items()}
            seconds = time_in_turns(runs, repeats=repeats)
            short, long = (seconds[f"{n}_min_s"] for n in (SHORTEST, length))
            exponent = math.log(long / short) / math.log(length / SHORTEST)
            row |= {
                f"{key}_ns": 1e9 * long / length / width,
                f"{key}_exponent": exponent,
                f"{key}_bytes": bytes_held(programs[str(length)][0]) / length / width,
            }
        yield row | {"grad_ratio": row["grad_ns"] / row["forward_ns"]}
