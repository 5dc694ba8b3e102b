"""The predicted times by which ``"auto"`` chooses on accelerators."""

import json
from pathlib import Path

import jax.numpy as jnp
import pytest

from ssm_jax.kernels import LogDecay, chosen_method, costs

RECORD = Path(__file__).parents[2] / "experiments" / "benchmarks" / "costs.json"
ROWS = json.loads(RECORD.read_text())["rows"]
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
    steps, term = (
        row
        for row in ROWS
        if row["target"].startswith(platform) and row["what"].startswith("GRU")
    )
    step, both = costs.STEP[platform], costs.NONLINEAR_TERM[platform]
    assert step.kernels_per_level == pytest.approx(steps["kernels_per_level"], rel=0.02)
    # Of an iteration and of one of its gradient.
    assert both.kernels_per_level == 2 * term["kernels"]
    assert both.passes == pytest.approx(2 * term["passes"], rel=0.1)


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
