"""The program of the benchmarks: its flags, and what it writes."""

import json

import pytest
from absl import flags

import benchmarks.__main__ as benchmark
from benchmarks import finite, language
from tests.bad_inputs import refuses
from tests.cli import programs


def run(*arguments):
    """Runs the program in this process."""
    values = flags.FLAGS
    with programs.of_their_own():
        benchmark.define_flags()
        values(["benchmarks", *arguments])
        benchmark.main(["benchmarks"])


@pytest.mark.full
def test_recurrence_has_a_row_for_each_method_and_writes_them(tmp_path, capsys):
    output = tmp_path / "rows.json"
    run("--suite=recurrence", "--lengths=5", "--repeats=1", f"--output={output}")
    found = json.loads(output.read_text())
    assert len(found["rows"]) == 7
    assert all(row["error"] < 1e-6 for row in found["rows"])
    assert {"jax", "numpy"} <= found["versions"].keys()
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["what", "decay", "length"]
    assert [line.split()[0] for line in lines[:2]] == ["sequential", "associative"]


@pytest.mark.full
def test_draws_that_are_not_finite_are_counted(monkeypatch, tmp_path):
    unit = finite.RECURRENCES["sru"]
    monkeypatch.setattr(finite, "RECURRENCES", {"sru": unit})
    monkeypatch.setattr(finite, "SCALES", (0.1, 1e3))
    output = tmp_path / "rows.json"
    run("--suite=finite", "--lengths=40", "--options=draws=9", f"--output={output}")
    few, many = json.loads(output.read_text())["rows"]
    assert (few["values"], few["gradients"], few["within"]) == (0, 0, 9)
    assert many["values"] > 0 and many["within"] == many["bad_within"] == 0
    assert "W_phi" in many["where"]


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

    monkeypatch.setitem(benchmark.SUITES, "powers", (rows, (7,)))
    monkeypatch.setattr(language, "in_a_fresh_process", lambda run: {"commit": "abc"})
    output = tmp_path / "rows.json"
    with pytest.raises(RuntimeError, match="the second fails"):
        run("--suite=powers", "--repeats=3", f"--output={output}")
    assert json.loads(output.read_text()) == {
        "commit": "abc",
        "suite": "powers",
        "repeats": 3,
        "rows": [{"what": "one", "length": 7, "seconds": 0.5}],
    }
    assert "what one, length 7, seconds 0.5" in capsys.readouterr().err


def test_commit_is_that_before_the_measurement(monkeypatch, tmp_path):
    called = []

    def rows(length, *, repeats):
        called.append("rows")
        yield {"what": "one"}

    def environment(run):
        called.append(run.__name__)
        return {}

    monkeypatch.setitem(benchmark.SUITES, "powers", (rows, (7,)))
    monkeypatch.setattr(language, "in_a_fresh_process", environment)
    run("--suite=powers")
    assert called == ["environment", "rows"]


def test_lengths_are_refused_before_the_first_is_measured():
    with refuses("lengths", 4096, rule="more than 4096"):
        run("--suite=lengths", "--lengths=8192", "--lengths=4096")
    with refuses("lengths", 784, rule="of 1024, 16384, 2000, 8192"):
        run("--suite=generators", "--lengths=1024", "--lengths=784")
