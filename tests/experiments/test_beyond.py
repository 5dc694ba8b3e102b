"""The page of what goes beyond the papers, and the section of training by length."""

import json

import pytest

from experiments import beyond, throughput
from experiments.fru import parallel
from tests.cli.test_tables import ROW, cells

MACHINE = {
    "device": "gpu", "n_devices": 1, "cpus": 4, "commit": "abc", "repeats": 3
}  # fmt: skip


def table_of(text):
    """The cells of the first table of a section."""
    return cells(text[text.index("\n| ") + 1 :].split("\n\n")[0])


def test_powers_are_compared_with_the_exact_ones_at_the_longest():
    rows = [
        {"what": what, "length": n, "states": 8, "error": error * n, "left": error}
        for n in (64, 16)
        for what, error in (("exact", 1e-6), ("exponentials", 4e-6), ("products", 2e-6))
    ]
    text = beyond.powers(MACHINE | {"rows": rows})
    lines = table_of(text)
    assert lines[1] == ["16", "exact", "1.6e-05", "8", "1.0e-06"]
    assert lines[-1] == ["64", "products", "1.3e-04", "8", "2.0e-06"]
    sentence = "At 64 steps the error of the others in float32 is that of `exact` times"
    assert f"{sentence} 4 (exponentials) and 2 (products)." in " ".join(text.split())


ON_GPU = MACHINE | {
    "options": {"batch": 8, "frequencies": 5},
    "rows": [
        {"what": "GRU", "length": 32, "iterations": 9}
        | {"iterations_s": 0.002, "steps_s": 0.008}
    ],
}


def test_iterations_on_a_gpu_are_compared_with_its_steps():
    row = {
        "what": "FRU",
        "length": 16,
        "iterations": 5,
        "converged": True,
        "error": 0.0,
    }
    text = parallel.section(MACHINE | {"rows": [row]}, ON_GPU)
    _, timed = text.split("--options=batch=8,frequencies=5")
    assert table_of(timed)[1:] == [["GRU", "9", "2.0", "8.0", "0.25"]]


def test_iterations_that_do_not_converge_are_not_counted():
    rows = [
        {"what": "FRU", "length": n, "iterations": k, "converged": k < 9, "error": 0.0}
        for n, k in ((64, 9), (16, 5), (32, 7))
    ]
    text = parallel.section(MACHINE | {"rows": rows}, ON_GPU)
    assert [line[1] for line in table_of(text)[1:]] == ["16", "32", "64"]
    counts = "5 iterations at 16 steps and 7 at 32; not at every length."
    assert f"- FRU: {counts}\n" in text


def run(model, value, **fields):
    variant = f"model={model},length=16,state_init=carry,rows=32,size=tiny"
    row = {"experiment": "longssm/text", "variant": variant, "value": value}
    return ROW | row | {"metric": "test perplexity", "lengths": []} | fields


def test_ces_is_compared_with_each_other_recurrence():
    rows = [run("ets", 8.0), run("ets", 8.1, seed=1)]
    rows += [run("gru", 6.0), run("gru", 6.1, seed=1), run("dlr", 9.0)]
    assert all(map(beyond.is_carried, rows))
    text = beyond.language(rows)
    lines = cells(text[text.index("| CES") :].split("\n\n")[0])
    assert [line[2].partition(":")[0] for line in lines[1:]] == ["dlr", "gru"]
    assert [line[-1] for line in lines[1:]] == ["unknown", "above"]
    assert "of 2 perplexities" in text and "1 above, 1 without a standard error" in text


def test_other_sizes_are_not_on_the_page():
    variant = "model=s5,length=16,state_init=carry,rows=32,size=small"
    assert not beyond.is_carried(run("gru", 6.0) | {"variant": variant})


def test_training_is_relative_to_the_transformer_of_the_same_length():
    rows = [
        {"what": what, "length": n, "parameters": 1e6}
        | {"tokens_a_second": 10.0 * factor, "step_bytes": 2**20 * n / factor}
        for n, fast in ((64, 0.5), (128, 4.0))
        for what, factor in (("ETSMLP", fast), ("Transformer", 1.0))
    ]
    text = throughput.section(MACHINE | {"rows": rows})
    lines = table_of(text)
    assert lines[1] == ["64", "ETSMLP", "5", "0.50", "128", "2.00"]
    assert lines[3] == ["128", "ETSMLP", "40", "4.00", "32", "0.25"]
    (conclusion,) = [line for line in text.splitlines() if line.startswith("- ")]
    assert conclusion == (
        "- ETSMLP: at least 1.5 times as fast as the Transformer at 128 steps, at "
        "least 5% less memory at 128."
    )
    assert text.startswith(f"## {throughput.TITLE}\n")


@pytest.mark.parametrize(
    ("path", "suite"),
    [
        (beyond.POWERS, "powers"),
        (parallel.RECORD, "iterations"),
        (parallel.RECORD_OF_GPU, "iterations"),
    ],
)
def test_records_are_those_that_the_page_reads(path, suite):
    assert json.loads(path.read_text())["suite"] == suite
