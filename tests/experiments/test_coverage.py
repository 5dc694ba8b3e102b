"""Every table and figure of the papers has results or a reason why it has none."""

import re

import pytest

from experiments import operations, overview, pages, result_tables
from experiments.coverage import command
from experiments.papers import PAPERS
from experiments.records import records
from ssm_jax.cli.summary import summaries
from tests.cli.test_tables import ROW, cells

IN_PAPERS = {
    "dlr": {"Table": range(1, 8), "Figure": range(1, 5)},
    "etsmlp": {"Table": range(1, 6), "Figure": range(1, 4)},
    "fru": {"Table": range(1, 4), "Figure": range(1, 13)},
    "longssm": {"Table": range(1, 3), "Figure": range(1, 11)},
}
"""Numbers of the tables and figures of each paper."""

ROWS = records()
FOUND = summaries(ROWS)
TABLES = [
    pytest.param(table, id=f"{name}-{table.name}")
    for name, paper in PAPERS.items()
    for table in paper.tables
]
each_table = pytest.mark.parametrize("table", TABLES)
each_paper = pytest.mark.parametrize("name", PAPERS)


def numbers(name):
    """The numbers in a name, as 3 and 4 in "Figures 3 and 4"."""
    kind, text = re.fullmatch(r"(Table|Figure|Section)s? (.*)", name).groups()
    if kind == "Section":  # A picture of ours.
        return []
    return [(kind, int(number)) for number in text.split(" and ")]


@each_paper
def test_every_table_and_figure_is_there_once(name):
    found = [each for table in PAPERS[name].tables for each in numbers(table.name)]
    expected = [(kind, n) for kind, of in IN_PAPERS[name].items() for n in of]
    assert sorted(found) == sorted(expected)


@each_table
def test_table_has_all_results_or_a_reason(table):
    run = {each.name for each in table.published(FOUND)}
    assert table.reason or (table.cells and run == set(table.cells))
    assert table.cells or table.programs or table.reason


@each_table
def test_every_reduced_setting_and_reference_has_records(table):
    names = [each.name for each in FOUND]
    for pattern in (*table.reduced, *table.references):
        assert any(re.fullmatch(pattern, name) for name in names), pattern
    for each in filter(table.is_reference, FOUND):
        assert each in table.published(FOUND) + table.smaller(FOUND)


@each_table
def test_published_and_reduced_settings_are_apart(table):
    assert not {each.name for each in table.smaller(FOUND)} & set(table.cells)
    reduced = result_tables.smaller(table.smaller(FOUND), FOUND)
    assert "theirs" not in reduced.partition("\n")[0]


def test_every_record_has_a_trivial_baseline():
    assert all(row["baseline"] for row in ROWS)


@each_paper
def test_overview_has_a_line_each_and_its_links_lead_to_sections(name):
    page = pages.page(name, ROWS)
    _, table = page.split("## Overview")[1].split("\n\n| ", 1)
    lines = cells("| " + table.split("\n\n")[0])[1:]
    assert len(lines) == len(PAPERS[name].tables)
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    links = set(re.findall(r"\]\(#(.*?)\)", page))
    assert links <= {overview.anchor(heading) for heading in headings}
    assert len(headings) == len(set(headings))


def test_results_are_counted_that_are_better_than_the_majority_class():
    baseline = {"name": "majority class", "accuracy": 0.7, "n_examples": 400}
    rows = [
        ROW
        | {"metric": "test accuracy", "baseline": baseline, "value": value}
        | {"experiment": "etsmlp/language", "variant": f"dataset={dataset},size=small"}
        for dataset, value in (("cola", 0.71), ("mrpc", 0.755), ("sst2", 0.8))
    ]
    text = result_tables.smaller(summaries(rows), summaries(rows))
    assert " ".join(text.split("\n\n")[-1].split()) == (
        "Better than the majority class by two standard errors: 2 of 3 results; by "
        "three: 1."
    )


def test_operations_of_all_published_settings_are_counted():
    assert operations.recorded().keys() >= set(operations.all_cells())
    assert overview.gpu_hours(["dlr/atomic:task=shift"]) > 0


def test_command_has_the_data_that_a_run_reads():
    train = "python -m launch.train --config=experiments/"
    imdb, atomic = command("fru/imdb:model=fru"), command("dlr/atomic:task=shift")
    assert imdb == f"{train}fru/imdb.py:model=fru --workdir=RUN --data_dir=DATA"
    assert atomic == f"{train}dlr/atomic.py:task=shift --workdir=RUN"
    assert "--data_dir" not in command("etsmlp/pathfinder")
