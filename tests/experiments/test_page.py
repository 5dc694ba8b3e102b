"""Pages show what records hold: results beside references, by length, in prose."""

import importlib

import pytest

from experiments.page import (
    Curves,
    Gradients,
    Grid,
    Lengths,
    Numbers,
    Paper,
    Table,
    page,
)
from experiments.papers import PAGES, PAPERS
from experiments.records import EXPERIMENTS, experiment_config, records
from ssm_jax.cli.summary import summaries
from tests.cli.test_tables import ROW, cells

ROWS = records()
RESULTS = summaries(ROWS)
TABLES = [
    pytest.param(table, id=f"{name}-{table.name}")
    for name, paper in PAGES.items()
    for table in paper.tables
]
PAGE_FILES = [EXPERIMENTS / "results" / f"{name}.md" for name in PAGES]
BASELINE = {"name": "majority class", "accuracy": 0.1, "n_examples": 2000}
ABLATIONS = Table(
    "Table 3",
    "ablations",
    reduced=(r"etsmlp/listops:(ablation=\w+,)?size=small",),
    references=(r"etsmlp/listops:size=small",),
)


def listops(variant, value, **fields):
    row = {"experiment": "etsmlp/listops", "metric": "test accuracy"}
    variant = {"variant": f"{variant}size=small", "value": value, "baseline": BASELINE}
    return ROW | row | variant | fields


@pytest.mark.parametrize("name", PAPERS)
def test_cells_are_experiments_and_all_published_results_are_cells(name):
    cells_of_paper = {cell for table in PAPERS[name].tables for cell in table.cells}
    for cell in cells_of_paper:
        config = experiment_config(cell)
        assert f"{config.experiment}:{config.variant}".rstrip(":") == cell
    for file in sorted((EXPERIMENTS / name).glob("*.py")):
        module = importlib.import_module(f"experiments.{name}.{file.stem}")
        published = getattr(module, "PAPER", {}) if file.stem != "tables" else {}
        for variant, value in published.items():
            cell = f"{name}/{file.stem}:{variant}".rstrip(":")
            assert cell in cells_of_paper and experiment_config(cell).paper == value


@pytest.mark.parametrize("table", TABLES)
def test_patterns_of_a_table_match_records_and_no_published_setting(table):
    for pattern in (*table.reduced, *table.references):
        pattern_table = Table("", "", reduced=(pattern,))
        assert pattern_table.reduced_results(RESULTS), pattern
    assert not {result.name for result in table.reduced_results(RESULTS)} & set(
        table.cells
    )


def test_every_record_is_on_a_page():
    text = "".join(path.read_text() for path in PAGE_FILES)
    assert [result.name for result in RESULTS if f"| {result.name} " not in text] == []


def test_tables_have_at_most_seven_columns():
    for path in PAGE_FILES:
        lines = [line for line in path.read_text().split("\n") if line[:1] == "|"]
        assert all(line.count("|") - line.count("\\|") <= 8 for line in lines), path


def test_table_has_ours_beside_theirs_and_what_was_not_run():
    table = Table(
        "Table 1",
        "atomic tasks",
        cells=("dlr/atomic:task=shift", "dlr/atomic:task=cumsum"),
        reduced=(r"dlr/atomic:task=shift,size=small",),
    )
    shift = {"experiment": "dlr/atomic", "variant": "task=shift", "metric": "test r2"}
    shift = ROW | shift
    rows = [shift | {"value": 0.5}, shift | {"value": 0.7, "seed": 1}]
    rows.append(shift | {"variant": "task=shift,size=small", "value": 0.8})
    text = table.markdown(rows)
    published, rest = text.split("<details>")
    (line,) = cells(published.strip())[1:]
    assert line[:4] == ["dlr/atomic:task=shift", "test r2", "0.6000 ± 0.1414", "1"]
    assert line[-1] == "2"
    missing, reduced = rest.split("</details>")
    assert "Not run: 1" in missing and "dlr/atomic:task=cumsum | 1" in missing
    sentence, small = reduced.strip().split("\n\n")[:2]
    assert "not comparable" in " ".join(sentence.split())
    assert "`task.length` 128 (at full size 4096)" in " ".join(sentence.split())
    assert cells(small)[0] == [
        "experiment", "metric", "ours", "error", "baseline", "seeds",
    ]  # fmt: skip
    runs = page(Paper("A paper", "https://a", (table,)), rows, "").split("## Runs")[1]
    assert "| dlr/atomic:task=shift            | 10    |" in runs


