"""The pages of results are what the ledger writes from the records."""

import importlib
from pathlib import Path

import pytest

from experiments import ledger, pages, single_tap
from experiments.papers import HEADLINES, PAPERS
from experiments.records import config_named, records
from tests.cli.test_tables import ROW, cells

ROWS = records()
FILES = ledger.texts(ROWS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_page_is_what_the_ledger_writes(path):
    assert path.read_text() == FILES[path], "run `python -m experiments.ledger`"


@pytest.mark.parametrize("name", PAPERS)
def test_cells_are_experiments_and_all_published_figures_are_cells(name):
    found = {cell for table in PAPERS[name].tables for cell in table.cells}
    for cell in found:
        named = config_named(cell)
        assert f"{named.experiment}:{named.variant}".rstrip(":") == cell
    for file in sorted((Path(pages.__file__).parent / name).glob("*.py")):
        module = importlib.import_module(f"experiments.{name}.{file.stem}")
        figures = getattr(module, "PAPER", {}) if file.stem != "tables" else {}
        for variant, figure in figures.items():
            cell = f"{name}/{file.stem}:{variant}".rstrip(":")
            assert cell in found and config_named(cell).paper == figure


def test_headlines_are_records_that_are_not_stale():
    assert len(HEADLINES) == 6
    lines = cells(pages.headlines(ROWS))[1:]
    assert [line[0] for line in lines] == [f"`{name}`" for name in HEADLINES]
    assert not any("stale" in line[2] for line in lines)


def zip_cells(table, line):
    """The cells of a line of a table, by the names of the columns."""
    lines = cells(table)
    return dict(zip(lines[0], lines[line], strict=True))


SHIFT = ROW | {
    "experiment": "dlr/atomic", "variant": "task=shift", "metric": "test r2"
}  # fmt: skip


def test_page_has_ours_beside_theirs_and_what_was_not_run():
    rows = [SHIFT | {"value": 0.5}, SHIFT | {"value": 0.7, "seed": 1}]
    rows.append(SHIFT | {"variant": "task=shift,size=small", "value": 0.8})
    rows.append(SHIFT | {"variant": "task=shift,size=demo", "value": 0.9})
    page = pages.page("dlr", rows)
    published, said, reduced = section(page, "Table 1: atomic").split("\n\n")[:3]
    shift, cumsum = zip_cells(published, 1), zip_cells(published, 2)
    assert shift["experiment"] == "dlr/atomic:task=shift"
    assert (shift["ours"], shift["theirs"]) == ("0.6000 ± 0.1414", "1")
    assert (shift["seeds"], shift["hours"]) == ("2", "0.00067")
    assert (shift["device"], shift["commit"]) == ("1 x cpu (2 cores)", "abc")
    assert shift["command"] == (
        "`python -m launch.train --config=experiments/dlr/atomic.py:task=shift "
        "--workdir=RUN`"
    )
    assert (cumsum["ours"], cumsum["theirs"], cumsum["seeds"]) == ("not run", "1", "")
    assert "not comparable" in " ".join(said.split())
    small = zip_cells(reduced, 1)
    assert "theirs" not in small and small["ours"] == "0.8000"
    demo = zip_cells(section(page, "Further settings").split("\n\n")[1], 1)
    assert demo["experiment"] == "dlr/atomic:task=shift,size=demo"
    assert "theirs" not in demo


def test_stale_results_say_why():
    page = pages.page("dlr", [SHIFT | {"value": 0.5, "stale": "Of other data."}])
    assert "| 0.5000 (stale) |" in page
    assert "- [1] stale: Of other data.\n" in page


def test_results_in_bfloat16_are_beside_those_in_float32():
    values = {"": (0.5, 0.7), ",dtype=bfloat16": (0.8, 0.9)}
    rows = [
        SHIFT | {"variant": f"task=shift{dtype}", "value": value, "seed": seed}
        for dtype, of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
    ]
    text = section(pages.page("dlr", rows), "bfloat16 beside float32")
    ((_, *line),) = cells(text.split("\n\n")[1])[1:]
    results = ["0.6000 ± 0.1414", "0.8500 ± 0.0707"]
    assert line == ["test r2", *results, "0.2500", "0.1414", "2, 2", "no"]
    assert "bfloat16 beside" not in pages.page("dlr", rows[:2])


def test_single_taps_are_a_line_per_length():
    row = {
        "length": 65_536, "states": 512, "left": 2.386e-8, "kernel_s": 0.0147,
        "kernel_bytes": 4_456_448, "step_s": 1.36, "step_bytes": 548_903_732,
    }  # fmt: skip
    machine = {"device": "gpu", "n_devices": 1, "cpus": 4, "commit": "abc"}
    text = single_tap.section(machine | {"rows": [row]})
    assert "on\n1 x gpu (4 cores), commit abc;" in text
    (_, line) = cells(text[text.index("| steps") :].strip())
    assert line == ["65,536", "512", "2.4e-08", "0.015", "4.5", "1.4", "549"]


def test_runs_by_learning_rate_are_judged_by_the_last_and_the_worst_perplexity():
    variant = "model=s5,length=16,state_init=carry,rows=32,size=tiny,learning_rate=0.5"
    rows = [
        ROW
        | {"experiment": "longssm/text", "variant": variant, "seed": seed}
        | {"metric": "test perplexity", "lengths": [], "curve": curve}
        for seed, curve in enumerate(
            (
                {"1": 30.0, "2": 20.0, "3": 10.0, "4": 9.0},
                {"1": 20.0, "2": 10.0, "3": 40.5, "4": 12.0},
                {"1": 20.0, "2": 10.0, "3": None, "4": 12.0},
            )
        )
    ]
    text = section(pages.page("longssm", rows), "Stability by learning rate")
    (line,) = cells(text[text.index("| experiment") :].split("\n\n")[0])[1:]
    assert line[1:] == ["9.00, 12.00, 12.00", "20.00, 40.50, inf", "2 of 3"]


def mixture(variant, missed, **fields):
    row = {"experiment": "fru/mixture", "variant": variant, "metric": "test r2"}
    return ROW | row | {"value": 1 - missed} | fields


def section(page, title):
    (found,) = (part for part in page.split("## ") if part.startswith(title))
    return found.partition("\n\n")[2]


def test_units_are_set_side_by_side_and_against_the_paper():
    stale = {"stale": "Of other data."}
    rows = [
        mixture("curves=poly5,model=fru", 1e-4),
        mixture("curves=poly5,model=lstm", 4.5e-4),
        mixture("curves=poly5,model=fru,size=small", 1e-4),
        mixture("curves=poly5,model=lstm,size=small", 2e-4, **stale),
        mixture("curves=sines,model=fru,size=small", 1e-4, **stale),
        mixture("curves=sines,model=lstm,size=small", 4e-4, **stale),
        mixture("curves=sines,model=fru", 1e-6),
        mixture("curves=sines,model=lstm", 5e-4),
    ]
    text = section(pages.page("fru", rows), "Mixtures of curves: the part")
    table, _, notes = text.partition("\n\n")
    assert cells(table)[1:] == [
        ["sines", "", "5.0e-04", "", "1.0e-06", "500.0", ""],
        ["poly5", "", "4.5e-04", "", "1.0e-04", "4.5", "[1]"],
        ["sines size=small", "", "4.0e-04*", "", "1.0e-04*", "4.0", "[2]"],
        ["poly5 size=small", "", "2.0e-04*", "", "1.0e-04", "", "[2]"],
    ]
    notes = " ".join(notes.split())
    assert "[1] the FRU is 4.5 times below the LSTM, where the paper says" in notes
    assert "[2] `*` is stale: Of other data." in notes
