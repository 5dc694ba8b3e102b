"""Seconds of programs, and times of ours relative to plain implementations."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments.page import Benchmark, Paper

_Show = Callable[[Mapping[str, Any]], str]
_OPERATIONS = "products", "elementwise", "functions"


def _number(name: str, digits: str = ".2f") -> _Show:
    """Shows a number of a row; empty where there is none."""

    def show(row: Mapping[str, Any]) -> str:
        return "" if row.get(name) is None else format(row[name], digits)

    return show


def _word(name: str) -> _Show:
    return lambda row: str(row[name])


PAPER = Paper(
    "Speed",
    "",
    (
        Benchmark(
            "Programs from their start",
            """\
CPU seconds of all threads and seconds by the clock of processes, medians, beside the
CPU seconds that are asked for. The small runs are a forecaster and a language model as
`ssm-jax new` writes them, trained for 20 steps; but for the first step without a
cache, compiled programs are read from the cache. Measured by `python -m benchmarks
--suite=startup` on {machine}.
""",
            "startup.json",
            {
                "program": _word("what"),
                "CPU s": _number("cpu_s"),
                "at most": _number("target", "g"),
                "wall s": _number("wall_s"),
            },
        ),
        Benchmark(
            "Layers beside plain implementations",
            """\
Time of a layer divided by that of the same layer written plainly as its authors' code
evaluates it, with the same parameters; below 1 is faster. Measured by `python -m
benchmarks --suite=peers` on {machine}.
""",
            "peers.json",
            {
                "layer": _word("what"),
                "beside": _word("peer"),
                "steps": _number("length", ","),
                "batch": _word("batch"),
                "width": _word("width"),
                "outputs": _number("forward_ratio"),
                "with gradient": _number("grad_ratio"),
            },
        ),
        Benchmark(
            "The linear recurrence beside a plain scan",
            """\
The same of `linear_recurrence` by `sequential`, with decays of each step, beside a
`jax.lax.scan` of the same equation; with resets at one of a hundred steps. Memory is
that of temporary arrays and results. Measured by `python -m benchmarks --suite=scans`
on {machine}.
""",
            "scans.json",
            {
                "states": lambda row: row["what"] + ", resets" * row["resets"],
                "steps x states": lambda row: f"{row['length']:,} x {row['width']:,}",
                "outputs": _number("forward_ratio"),
                "at most": _number("forward_target"),
                "with gradient": _number("grad_ratio"),
                "memory": _number("forward_bytes_ratio"),
                "memory of the gradient": _number("grad_bytes_ratio"),
            },
        ),
        Benchmark(
            "The selective recurrence beside a plain scan",
            """\
The same of Mamba's recurrence with 16 states for each channel, beside a `jax.lax.scan`
that forms the decay in its step, and what is asked for. Measured by `python -m
benchmarks --suite=selective` on {machine}.
""",
            "selective.json",
            {
                "batch": _word("batch"),
                "steps": _number("length", ","),
                "channels": _word("width"),
                "outputs": _number("forward_ratio"),
                "at most": _number("forward_target"),
                "with gradient": _number("grad_ratio"),
                "at most ": _number("grad_target"),
            },
        ),
        Benchmark(
            "Recurrences of matrices beside plain scans",
            """\
The same of `matrix_recurrence`, with decays of heads, of entries of keys, and with the
delta rule, by the size of a head, beside a scan over the steps that forms the outer
products and beside plain chunks of matrix products. Measured by `python -m benchmarks
--suite=matrix` on {machine}.
""",
            "matrix.json",
            {
                "decays": _word("what"),
                "size": _word("size"),
                "beside": _word("peer"),
                "outputs": _number("value_ratio"),
                "with gradient": _number("grad_ratio"),
                "memory of the gradient, MiB": _number("grad_mib", ".0f"),
                "plain, MiB": _number("grad_peer_mib", ".0f"),
            },
        ),
        Benchmark(
            "Kernels beside the limits of the machine",
            """\
`bound ms` is the time that the bytes of arguments, results and what the backward pass
reads take, each read or written once, or, if it is longer, that of the operations of a
plain form: at the rates of a copy, of a product of matrices, of multiplications and
additions of numbers in a cache and of exponentials, measured in the same run. `ms` is
the time of the kernel, `share` the part that the bound is of it. Measured by `python -m
benchmarks --suite=limits` on {machine}.
""",
            "limits.json",
            {
                "kernel": _word("what"),
                "of": _word("pass"),
                "MB": _number("mb", ",.0f"),
                "M operations": lambda row: format(
                    sum(row[kind] for kind in _OPERATIONS), ",.0f"
                ),
                "bound ms": lambda row: (
                    f"{max(row['copy_ms'], row['compute_ms']):.1f} ({row['bound']})"
                ),
                "ms": _number("ms", ".1f"),
                "share": _number("share"),
            },
        ),
        Benchmark(
            "Training steps",
            """\
Time of a training step of a classifier of 4 layers divided by that of a plain one by
Flax and optax with the same parameters, and by that of the same model without its
recurrence, for which a target is set for Mamba. Measured by `python -m benchmarks
--suite=training_steps` on {machine}.
""",
            "training_steps.json",
            {
                "model": _word("what"),
                "steps": _number("length", ","),
                "batch": _word("batch"),
                "width": _word("width"),
                "of plain": _number("of_plain"),
                "of no recurrence": _number("of_identity"),
                "at most": _number("target", "g"),
            },
        ),
        Benchmark(
            "Text, a token at a time",
            """\
Tokens a second of a loop over all tokens in one program, and of blocks of tokens, by
which `generate` prints while it continues; the ratio of the medians of their times and
its target; and tokens a second with a call for each token. Tokens a second are those of
the fastest timings. The times include a prompt of 50 tokens.
Measured by `python -m benchmarks --suite=decoding` on {machine}.
""",
            "decoding.json",
            {
                "model": _word("what"),
                "texts": _word("texts"),
                "loop": _number("loop_per_s", ",.0f"),
                "blocks": _number("blocks_per_s", ",.0f"),
                "of the loop": _number("of_loop"),
                "at least": _number("target"),
                "calls": _number("tokens_per_s", ",.0f"),
            },
        ),
    ),
)
"""A section for each suite whose times are compared with others."""
