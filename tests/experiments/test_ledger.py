"""The pages of results are what the ledger writes from the records."""

import functools
import re

import pytest

from experiments import ledger
from experiments.page import Numbers
from experiments.papers import HEADLINES, PAPERS
from experiments.records import records
from tests.cli.test_tables import cells

PAGES = (
    ledger.README,
    *(ledger.RESULTS / f"{name}.md" for name in ledger.PAGES),
    *ledger.PROSE.values(),
)
IN_PAPERS = {
    "dlr": {"Table": range(1, 8), "Figure": range(1, 5)},
    "etsmlp": {"Table": range(1, 6), "Figure": range(1, 4)},
    "fru": {"Table": range(1, 4), "Figure": range(1, 13)},
    "longssm": {"Table": range(1, 3), "Figure": range(1, 11)},
}
"""Numbers of the tables and figures of each paper."""

rows = functools.cache(records)
written = functools.cache(lambda: ledger.texts(rows()))


def test_pages_are_those_that_the_ledger_writes():
    assert written().keys() == set(PAGES)


@pytest.mark.parametrize(
    "path", PAGES, ids=lambda path: f"{path.parent.name}.{path.stem}"
)
def test_page_is_what_the_ledger_writes(path):
    assert path.read_text() == written()[path], "run `python -m experiments.ledger`"


@pytest.mark.parametrize("name", PAPERS)
def test_prose_says_something_of_every_table_and_figure_once(name):
    prose = ledger.PROSE[name].read_text().split("## Table by table")[1]
    entries = [
        (kind, int(number))
        for kind, numbers in re.findall(r"^- \*\*(\w+?)s? ([\d and]+)\*\*", prose, re.M)
        for number in numbers.split(" and ")
    ]
    expected = [(kind, n) for kind, numbers in IN_PAPERS[name].items() for n in numbers]
    assert sorted(entries) == sorted(expected)


def test_headlines_are_records_that_are_not_stale():
    lines = cells(ledger.headlines(rows()))[1:]
    assert [line[0] for line in lines] == [f"`{name}`" for name in HEADLINES]
    assert not any("stale" in line[2] for line in lines)


def test_numbers_are_written_between_their_markers():
    field = "mean dlr/digits"
    text = f"before <!-- {field} -->old<!-- / --> after <!-- a comment -->"
    numbers = Numbers(rows())
    prose = ledger.fill_numbers(text, numbers)
    assert prose == text.replace("old", numbers[field])
    assert ledger.fill_numbers(prose, numbers) == prose


TABLE = "<!-- results:a -->\n\n{}\n<!-- /results -->\n"


def test_a_table_is_written_in_its_place():
    text = f"before\n{TABLE.format('old')}after\n"
    new = ledger.fill_tables(text, {"a": "| new |\n"})
    assert new == f"before\n{TABLE.format('| new |')}after\n"
    assert ledger.fill_tables(new, {"a": "| new |\n"}) == new


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE.replace("results:a", "results:b"), "must be one of a, got b"),
        ("<!-- results:a -->\n", "got 1 markers"),
        ("<!-- /results -->\n", "got 1 markers"),
    ],
)
def test_markers_that_do_not_match_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        ledger.fill_tables(text, {"a": ""})
