"""Tables say what the rows of runs say."""

import math

import numpy as np
import pytest

from ssm_jax.cli import tables

ROW = {
    "experiment": "longssm/text",
    "variant": "s5",
    "seed": 0,
    "metric": "test perplexity",
    "value": 4.0,
    "paper": None,
    "steps": 10,
    "seconds": 2.4,
    "date": "2026-11-22",
    "commit": "abc",
    "device": "cpu",
    "n_devices": 1,
    "platform": "cpu",
    "cpus": 2,
    "lengths": [],
}


def cells(table):
    """The cells of each line of a table, without the rule under the head."""
    head, rule, *lines = table.splitlines()
    assert set(rule) == {"|", "-"} and len({len(line) for line in (head, *lines)}) == 1
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in (head, *lines)]


def length_rows(
    lengths, extends: str | None = "strong", window_state="zero", order="text"
):
    """Lines of a run that was measured by length: perplexities by length."""
    way = {
        "split": "validation",
        "window_state": window_state,
        "order": order,
        "trained": 16,
    }
    return [
        {**way, "length": length, "loss": math.log(value), "extends": extends}
        for length, value in lengths.items()
    ]


def test_the_table_has_a_line_an_experiment():
    accuracy = ROW | {"variant": "", "metric": "test accuracy", "value": 0.5}
    head, first, second = cells(tables.results([ROW, accuracy]))
    assert head == list(tables.COLUMNS)
    assert first[:3] == ["longssm/text", "test accuracy", "0.5000"]
    assert second[:3] == ["longssm/text:s5", "test perplexity", "4.0000 (2.0000 bits)"]
    assert second[3:] == [
        "", "", "1", "", "10", "2", "1 x cpu (2 cores)", "abc", "2026-11-22", ""
    ]  # fmt: skip


def test_seeds_share_a_line_with_mean_and_deviation():
    rows = [ROW | {"seed": i, "value": v} for i, v in enumerate((2.0, 4.0, 8.0))]
    _, line = cells(tables.results(rows))
    assert line[2:6] == ["4.6667 ± 3.0551 (2.0000 bits)", "1.7638", "", "3"]


def test_what_is_all_but_perfect_is_not_rounded_to_it():
    for value, shown in (
        (0.99993, "0.9999"),
        (0.99998, "1 - 2.0e-05"),
        (1.0, "1.0000"),
    ):
        row = ROW | {"metric": "test r2", "value": value}
        assert cells(tables.results([row]))[1][2] == shown


def test_lines_are_in_the_order_of_their_numbers():
    rows = [ROW | {"variant": f"s5,n={n}"} for n in (128, 16, 512)]
    rows.append(ROW | {"variant": "gru,n=512"})
    names = [line[0].split(":")[1] for line in cells(tables.results(rows))[1:]]
    assert names == ["gru,n=512", "s5,n=16", "s5,n=128", "s5,n=512"]


def test_what_was_measured_otherwise_is_another_line():
    other = ROW | {"seed": 1, "metric": "test accuracy", "value": 0.5}
    assert [line[2] for line in cells(tables.results([ROW, other]))[1:]] == [
        "0.5000",
        "4.0000 (2.0000 bits)",
    ]


def test_each_way_of_reading_has_a_table_by_length():
    rows = [
        ROW | {"lengths": length_rows({64: 3.0, 1024: 2.0}) + length_rows(
            {64: 2.5}, None, "carry", "shuffled")},
        ROW | {"seed": 1, "lengths": length_rows({64: 4.0, 1024: 2.5}, "none")},
        ROW | {"variant": "gru", "lengths": length_rows({16: 12.3456}, None)},
        ROW | {"variant": "dlr"},
    ]  # fmt: skip
    fresh, shuffled = tables.by_length(rows).split("Split validation, ")[1:]
    title, _, table = fresh.partition("\n\n")
    assert title == "each window from a zero state:"
    assert cells(table.strip()) == [
        ["experiment", "trained", "16", "64", "1,024", "95 %", "extends"],
        ["longssm/text:gru", "16", "12.35", "", "", "", ""],
        # Geometric means over seeds, as losses are averaged.
        ["longssm/text:s5", "16", "", "3.464", "2.236", "", "strong, none"],
    ]
    assert shuffled.startswith("states carried, windows in shuffled order")
    assert cells(shuffled.partition("\n\n")[2]) == [
        ["experiment", "trained", "64", "95 %"],
        ["longssm/text:s5", "16", "2.5", ""],
    ]


