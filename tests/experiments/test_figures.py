"""Every figure is a program that draws itself into a file."""

from pathlib import Path

import pytest

from tests.cli import programs

FOLDER = programs.ROOT / "experiments"
FIGURES = [
    ".".join(path.relative_to(programs.ROOT).with_suffix("").parts)
    for path in sorted(FOLDER.glob("*/figures/*.py"))
    if path.stem != "__init__"
]
ALONE = [name for name in FIGURES if not name.endswith(("temperatures", "pretrained"))]


def test_there_are_figures_of_each_paper():
    assert {name.split(".")[1] for name in FIGURES} == {"etsmlp", "fru", "longssm"}
    assert len(ALONE) == len(FIGURES) - 2


@pytest.mark.full
@pytest.mark.parametrize("name", ALONE)
def test_figure_is_drawn_into_a_new_folder(name, tmp_path, monkeypatch, capsys):
    output = tmp_path / "new" / "figure.png"
    assert programs.run(monkeypatch, name, f"--output={output}") in (0, None)
    assert capsys.readouterr().out == f"{output}\n"
    assert output.stat().st_size > 5000


@pytest.mark.full
def test_figure_of_a_file_is_drawn_from_it(tmp_path, monkeypatch):
    series = tmp_path / "series.csv"
    rows = [f"{i},{2010 + i % 3},{i % 24}" for i in range(240)]
    series.write_text("\n".join(["No,year,TEMP", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    name = "experiments.fru.figures.temperatures"
    assert programs.run(monkeypatch, name, f"--data={series}") in (0, None)
    assert Path("temperatures.png").stat().st_size > 5000
