"""What tables show beside a result: its error, its baseline, and notes by rule."""

from ssm_jax.cli import tables
from ssm_jax.cli.summary import in_units
from tests.cli.test_tables import ROW, cells


def accuracy(value, n=100, majority=0.6, **fields):
    """A row of a run, beside the majority class of ``n`` examples."""
    baseline = {"name": "majority class", "accuracy": majority, "n_examples": n}
    row = {"metric": "test accuracy", "value": value, "baseline": baseline}
    return ROW | row | fields


def show(rows):
    """What a table shows of each row: result, error, baseline, notes; and the notes."""
    table, _, notes = tables.results(rows).partition("\n\n")
    shown = [line[2:5] + line[-1:] for line in cells(table.strip())[1:]]
    return shown, notes.split("\n")[:-1]


def test_a_result_stands_beside_its_error_and_its_baseline():
    # sqrt(.9 * .1 / 100) = .03
    assert show([accuracy(0.9)]) == ([["0.9000", "0.0300", "0.6000", ""]], [])


def test_what_the_majority_class_explains_is_noted():
    shown, notes = show([accuracy(0.6, variant="a"), accuracy(0.65, variant="b")])
    assert [line[-1] for line in shown] == ["[1] [2]", "[3]"]
    assert notes == [
        "- [1] = majority class",
        "- [2] within 3 standard errors of longssm/text:b",
        "- [3] not above the majority class by 3 standard errors",
    ]
    assert show([accuracy(0.75)])[1] == []  # .0433 * 3 < .15
    assert show([accuracy(0.68, n=1000)])[1] == []
    # Seeds may be further apart than examples account for.
    seeds = [accuracy(v, n=10**6, seed=i) for i, v in enumerate((0.5, 0.75))]
    assert show(seeds)[1] == ["- [1] not above the majority class by 3 standard errors"]


def test_perplexity_is_better_below_its_baseline():
    baseline = {"name": "unigram", "perplexity": 5.0, "n_examples": 10}
    assert show([ROW | {"baseline": baseline}])[1] == []
    worse = show([ROW | {"value": 6.0, "baseline": baseline}])[1]
    assert worse == ["- [1] not below the unigram by 3 standard errors"]


def test_forecast_is_compared_with_its_best_baseline_in_the_units_of_the_file():
    errors = {"model": 3.0, "last value": 9.0, "seasonal": 4.0}
    row = ROW | {
        "metric": "test r2",
        "value": 0.5,
        "baseline": {"name": "mean", "r2": 0.0, "n_examples": 10},
        "forecast": {name: {"mae": mae, "r2": 0.5} for name, mae in errors.items()},
    }
    shown, notes = show([in_units(row)])
    assert shown == [["3.0000", "", "4.0000", ""]] and notes == []
    row["forecast"]["model"]["mae"] = 5.0
    worse = ["- [1] not below the seasonal by 3 standard errors"]
    assert show([in_units(row)])[1] == worse
    # A published result is of the metric of the record.
    published = row | {"paper": 0.6}
    assert in_units(published) is published and in_units(ROW) is ROW


def test_results_of_other_data_or_size_are_not_compared():
    best = accuracy(0.9, variant="best")
    for other in ({"n": 101}, {"steps": 11}, {"experiment": "a/b"}, {"majority": 0.5}):
        assert show([best, accuracy(0.89, **other)])[1] == []
    far_below = [accuracy(0.9, 1000, variant="best"), accuracy(0.75, 1000)]
    assert show(far_below)[1] == []
    assert len(show([best, accuracy(0.89)])[1]) == 1


def test_results_with_further_metrics_and_other_rounding_are_compared():
    best, other = accuracy(0.9, variant="best"), accuracy(0.89)
    value = other["baseline"]["accuracy"] * (1 + 1e-12)
    other["baseline"] = other["baseline"] | {"accuracy": value, "auc": 0.5}
    assert len(show([best, other])[1]) == 1


def test_an_evaluation_on_changed_data_is_noted():
    _, notes = show([accuracy(0.9), accuracy(0.9, seed=1, changed_data=True)])
    assert notes == ["- [1] evaluated on other data than those of the training"]


def test_a_stale_result_is_shown_as_stale():
    shown, notes = show([accuracy(0.9, stale="Of other data.")])
    assert shown == [["0.9000 (stale)", "0.0300", "0.6000", "[1]"]]
    assert notes == ["- [1] stale: Of other data."]
    # A run that was made anew stands for those that are stale.
    rows = [accuracy(0.9, stale="Of other data."), accuracy(0.8, seed=1)]
    assert show(rows) == ([["0.8000", "0.0400", "0.6000", ""]], [])