def test_states_that_go_on_have_one_number_for_all_lengths_and_no_verdict():
    """Older records hold a line for each length, all equal, and call them weak."""
    way = {"window_state": "carry", "order": "text"}
    lines = length_rows({64: 3.0, 1024: 3.0}, "weak", **way)
    text = tables.by_length([ROW | {"lengths": lines}])
    assert "weak" not in text
    assert cells(text.partition("\n\n")[2]) == [
        ["experiment", "trained", "any length", "95 %"],
        ["longssm/text:s5", "16", "3", ""],
    ]


def test_perplexity_beyond_float64_is_infinite():
    (line,) = length_rows({64: 3.0})
    line |= {"loss": 1e4, "loss_by_document": [1e4, 2e4, 3e4]}
    _, cells_of_run = cells(
        tables.by_length([ROW | {"lengths": [line]}]).partition("\n\n")[2]
    )
    assert cells_of_run[2] == "inf" and cells_of_run[3].endswith(" to inf")


def test_the_interval_is_over_documents_of_the_mean_over_seeds():
    corpus = {
        "folder": "novels", "tokens": 9000, "tokens_read": 2048, "documents_read": 3,
    }  # fmt: skip
    rows = []
    for seed, losses in enumerate(([1.0, 1.2, 1.7], [1.2, 1.2, 1.5])):
        (line,) = length_rows({64: 3.0})
        line |= {"loss_by_document": losses, "corpus": corpus}
        rows.append(ROW | {"seed": seed, "lengths": [line]})
    title, _, table = tables.by_length(rows).partition("\n\n")
    _, line = cells(table)
    # Student's t of 2 degrees of freedom: 4.3027.
    losses = np.array([1.1, 1.2, 1.6])
    half = 4.3027 * losses.std(ddof=1) / np.sqrt(3)
    low, high = np.exp(losses.mean() + np.array([-half, half]))
    assert line[3:] == [f"{low:.4g} to {high:.4g}", "strong"]
    assert "(novels: 2,048 of 9,000 tokens, 3 documents):" in " ".join(title.split())


def test_stale_runs_by_length_stand_apart_and_say_why():
    lines = {"lengths": length_rows({64: 3.0})}
    rows = [ROW | lines, ROW | lines | {"seed": 1, "stale": "Of one novel."}]
    text = tables.by_length(rows)
    lines = cells(text.split("\n\n")[1].strip())[1:]
    assert [(line[0], line[-1]) for line in lines] == [
        ("longssm/text:s5", "strong"),
        ("longssm/text:s5 (stale)", ""),
    ]
    assert text.endswith("\nStale: Of one novel.\n")


def row_of_forecast(seed, shift):
    def errors(mae):
        steps = [mae + step for step in range(8)]
        return {"mae": mae, "r2": 0.5, "mae_by_step": steps, "r2_by_step": [None] * 8}

    return {
        "experiment": "a",
        "variant": "",
        "seed": seed,
        "forecast": {"model": errors(10.0 + shift), "last value": errors(20.0)},
    }


