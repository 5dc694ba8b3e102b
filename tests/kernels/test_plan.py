"""What ``"auto"`` chooses for convolutions on CPUs is what recorded timings give."""

import json
from pathlib import Path

import pytest

from ssm_jax.kernels import plan

_RECORDS = Path(__file__).parents[2] / "experiments" / "benchmarks"
_TIMES = "value", "grad"

# Milliseconds by which times of less than one vary from run to run.
_NOISE = 0.2


def _timings():
    rows = json.loads((_RECORDS / "convolutions.json").read_text())["rows"]
    cells = {}
    for row in rows:
        if row["length"] > 1:  # A single step computes the states.
            cell = cells.setdefault((row["what"], row["modes"], row["length"]), {})
            cell[row["method"]] = [row[name] for name in _TIMES]
    return cells


_TIMINGS = _timings()


def _chosen(what, modes, length):
    if what == "DLR":
        return plan.convolution_method("cpu", length=length, n_modes=modes)
    return {"S4": "chunked", "SGConv": plan.finite_convolution_method(length)}[what]


@pytest.mark.parametrize("cell", _TIMINGS, ids=str)
def test_choice_takes_at_most_twice_the_time_of_the_fastest(cell):
    times = _TIMINGS[cell]
    chosen = times[_chosen(*cell)]
    for index, name in enumerate(_TIMES):
        fastest = min(measured[index] for measured in times.values())
        assert chosen[index] <= 2 * fastest + _NOISE, (name, times)


@pytest.mark.parametrize("cell", _TIMINGS, ids=str)
def test_choice_is_causal_in_rounding_where_it_costs_little(cell):
    times = _TIMINGS[cell]
    # Up to 1.5 times as much is little; around that, either method may be chosen.
    cheap = [
        method
        for method, measured in times.items()
        if method != "fft"
        and all(a <= 1.4 * b for a, b in zip(measured, times["fft"], strict=True))
    ]
    if cheap:
        assert _chosen(*cell) != "fft", times