def test_each_reduced_setting_of_a_table_has_its_own_changes():
    name = "fru/pixel_mnist:inputs=pixels,model=fru"
    table = Table("", "", cells=(name,), reduced=(rf"{name},size=\w+",))
    row = ROW | {"experiment": "fru/pixel_mnist", "metric": "test accuracy"}
    rows = [
        row | {"variant": f"inputs=pixels,model=fru,size={size}", "value": 0.5}
        for size in ("quarter", "small")
    ]
    quarter, small = table.markdown(rows).split("\n- ")[1:]
    changes = "`fru/pixel_mnist:size=quarter` has `training.batch_size` 64 (at full"
    assert quarter == f"{changes} size 256)."
    assert small.startswith("`fru/pixel_mnist:size=small` has `task.size` 14 (at full")


def test_names_of_a_table_are_what_its_experiments_do_not_share():
    rows = [listops(variant, 0.5) for variant in ("", "ablation=real,")]
    rows.append(listops("", 0.5, experiment="etsmlp/text"))
    apart = Table("", "", reduced=("etsmlp/.*",)).markdown(rows)
    assert "| etsmlp/text:size=small " in apart
    alike = Table("", "", reduced=("etsmlp/listops:.*",)).markdown(rows)
    assert "Experiments are `etsmlp/listops:size=small` with:" in alike
    assert "\n| nothing else " in alike and "\n| ablation=real " in alike


def test_stale_results_say_why():
    text = ABLATIONS.markdown([listops("", 0.5, stale="Of other data.")])
    assert "| 0.5000 (stale) [1] |" in text
    assert "- [1] stale: Of other data.\n" in text


def test_results_differ_from_their_reference_at_three_standard_errors():
    rows = [
        listops("", 0.62),
        listops("ablation=real,", 0.61),
        listops("ablation=no_beta,", 0.4),
        listops("ablation=no_alpha,", 0.4, steps=20),
        listops("ablation=no_omega,", 0.4, stale="Of other data."),
    ]
    *_, common, table = ABLATIONS.markdown(rows).strip().split("\n\n")
    assert common.endswith("Experiments are `etsmlp/listops:size=small` with:")
    no_beta, real = cells(table)[1:]
    assert no_beta[:3] == ["ablation=no_beta", "0.4000", "nothing else"]
    assert no_beta[3:] == ["-0.2200", "0.0154", "1", "below"]
    assert real[3:] == ["-0.0100", "0.0154", "1", "within"]


def test_of_several_references_the_nearest_is_compared():
    table = Table(
        "Table 3",
        "ablations",
        reduced=(r"etsmlp/listops:(ablation=\w+,)?rate=\d,size=small",),
        references=(r"etsmlp/listops:rate=\d,size=small",),
    )
    rows = [
        listops(f"{ablation}rate={rate},", value)
        for rate in (1, 2)
        for ablation, value in (("", 0.6), ("ablation=real,", 0.5))
    ]
    pairs = table.pairs(summaries(rows))
    assert [(result.choices[1:], reference.choices) for result, reference in pairs] == [
        (("rate=1", "size=small"),) * 2,
        (("rate=2", "size=small"),) * 2,
    ]


def test_grid_leaves_what_was_not_run_empty():
    grid = Grid("", "", "etsmlp/listops:{row}{column}size=small", {"all": ""}, {
        "whole": "", "real": "ablation=real,", "other": "ablation=no_beta,",
    }, one_minus=True)  # fmt: skip
    rows = [listops("", 0.75), listops("ablation=real,", 0.5)]
    assert cells(grid.markdown(rows).strip())[1] == ["all", "2.5e-01", "5.0e-01", ""]
    assert not grid.markdown([])


def test_curves_are_judged_by_the_last_and_the_worst_value():
    curves = (
        {"1": 30.0, "2": 20.0, "3": 10.0, "4": 9.0},
        {"1": 20.0, "2": 10.0, "3": 40.5, "4": 12.0},
        {"1": 20.0, "2": 10.0, "3": None, "4": 12.0},
    )
    rows = [listops("", 0.5, seed=n, curve=curve) for n, curve in enumerate(curves)]
    (line,) = cells(Curves("", "", ".*").markdown(rows).strip())[1:]
    assert line[1:] == ["9.00, 12.00, 12.00", "20.00, 40.50, inf", "2 of 3"]