def test_forecasts_of_seeds_are_averaged_and_baselines_are_beside_them():
    table = tables.forecast_table(
        [row_of_forecast(0, 0.0), {"experiment": "b"}, row_of_forecast(1, 2.0)]
    )
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("|")
    ]
    assert lines[0] == ["forecast", "metric", "all steps", "step 1", "step 2", "step 8"]
    spread = ["11 ± 1.4", "11 ± 1.4", "12 ± 1.4", "18 ± 1.4"]
    assert lines[2] == ["model", "MAE", *spread]
    assert lines[3] == ["last value", "MAE", "20", "20", "21", "27"]
    assert lines[4] == ["model", "R2", "0.5", "", "", ""]
    assert tables.forecast_table([{"experiment": "b"}]) == ""


def test_entries_of_a_forecast_are_shown_by_the_names_that_they_have():
    row = row_of_forecast(0, 0.0)
    row["forecast"] |= {
        "ridge": {"mae": 5.0, "rmse": 7.0, "mae_by_step": [5.0] * 8},
        "note": "no forecaster",
    }
    lines = tables.forecast_table([row]).split("\n\n")[1].splitlines()[2:]
    shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [line[:3] for line in shown if line[0] == "ridge"] == [
        ["ridge", "MAE", "5"],
        ["ridge", "RMSE", "7"],
    ]
    assert "note" not in {line[0] for line in shown}
    assert ["ridge", "RMSE", "7", "", "", ""] in shown


BASELINE = {
    "name": "majority class",
    "loss": 2.3,
    "accuracy": 0.1,
    "n_train": 99,
    "n_examples": 300,
}
EVALUATIONS = {
    "classes": (
        {"loss": 0.02, "accuracy": 0.99998, "baseline": BASELINE},
        "test accuracy 0.99998, step 5",
        [
            ["", "accuracy", "loss"],
            ["model", "0.99998", "0.02"],
            ["majority class", "0.1", "2.3"],
        ],
    ),
    "undefined": (
        {"loss": 0.02, "r2": None, "baseline": None},
        "test R2 undefined, step 5",
        [["", "R2"], ["model", ""]],
    ),
    "forecast": (
        {"loss": 0.02, "r2": 0.9, "baseline": BASELINE}
        | {"forecast": row_of_forecast(0, 1234.5)["forecast"]},
        "test MAE 1,244.5, step 5, in the units of the file",
        [
            ["", "MAE", "R2"],
            ["model", "1,244.5", "0.5"],
            ["last value", "20", "0.5"],
        ],
    ),
}


def test_step_0_is_said_to_be_what_training_began_with():
    result = {"split": "test", "step": 0, "loss": 0.02, "r2": 0.9, "baseline": None}
    plain = tables.evaluation(result).splitlines()[0]
    assert plain == "test R2 0.9, step 0, before training"
    forecast = row_of_forecast(0, 0.0)["forecast"]
    result["forecast"] = forecast | {"linear": forecast["model"]}
    lines = tables.evaluation(result).splitlines()
    assert lines[0] == (
        "test MAE 10, step 0, the linear forecast that training began with, in the "
        "units of the file"
    )
    assert lines[1].startswith("The model is the linear forecast: ")


@pytest.mark.parametrize(
    ("result", "headline", "table"), EVALUATIONS.values(), ids=EVALUATIONS.keys()
)
def test_the_headline_of_an_evaluation_is_the_first_column(result, headline, table):
    text = tables.evaluation({"split": "test", "step": 5} | result)
    first, _, rest = text.partition("\n\n")
    assert first == headline and cells(rest) == table
    changed = {"split": "test", "step": 5, "changed_data": True} | result
    assert "other data" in tables.evaluation(changed)


def test_accuracy_by_length_has_a_line_for_each_length():
    row = {"trained": 10, "accuracy": 0.5, "error": None, "chance": None}
    row |= {"last_accuracy": 1.0, "row_accuracy": 0.25}
    text = tables.by_row_length([{**row, "length": n} for n in (16, 2**20)])
    title, _, _, _, first, second = text.strip().splitlines()
    assert title == "Trained at 10:"
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells == ["16", "0.5000", "-", "1.0000", "0.2500", "-"]
    assert second.split("|")[1].strip() == "1,048,576"
