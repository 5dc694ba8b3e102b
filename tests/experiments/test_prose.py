"""Figures in prose are those of the records, and none stands there by hand."""

import re
from pathlib import Path

import pytest

from experiments import markers as prose
from experiments.records import RESULTS, records
from tests.cli.test_tables import ROW
from tests.experiments import prose_rule as figures

ROOT = Path(__file__).parents[2]
PROSE = [
    *prose.files(ROOT),
    *sorted((ROOT / "ssm_jax" / "cli").glob("*.py")),
    *sorted((ROOT / "benchmarks").glob("*.py")),
]
each_file = pytest.mark.parametrize(
    "path", PROSE, ids=[str(path.relative_to(ROOT)) for path in PROSE]
)


def prose_of(path):
    text = path.read_text()
    return figures.docstrings(text) if path.suffix == ".py" else [text]


def test_blocks_say_what_the_records_say():
    rows, n_blocks = records(), 0
    for path in prose.files(ROOT):
        text = path.read_text()
        assert text == prose.with_results(text, rows), path
        n_blocks += len(prose.BLOCK.findall(text))
    assert n_blocks > 5


@each_file
def test_no_result_figure_stands_unmarked(path):
    assert [f for text in prose_of(path) for f in figures.unmarked(text)] == []


def test_no_result_figure_stands_unmarked_beside_the_tables_by_length():
    page = (RESULTS / "README.md").read_text()  # generated whole
    text = re.sub(r"^\|.*\n", "", page, flags=re.MULTILINE)
    # What is stated there as a confidence is no result.
    assert figures.unmarked(text.replace("95 %", "")) == []


UNMARKED = {
    "percent": "It misses 14.8 % of the curve.",
    "percent word": "Accuracy is 3 percent better.",
    "points": "The ablations spread 1.1 points.",
    "times": "The FRU is 4.5 times below the LSTM.",
    "seconds": "A step takes 12 s.",
    "accuracy": "The test accuracy\nis 0.62.",
    "exponent": "Its error is 1e-4 of the memory.",
    "perplexity": "Perplexity falls to 5.3 here.",
    "table": "====  =====\nname  R2\n====  =====\ndemo  0.99\n====  =====",
    "markdown table": "| name | loss |\n|---|---|\n| a | .25 |",
    "after a block": ".. results: a/b\n\n0.5\n\n.. end of results\n\nAccuracy 0.5.",
}
ALLOWED = {
    "a setting": "The learning rate falls by 0.7 every 1,000 steps.",
    "a size": "L = 1024, 64 channels, 800 steps; the error falls.",
    "of a paper": "Theorem 4.4: three decays miss (paper: 14.8 %) of it.",
    "a section": "The loss need not rise (section 4.1).",
    "a literal": "``--rate=0.7`` has the lower loss.",
    "a command": "    python -m launch.train --error=0.7 \\\n        --loss=0.25\n",
    "marked": "Accuracy:\n\n<!-- results:table -->\n\n0.5 %\n<!-- /results -->\n",
    "a doctest": "    >>> accuracy\n    0.5\n",
}


@pytest.mark.parametrize("name", UNMARKED)
def test_the_rule_finds_a_result_figure(name):
    assert len(figures.unmarked(UNMARKED[name])) == 1


@pytest.mark.parametrize("name", ALLOWED)
def test_the_rule_leaves_other_numbers(name):
    assert figures.unmarked(ALLOWED[name]) == []


def test_a_block_is_generated_in_its_place():
    text = "before\n.. results: longssm/text\n\nold\n.. end of results\nafter\n"
    table = prose.content("longssm/text", [ROW, ROW | {"experiment": "fru/imdb"}])
    new = prose.with_results(text, [ROW])
    begin, end = ".. results: longssm/text\n\n", "\n.. end of results\n"
    assert new == f"before\n{begin}{table}{end}after\n"
    assert prose.with_results(new, [ROW]) == new
    assert "s5       4.0000 (2.0000 bits)  1" in table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- results:nothing -->\n<!-- /results -->\n", "block `nothing`, got none"),
        ("<!-- results:table -->\n", "got 1 beginnings and 0 ends"),
        (".. results: a/b\n", "got 1 beginnings and 0 ends"),
        (".. end of results\n", "got 0 beginnings and 1 ends"),
    ],
)
def test_a_wrong_marker_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        prose.with_results(text, [ROW])


def mixture(variant, missed, **fields):
    row = {"experiment": "fru/mixture", "variant": variant, "metric": "test r2"}
    return ROW | row | {"value": 1 - missed} | fields


def test_units_are_set_side_by_side_and_against_the_paper():
    rows = [
        mixture("poly5+fru", 1e-4),
        mixture("poly5+lstm", 4.5e-4),
        mixture("poly5+fru+small", 1e-4),
        mixture("poly5+lstm+small", 2e-4, stale="Of other data."),
        mixture("sines+fru+small", 1e-4, stale="Of other data."),
        mixture("sines+lstm+small", 4e-4, stale="Of other data."),
        mixture("sines+fru", 1e-6),
        mixture("sines+lstm", 5e-4),
    ]
    lines = prose.content("fru/mixture:units", rows).splitlines()
    assert [line.split() for line in lines[3:7]] == [
        ["poly5", "4.5e-04", "1.0e-04", "4.5", "[1]"],
        ["sines", "5.0e-04", "1.0e-06", "500.0"],
        ["poly5+small", "2.0e-04*", "1.0e-04", "[2]"],
        ["sines+small", "4.0e-04*", "1.0e-04*", "4.0", "[2]"],
    ]
    notes = " ".join(" ".join(lines[8:]).split())
    assert "[1] the FRU is 4.5 times below the LSTM, where the paper says" in notes
    assert "[2] `*` is stale: Of other data." in notes


def test_ablations_are_told_from_one_another_by_their_error():
    baseline = {"name": "majority class", "accuracy": 0.1, "n_examples": 2000}
    of = ROW | {
        "experiment": "etsmlp/listops", "metric": "test accuracy", "baseline": baseline
    }  # fmt: skip
    close = [of | {"variant": v, "value": x} for v, x in (("", 0.62), ("real", 0.61))]
    apart = [*close, of | {"variant": "no_beta", "value": 0.4}]
    said = prose.content("etsmlp/listops:spread", close)
    assert " ".join(said.split()) == (
        "2 variants of 10 steps spread 1.0 points of accuracy, where the standard "
        "error of each is 1.1 points: their order is within the error."
    )
    said = prose.content("etsmlp/listops:spread", apart)
    assert "best and worst differ" in " ".join(said.split())
