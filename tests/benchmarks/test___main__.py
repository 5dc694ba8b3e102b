"""The program of the benchmarks: its flags, and what it writes."""

import json

import jax
import pytest
from absl import flags

import benchmarks.__main__ as benchmark
from ssm_jax.cli.compile_cache import define_compile_cache
from tests.bad_inputs import refuses
from tests.cli import programs

MACHINE = {"commit": "abc", "device": "cpu", "n_devices": 1, "cpus": 2}


def run(*arguments):
    """Runs the program in this process."""
    values = flags.FLAGS
    with programs.fresh_flags():
        define_compile_cache()
        benchmark.define_flags()
        values(["benchmarks", *arguments])
        benchmark.main(["benchmarks"])


def suite(monkeypatch, rows, sentence="What it shows."):
    """Replaces a suite without a figure, and the description of the machine."""
    monkeypatch.setitem(
        benchmark.SUITES, "powers", benchmark.Suite(rows, (7,), sentence)
    )
    monkeypatch.setattr(benchmark, "_call_in_new_process", lambda run: dict(MACHINE))


@pytest.mark.nightly
def test_rows_are_written_with_the_machine_and_printed(tmp_path, capsys):
    output = tmp_path / "rows.json"
    run("--suite=recurrence", "--lengths=5", "--repeats=1", f"--output={output}")
    record = json.loads(output.read_text())
    assert len(record["rows"]) == 7
    assert {"jax", "numpy"} <= record["versions"].keys()
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["what", "decay", "length"]
    assert [line.split()[0] for line in lines[:2]] == ["sequential", "associative"]


def test_rows_may_lack_what_others_have():
    lines = benchmark.table([{"a": 1}, {"a": 2, "b": 0.5}]).splitlines()
    assert [line.split() for line in lines] == [["a", "b"], ["1"], ["2", "0.5"]]


def test_page_has_the_sentence_the_command_and_the_rows(monkeypatch, tmp_path):
    suite(monkeypatch, lambda length, *, repeats: [{"what": "one", "s": 0.25}])
    run("--suite=powers", f"--markdown={tmp_path / 'page.md'}")
    assert (
        (tmp_path / "page.md").read_text()
        == """\
# Benchmark: powers

What it shows.

Measured by `python -m benchmarks --suite=powers` on 1 x cpu (2 cores), commit abc.

| what | s    |
|------|------|
| one  | 0.25 |
"""
    )


def test_rows_of_other_programs_are_kept(monkeypatch, tmp_path):
    def rows(length, *, target):
        yield {"what": "a", "method": "auto", "length": length, "passes": 2}

    suite(monkeypatch, rows)
    output = tmp_path / "rows.json"
    old_row = {"target": "gpu:h100:1", "what": "a", "method": "auto", "length": 7}
    other_row = old_row | {"target": "tpu:v5e:1x1", "jax": "0.10.2"}  # without a commit
    output.write_text(json.dumps({"commit": "old", "rows": [other_row, old_row]}))
    run("--suite=powers", "--target=gpu:h100:1", f"--output={output}")
    record = json.loads(output.read_text())
    assert record["commit"] == "abc" and "repeats" not in record
    first, row = record["rows"]
    assert first == other_row
    assert row == old_row | {"commit": "abc", "jax": jax.__version__, "passes": 2}


@pytest.mark.parametrize("flag", ["--target=gpu:h100:1", "--methods=auto"])
def test_target_of_a_suite_that_runs_is_refused(flag):
    name, _, value = flag.removeprefix("--").partition("=")
    with pytest.raises(ValueError, match=f"`--{name}` must be left out .*{value}"):
        run("--suite=recurrence", flag)


def test_suite_that_compiles_needs_a_target():
    with pytest.raises(ValueError, match="`--target` must be given"):
        run("--suite=costs")


def test_figure_of_another_suite_is_refused():
    with pytest.raises(ValueError, match="`--figure` must be left out .* got a.png"):
        run("--suite=recurrence", "--figure=a.png")


@pytest.mark.parametrize("option", ["draws=3", "n=many", "n", "n=0", "repeats=2"])
def test_option_that_a_suite_does_not_have_is_refused(option):
    with refuses("--options", option, rule="positive integer and one of the names n,"):
        run("--suite=recurrence", f"--options={option}")


def test_rows_before_an_error_are_written(monkeypatch, tmp_path, capsys):
    def rows(length, *, repeats):
        yield {"what": "one", "length": length, "seconds": 0.5}
        raise RuntimeError("the second fails")

    suite(monkeypatch, rows)
    output = tmp_path / "rows.json"
    with pytest.raises(RuntimeError, match="the second fails"):
        run("--suite=powers", "--repeats=3", f"--output={output}")
    assert json.loads(output.read_text()) == MACHINE | {
        "suite": "powers",
        "repeats": 3,
        "rows": [{"what": "one", "length": 7, "seconds": 0.5}],
    }
    assert "what one, length 7, seconds 0.5" in capsys.readouterr().err


def test_commit_is_that_before_the_measurement(monkeypatch, tmp_path):
    calls = []

    def rows(length, *, repeats):
        calls.append("rows")
        yield {"what": "one"}

    def environment(run):
        calls.append(run.__name__)
        return {}

    suite(monkeypatch, rows)
    monkeypatch.setattr(benchmark, "_call_in_new_process", environment)
    run("--suite=powers")
    assert calls == ["environment", "rows"]


def test_lengths_are_refused_before_the_first_is_measured():
    with refuses("lengths", 4096, rule="more than 4096"):
        run("--suite=lengths", "--lengths=8192", "--lengths=4096")
