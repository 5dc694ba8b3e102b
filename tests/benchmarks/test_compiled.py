"""The records of the programs that compile and run nothing."""

import json

import pytest
from absl import flags

from benchmarks import costs, pallas
from ssm_jax import aot
from tests.cli import programs

ROW = {"what": "a", "pass": "value", "method": "auto", "length": 1}


@pytest.mark.parametrize(
    ("program", "suite"), [(costs, "cost_rows"), (pallas, "kernel_rows")]
)
def test_rows_have_the_commit_from_before_the_first(
    program, suite, monkeypatch, tmp_path
):
    def rows(*arguments):
        monkeypatch.setattr(program, "environment", lambda: {"commit": "after"})
        yield ROW

    monkeypatch.setattr(program, suite, rows)
    monkeypatch.setattr(costs, "convolution_rows", lambda *arguments: ())
    monkeypatch.setattr(costs, "nonlinear_rows", lambda *arguments: ())
    monkeypatch.setattr(program, "environment", lambda: {"commit": "before"})
    monkeypatch.setattr(aot, "prepare", lambda target: None)
    monkeypatch.setattr(aot, "topology_devices", lambda target: [None])
    output = tmp_path / "rows.json"
    kept = {"target": "tpu:v5e:1x1", "jax": "0.10.2"} | ROW  # without a commit
    replaced = kept | {"target": "gpu:h100:1"}
    output.write_text(json.dumps({"commit": "old", "rows": [kept, replaced]}))
    with programs.of_their_own():
        program.define_flags()
        of_program = ["--methods=auto"] if program is pallas else []
        arguments = "--target=gpu:h100:1", f"--output={output}", *of_program
        flags.FLAGS(["program", *arguments])
        program.main(["program"])
    found = json.loads(output.read_text())
    assert found["commit"] == "before"
    first, row = found["rows"]
    assert first == kept
    assert (row["target"], row["commit"]) == ("gpu:h100:1", "before")
