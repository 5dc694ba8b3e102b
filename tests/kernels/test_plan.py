"""What ``"auto"`` chooses is what the recorded timings and counts give."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay, chosen_method, plan

_RECORDS = Path(__file__).parents[2] / "experiments" / "benchmarks"
_TIMES = "value", "grad"

# Milliseconds by which times of less than one vary from run to run.
_NOISE = 0.2


def _read(name):
    return json.loads((_RECORDS / f"{name}.json").read_text())


def _timings():
    rows = _read("convolutions")["rows"]
    cells = {}
    for row in rows:
        if row["length"] > 1:  # A single step computes the states.
            cell = cells.setdefault((row["what"], row["modes"], row["length"]), {})
            cell[row["method"]] = [row[name] for name in _TIMES]
    return cells


_TIMINGS = _timings()
_ROWS = _read("costs")["rows"]
_LONGEST = max(row["length"] for row in _ROWS)
_TABLES = {
    "time-invariant": plan.TIME_INVARIANT,
    "input-dependent": plan.INPUT_DEPENDENT,
}


def _chosen(what, modes, length):
    if what == "DLR":
        return plan.convolution_method(platform="cpu", length=length, n_modes=modes)
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


@pytest.mark.parametrize("what", _TABLES)
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("method", plan.METHODS)
def test_counts_are_those_of_compiled_programs(what, platform, method):
    [row] = [
        row
        for row in _ROWS
        if row["target"].startswith(platform)
        and (row["what"], row["method"], row["length"]) == (what, method, _LONGEST)
    ]
    counts = _TABLES[what][platform][method]
    assert counts.passes == pytest.approx(row["passes"], rel=0.02)
    assert counts.kernels_per_level == pytest.approx(row["kernels_per_level"], rel=0.05)


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_counts_of_a_gru_are_those_of_compiled_programs(platform):
    *_, steps, term = (
        row
        for row in _ROWS
        if row["target"].startswith(platform) and row["what"].startswith("GRU")
    )
    step, both = plan.STEP[platform], plan.NONLINEAR_TERM[platform]
    assert step.kernels_per_level == pytest.approx(steps["kernels_per_level"], rel=0.02)
    # Of an iteration and of one of its gradient.
    assert both.kernels_per_level == 2 * term["kernels"]
    assert both.passes == pytest.approx(2 * term["passes"], rel=0.1)


@pytest.mark.parametrize("what", _TABLES)
@pytest.mark.parametrize("length", [64, 512, 4096])
def test_predictions_are_in_the_order_that_was_measured_on_a_gpu(what, length):
    measured = {
        row["method"]: row
        for row in _read("roofline")["rows"]
        if (row["what"], row["length"]) == (f"{what}, real", length)
        and row["predicted_ms"] is not None
    }
    assert measured.keys() == set(plan.METHODS)
    ms, predicted = (
        [measured[method][name] for method in plan.METHODS]
        for name in ("ms", "predicted_ms")
    )
    assert np.argsort(ms).tolist() == np.argsort(predicted).tolist()
    np.testing.assert_allclose(np.log(ms), np.log(predicted), atol=np.log(2.1))
    again = 1e3 * plan.seconds(
        "associative",
        "gpu",
        time_invariant=what == "time-invariant",
        length=length,
        n_bytes=4 * 8 * 1024 * length,
    )
    assert again == pytest.approx(measured["associative"]["predicted_ms"])


def test_iterations_of_a_gru_take_the_part_of_its_steps_that_was_measured():
    record = _read("iterations_gpu")
    [row] = [row for row in record["rows"] if row["what"] == "GRU"]
    n_bytes = 4 * record["options"]["batch"] * row["length"] * 32
    options = {"length": row["length"], "n_bytes": n_bytes}
    assert plan.nonlinear_method("newton", platform="gpu", **options) == "associative"
    assert row["iterations_s"] < row["steps_s"]
    # The time of steps is proportional to their number, that of iterations is not.
    options = {"length": row["length"] // 5, "n_bytes": n_bytes // 5}
    assert plan.nonlinear_method("newton", platform="gpu", **options) == "sequential"


def test_time_is_that_of_the_kernels_or_that_of_the_bytes():
    options = {"time_invariant": True, "length": 1024}
    small, large = (
        plan.seconds("associative", "tpu", n_bytes=n_bytes, **options)
        for n_bytes in (0, 2**40)
    )
    device, counts = plan.ACCELERATORS["tpu"], plan.TIME_INVARIANT["tpu"]
    passes, kernels_per_level = counts["associative"]
    assert small == pytest.approx(11 * kernels_per_level * device.seconds_per_kernel)
    assert large - small == pytest.approx(passes * 2**40 / device.bandwidth)


def test_small_arrays_want_few_kernels_and_large_ones_few_bytes():
    a = LogDecay(jnp.zeros(3))
    chosen = [
        chosen_method(a, platform="tpu", length=4096, n_bytes=n_bytes)
        for n_bytes in (2**16, 2**30)
    ]
    assert chosen == ["associative", "chunked"]


@pytest.mark.parametrize("solver", ["newton", "picard"])
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_iterations_pay_for_long_sequences_and_small_batches(platform, solver):
    def chosen(length, rows):
        n_bytes = 4 * length * 256 * rows
        return plan.nonlinear_method(
            solver, platform=platform, length=length, n_bytes=n_bytes
        )

    assert chosen(2, 8) == "sequential"
    assert chosen(4096, 1) != "sequential"
    # The iterations of a large batch read and write more than its steps take.
    assert chosen(64, 2**20) == "sequential"
