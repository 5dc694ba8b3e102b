"""The table of compiled experiments."""

import json
import subprocess
from pathlib import Path

import pytest
from absl import flags

from benchmarks import compilation
from ssm_jax import aot
from tests.cli import programs

STEP = {
    "name": "train",
    "seconds": 12.3,
    "cpu_seconds": 20.0,
    "memory_bytes": 3 * 2**20,
    "temp_bytes": 2**20,
    "out_of_memory": None,
    "traffic": {"collectives": [{"kind": "all-reduce", "count": 2, "bytes": 2**20}]},
}
RECORD = {
    "parameters": 1234,
    "batch_size": 16,
    "device_memory_bytes": 2**30,
    "quick": False,
    "programs": [STEP, STEP],
}


@pytest.mark.full
def test_page_is_that_of_the_records():
    records = json.loads(compilation.RECORDS.read_text())
    assert compilation.PAGE.read_text() == compilation.page(records)


def test_table_says_what_was_compiled_and_what_failed():
    cell = {"experiment": "a/b", "target": "gpu:h100:8", "batch_size_of_config": 12}
    quick = RECORD | cell | {"quick": True}
    text = compilation.table([RECORD | cell, cell | {"error": "no"}, quick])
    _, _, first, second, third = text.strip().splitlines()
    cells = [word.strip() for word in first.strip("|").split("|")]
    assert cells[2:7] == ["1,234", "16+", "12", "20", "3.0"]
    assert cells[7:10] == ["yes", "1.0", "2 all-reduce"]
    assert " no " in second
    assert "| 12*" in third


def test_cell_with_a_record_is_not_compiled_again(monkeypatch, tmp_path, capsys):
    calls, n_compiled = [], []

    def run(command, **options):
        calls.append(command)
        output = next(word for word in command if word.startswith("--json="))
        Path(output.removeprefix("--json=")).write_text(json.dumps(RECORD))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    records, page = tmp_path / "cells.json", tmp_path / "page.md"
    names = "dlr/digits longssm/text:model=gru,length=64,state_init=zero"
    arguments = f"--records={records}", f"--page={page}", f"--experiments={names}"
    for further in ((), (), ("--again", "--quick")):
        calls.clear()
        with programs.fresh_flags():
            compilation.define_flags()
            flags.FLAGS(["compilation", *arguments, *further])
            compilation.main(["compilation"])
        n_compiled.append(len(calls))
    assert n_compiled == [4, 0, 4]
    assert "--config.training.batch_size=64" in calls[0]
    assert "--config=experiments/longssm/text.py:model=gru" in calls[1][3]
    assert all("--quick" in call for call in calls)
    assert page.read_text() == compilation.page(json.loads(records.read_text()))
    assert page.read_text() in capsys.readouterr().out


@pytest.mark.full
def test_a_cell_that_fails_has_the_error_in_its_record(monkeypatch):
    def run(command, **options):
        return subprocess.CompletedProcess(command, 2, "", "a\nerror: of mine\n")

    monkeypatch.setattr(subprocess, "run", run)
    target = aot.parse_target("gpu:h100:8")
    record = compilation.compile_cell("dlr/digits", target, 1.0)
    assert record["error"] == "error: of mine"
