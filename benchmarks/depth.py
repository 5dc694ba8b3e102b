"""Compilation of steps and initializations, and memory, by the number of layers."""

import itertools
import logging
import time
from collections.abc import Iterable
from functools import partial

import jax

from benchmarks.classifiers import classifier
from benchmarks.measurement import Row
from ssm_jax.training.state import abstract_state
from ssm_jax.training.step import train_step

MODELS = ("S5", "DLR")

DEPTHS = (4, 8, 24)
"""Numbers of layers; the ratios are to the first one."""


def depth_rows(
    length: int,
    *,
    batch: int = 8,
    width: int = 128,
    repeats: int,
) -> Iterable[Row]:
    """Compiles the training step and the initialization of each classifier.

    Args:
      length: Number of steps of a sequence.
      batch: Number of sequences.
      width: Number of channels.
      repeats: Number of compilations of each, in turns; the minimum counts.

    Yields:
      A row for each model, with and without ``remat`` and ``scan_blocks``, and depth:
      CPU seconds of tracing, of lowering and of XLA for a training step, their sum,
      instructions of the compiled program and bytes of temporaries; the CPU seconds of
      compiling ``model.init``; and both sums relative to those of the first depth.
    """
    for name in MODELS:
        # What is imported or computed once per process is not part of a compilation.
        _compiled(classifier(name, length, width=width, n_layers=2, batch=batch))
        for remat, scan in itertools.product((False, True), (True, False)):
            found = {
                n_layers: classifier(
                    name,
                    length,
                    width=width,
                    n_layers=n_layers,
                    batch=batch,
                    remat=remat,
                    scan_blocks=scan,
                )
                for n_layers in DEPTHS
            }
            logging.info("%s, remat %s, scan_blocks %s", name, remat, scan)
            costs = _minima(found, repeats)
            first = costs[DEPTHS[0]]
            for n_layers, cost in costs.items():
                yield {
                    "what": name,
                    "length": length,
                    "batch": batch,
                    "width": width,
                    "layers": n_layers,
                    "remat": remat,
                    "scan_blocks": scan,
                    **cost,
                    "of_first": cost["compile_cpu_s"] / first["compile_cpu_s"],
                    "init_of_first": cost["init_cpu_s"] / first["init_cpu_s"],
                }


def _minima(found, repeats) -> dict[int, Row]:
    """Compiles each classifier in turns; returns the costs of the fastest compilations.

    A machine is slower for minutes at a time.
    """
    costs = {n_layers: [] for n_layers in found}
    for turn in range(repeats):
        for n_layers, of_depth in found.items():
            logging.info("%d layers, turn %d of %d", n_layers, turn + 1, repeats)
            costs[n_layers].append(_compiled(of_depth))
    return {
        n_layers: min(turns, key=lambda cost: cost["compile_cpu_s"])
        | {"init_cpu_s": min(cost["init_cpu_s"] for cost in turns)}
        for n_layers, turns in costs.items()
    }


def _compiled(found) -> Row:
    """Compiles a step without what earlier calls have left in the caches of JAX."""
    run, state = abstract_state(found.create)
    jax.clear_caches()
    step = jax.jit(partial(train_step, run), donate_argnums=0)
    # CPU seconds of all threads, which do not depend on the number of cores.
    clock = [time.process_time()]
    traced = step.trace(state, found.batch)
    clock.append(time.process_time())
    lowered = traced.lower()
    clock.append(time.process_time())
    compiled = lowered.compile()
    clock.append(time.process_time())
    trace_s, lower_s, xla_s = (b - a for a, b in zip(clock, clock[1:], strict=False))
    memory = compiled.memory_analysis()
    return {
        "trace_cpu_s": trace_s,
        "lower_cpu_s": lower_s,
        "xla_cpu_s": xla_s,
        "compile_cpu_s": trace_s + lower_s + xla_s,
        "init_cpu_s": _init_cpu_s(found),
        "instructions": str(compiled.as_text()).count(" = "),
        "temp_bytes": memory.temp_size_in_bytes if memory else float("nan"),
    }


def _init_cpu_s(found):
    jax.clear_caches()
    start = time.process_time()
    init = jax.jit(found.model.init)
    init.lower(jax.random.key(0), found.batch.inputs[:1]).compile()
    return time.process_time() - start