def test_gradients_are_medians_over_the_seeds_that_have_some():
    norms = ({"16": 1.0, "32": 1e-9}, {"16": 3.0, "32": 0.0}, {"16": 2.0, "32": 1e-3})
    rows = [listops("", 0.5, seed=n, gradients=of) for n, of in enumerate(norms)]
    part = Gradients("", "", ".*", (16, 32))
    (line,) = cells(part.markdown([*rows, listops("", 0.5, seed=3)]).strip())[1:]
    assert line[1:] == ["2.0e+00", "1.0e-09", "3"]
    assert not part.markdown([listops("", 0.5)])


def by_length(state, seed, losses, extends="strong"):
    """A run that was measured at 16 and 32 tokens on documents of these losses."""
    lines = [
        {
            "split": "test", "window_state": window, "order": "text", "length": length,
            "trained": 16, "extends": extends if window == "zero" else None,
            "loss": sum(values) / len(values), "loss_by_document": values,
        }
        for window in ("zero", "carry")
        for length, values in losses.items()
    ]  # fmt: skip
    variant = f"model=s5,length=16,state_init={state}"
    return ROW | {"variant": variant, "seed": seed, "lengths": lines}


LENGTHS = Lengths("", "longssm/text:.*", "longssm/lengths.png")


def test_lengths_have_the_change_of_the_loss_and_what_carried_states_gain():
    rows = [
        by_length("carry", seed, {16: [2.0, 2.2], 32: [1.9, 2.1]}) for seed in (0, 1)
    ]
    rows += [by_length("zero", 0, {16: [2.0, 2.2], 32: [2.5, 2.9]}, "none")]
    parts = LENGTHS.markdown(rows).split("\n\n")
    changes, gains = [part for part in parts if part.startswith("| experiment")][:2]
    carry, zero = cells(changes)[1:]
    seeds = "strong, strong"
    assert carry == ["state_init=carry", "-0.1000", "0.0000", "2", "below", seeds]
    assert zero == ["state_init=zero", "+0.6000", "0.1000", "1", "above", "none"]
    (line,) = cells(gains)[1:]
    # Of windows of 16 tokens from zero states both have the same loss.
    equal = ["+0.0000", "0.0000"]
    name = "longssm/text:model=s5,length=16,state_init=carry"
    assert line == [name, "+0.7000", "0.1000", "1", "above", *equal]


def test_carried_states_alone_are_compared_with_none():
    carried = by_length("carry", 0, {16: [2.0, 2.2], 32: [1.9, 2.1]})
    zero = by_length("zero", 0, {16: [2.0, 2.2], 32: [2.5, 2.9]})
    assert "Runs trained and evaluated" in LENGTHS.markdown([carried, zero])
    text = LENGTHS.markdown([carried])
    assert "Runs trained and evaluated" not in text
    assert "-0.1000" in text


def test_stale_and_unmeasured_runs_are_left_out():
    stale = by_length("carry", 0, {16: [2.0]}) | {"stale": "Of other data."}
    without_trained_length = by_length("zero", 0, {32: [2.0], 128: [2.0]})
    assert LENGTHS.markdown([stale, without_trained_length, ROW]) == ""


def test_prose_has_the_numbers_of_records():
    rows = [listops("", 0.62), listops("ablation=real,", 0.4)]
    numbers = Numbers(rows)
    whole = "etsmlp/listops:size=small"
    real = "etsmlp/listops:ablation=real,size=small"
    assert numbers[f"mean {whole}"] == "0.6200"
    assert numbers[f"seeds {whole}"] == "1"
    assert numbers[f"less {real} {whole}"] == "-0.2200 ± 0.0154"
    assert numbers[f"errors {real} {whole}"] == "-14.3"
    assert numbers[f"missed {real} {whole}"] == "1.6"
    with pytest.raises(ValueError, match="must have a record, got fru/imdb without"):
        numbers["mean fru/imdb"]
    with pytest.raises(ValueError, match="must begin with `mean`.*got 'most'"):
        numbers[f"most {whole}"]
