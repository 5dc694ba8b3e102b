"""The benchmark at a size at which only its arithmetic can go wrong."""

import json

import jax.numpy as jnp
import pytest
from absl import flags
from absl.testing import flagsaver

from launch import benchmark


@pytest.fixture(autouse=True)
def parsed():
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


def test_bytes_are_of_temporaries_and_results():
    row, y = benchmark.measure("forward", jnp.sin, jnp.zeros(1000), repeats=1)
    assert y.shape == (1000,)
    assert 4000 <= row["forward_bytes"] < 8000
    assert row["forward_s"] > 0 and row["forward_compile_s"] > 0


def test_both_forms_of_the_kernel_are_exact_and_their_ratio_is_taken():
    usual, ours, ratio = benchmark.modal_kernel_rows(64, d=2, n=3, repeats=1)
    assert usual["error"] < 1e-5 and ours["error"] < 1e-6
    assert ratio["grad_bytes"] == usual["grad_bytes"] / ours["grad_bytes"]


def test_recurrence_has_a_row_for_each_method_and_writes_them(tmp_path, capsys):
    output = tmp_path / "rows.json"
    with flagsaver.flagsaver(
        suite="recurrence", lengths=[5], repeats=1, output=str(output)
    ):
        benchmark.main(["benchmark"])
    found = json.loads(output.read_text())
    assert len(found["rows"]) == 7
    assert all(row["error"] < 1e-6 for row in found["rows"])
    assert {"jax", "numpy"} <= found["versions"].keys()
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["what", "decay", "length"]
    assert [line.split()[0] for line in lines[:2]] == ["sequential", "associative"]
