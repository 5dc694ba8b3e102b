"""Kernels in Pallas, compiled for TPUs and GPUs: arrays are read or written once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from ssm_jax import aot

ROOT = Path(__file__).parents[2]


def run(target, *command, by_triton=False):
    """Runs a module; skips without the compiler of the target."""
    device = aot.parse_target(target).device
    if missing := aot.missing_packages(device.platform):
        pytest.skip(f"{', '.join(missing)} not installed: extra [compile]")
    if device.platform == "cuda" and by_triton != (jax.__version_info__ < (0, 11)):
        # From JAX 0.11 on Triton asks for a GPU, which may be an abstract one.
        pytest.skip("by Mosaic kernels need JAX 0.11, by Triton an older one")
    # The flags of the tests are those of the CPU, and JAX is used here already.
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    found = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["tpu:v5e:1x1", "gpu:h100:1", "gpu:h200:1"])
def test_kernels_move_the_bytes_of_their_arguments_and_results(target, tmp_path):
    output = tmp_path / "rows.json"
    options = f"--target={target}", "--methods=pallas", f"--output={output}"
    run(target, "benchmarks", "--suite=pallas", *options)
    rows = {
        (row["what"], row["pass"]): row
        for row in json.loads(output.read_text())["rows"]
    }
    for decay in ("input-dependent", "time-invariant"):
        for numbers in ("real", "complex"):
            for evaluation in ("value", "value and gradient"):
                row = rows[f"{decay}, {numbers}", evaluation]
                # The powers of a decay, and parts of its gradient's sum, are added.
                assert row["ratio"] < row["at_most"] + 0.005
    assert rows["selective", "value"]["ratio"] < 1.3
    assert rows["selective", "value and gradient"]["ratio"] < 1.3
    # Of GPUs; None of TPUs.
    assert not any(row["spilled_bytes"] for row in rows.values())


@pytest.mark.nightly
def test_kernel_of_matrices_moves_the_arrays_of_a_layer_once(tmp_path):
    output, target = tmp_path / "rows.json", "tpu:v5e:1x1"
    options = f"--target={target}", "--methods=pallas", f"--output={output}"
    run(target, "benchmarks", "--suite=matrix_costs", *options)
    rows = json.loads(output.read_text())["rows"]
    of_layer = [row for row in rows if row["what"].endswith(", of a layer")]
    assert len(of_layer) == 12
    for row in of_layer:
        # Of four arrays, and with the gradient of twelve and of as many bytes of
        # states; decays of entries are one more, read twice, and their gradient.
        more = row["what"].startswith("entry")
        if row["pass"] == "value":
            assert row["ratio"] < (4.1 + more) / (6 + more)
        else:
            assert row["ratio"] < (13.2 + 3 * more) / (15 + 3 * more)


@pytest.mark.nightly
def test_kernel_of_matrices_for_gpus_moves_little_more_than_it_must(tmp_path):
    output, target = tmp_path / "rows.json", "gpu:h100:1"
    options = f"--target={target}", "--methods=pallas", f"--output={output}"
    run(target, "benchmarks", "--suite=matrix_costs", *options, by_triton=True)
    rows = json.loads(output.read_text())["rows"]
    assert len(rows) == 12
    for row in rows:
        # The value writes no states of chunks. The gradient has twice as many chunks of
        # heads of 128 entries, with decays of entries two and four times as many.
        of_entries = row["what"] == "entry"
        of_gradient = 1.75 if of_entries else 1.4
        assert row["ratio"] < (0.9 if row["pass"] == "value" else of_gradient)
        # Of a thread; that of heads of 128 entries spills most.
        spilled = {"head": 6000, "entry": 5500, "delta": 11000}[row["what"]]
        assert row["spilled_bytes"] < (1200 if row["pass"] == "value" else spilled)


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["tpu:v5e:2x2", "gpu:h100:2"])
def test_kernels_compile_within_shard_map(target):
    printed = run(target, "tests.aot.sharded_kernels", target)
    # The gradient of what all devices share is one sum.
    sums = "['all-reduce']"
    programs = ["of_decay", "of_params"]
    if target.startswith("tpu"):
        programs.append("of_rate")
    assert printed.splitlines() == [f"{name} {sums}" for name in programs]
