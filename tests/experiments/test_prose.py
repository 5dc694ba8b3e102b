"""Figures in prose are those of the records, and none stands there by hand."""

from pathlib import Path

import pytest

from experiments import markers
from tests.experiments import prose_rule as figures

ROOT = Path(__file__).parents[2]
PROSE = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "papers").glob("*.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "experiments").rglob("*.py")),
    *sorted((ROOT / "ssm_jax" / "cli").glob("*.py")),
    *sorted((ROOT / "benchmarks").glob("*.py")),
]
each_file = pytest.mark.parametrize(
    "path", PROSE, ids=[str(path.relative_to(ROOT)) for path in PROSE]
)


def prose_of(path):
    text = path.read_text()
    return figures.docstrings(text) if path.suffix == ".py" else [text]


@each_file
def test_no_result_figure_stands_unmarked(path):
    assert [f for text in prose_of(path) for f in figures.unmarked(text)] == []


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
    "after a block": "<!-- results:a -->\n\n0.5\n<!-- /results -->\n\nAccuracy 0.5.",
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


BLOCK = "<!-- results:a -->\n\n{}\n<!-- /results -->\n"


def test_a_block_is_written_in_its_place():
    text = f"before\n{BLOCK.format('old')}after\n"
    new = markers.with_results(text, {"a": "| new |\n"})
    assert new == f"before\n{BLOCK.format('| new |')}after\n"
    assert markers.with_results(new, {"a": "| new |\n"}) == new


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BLOCK.replace("results:a", "results:b"), "must be one of a, got b"),
        ("<!-- results:a -->\n", "got 1 beginnings and 0 ends"),
        ("<!-- /results -->\n", "got 0 beginnings and 1 ends"),
    ],
)
def test_a_wrong_marker_is_an_error(text, message):
    with pytest.raises(ValueError, match=message):
        markers.with_results(text, {"a": "new"})
