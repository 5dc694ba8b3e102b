"""The predicted times by which ``"auto"`` chooses on accelerators."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay, chosen_method, costs

RECORDS = Path(__file__).parents[2] / "experiments" / "benchmarks"


def read(name):
    return json.loads((RECORDS / f"{name}.json").read_text())


ROWS = read("costs")["rows"]
LONGEST = max(row["length"] for row in ROWS)
TABLES = {
    "time-invariant": costs.TIME_INVARIANT,
    "input-dependent": costs.INPUT_DEPENDENT,
}


@pytest.mark.parametrize("what", TABLES)
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("method", costs.METHODS)
def test_counts_are_those_of_compiled_programs(what, platform, method):
    [row] = [
        row
        for row in ROWS
        if row["target"].startswith(platform)
        and (row["what"], row["method"], row["length"]) == (what, method, LONGEST)
    ]
    counts = TABLES[what][platform][method]
    assert counts.passes == pytest.approx(row["passes"], rel=0.02)
    assert counts.kernels_per_level == pytest.approx(row["kernels_per_level"], rel=0.05)


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
def test_counts_of_a_gru_are_those_of_compiled_programs(platform):
    *_, steps, term = (
        row
        for row in ROWS
        if row["target"].startswith(platform) and row["what"].startswith("GRU")
    )
    step, both = costs.STEP[platform], costs.NONLINEAR_TERM[platform]
    assert step.kernels_per_level == pytest.approx(steps["kernels_per_level"], rel=0.02)
    # Of an iteration and of one of its gradient.
    assert both.kernels_per_level == 2 * term["kernels"]
    assert both.passes == pytest.approx(2 * term["passes"], rel=0.1)


@pytest.mark.parametrize("what", TABLES)
@pytest.mark.parametrize("length", [64, 512, 4096])
def test_predictions_are_in_the_order_that_was_measured_on_a_gpu(what, length):
    measured = {
        row["method"]: row
        for row in read("roofline")["rows"]
        if (row["what"], row["length"]) == (f"{what}, real", length)
        and row["predicted_ms"] is not None
    }
    assert measured.keys() == set(costs.METHODS)
    ms, predicted = (
        [measured[method][name] for method in costs.METHODS]
        for name in ("ms", "predicted_ms")
    )
    assert np.argsort(ms).tolist() == np.argsort(predicted).tolist()
    np.testing.assert_allclose(np.log(ms), np.log(predicted), atol=np.log(2.1))
    again = 1e3 * costs.seconds(
        "associative",
        "gpu",
        time_invariant=what == "time-invariant",
        length=length,
        n_bytes=4 * 8 * 1024 * length,
    )
    assert again == pytest.approx(measured["associative"]["predicted_ms"])


def test_iterations_of_a_gru_take_the_part_of_its_steps_that_was_measured():
    record = read("iterations_gpu")
    [row] = [row for row in record["rows"] if row["what"] == "GRU"]
    n_bytes = 4 * record["options"]["batch"] * row["length"] * 32
    options = {"length": row["length"], "n_bytes": n_bytes}
    assert costs.fastest_nonlinear("gpu", "newton", **options) == "associative"
    assert row["iterations_s"] < row["steps_s"]
    # The time of steps is proportional to their number, that of iterations is not.
    options = {"length": row["length"] // 5, "n_bytes": n_bytes // 5}
    assert costs.fastest_nonlinear("gpu", "newton", **options) == "sequential"


def test_time_is_that_of_the_kernels_or_that_of_the_bytes():
    options = {"time_invariant": True, "length": 1024}
    small, large = (
        costs.seconds("associative", "tpu", n_bytes=n_bytes, **options)
        for n_bytes in (0, 2**40)
    )
    device, counts = costs.ACCELERATORS["tpu"], costs.TIME_INVARIANT["tpu"]
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
        return costs.fastest_nonlinear(platform, solver, length=length, n_bytes=n_bytes)

    assert chosen(2, 8) == "sequential"
    assert chosen(4096, 1) != "sequential"
    # The iterations of a large batch read and write more than its steps take.
    assert chosen(64, 2**20) == "sequential"
