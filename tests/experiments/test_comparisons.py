"""Differences between results are told from their standard errors."""

import pytest

from experiments import comparisons, extension
from experiments.coverage import Table
from ssm_jax.cli.summary import summaries
from tests.cli.test_tables import ROW, cells

BASELINE = {"name": "majority class", "accuracy": 0.1, "n_examples": 2000}
LISTOPS = ROW | {
    "experiment": "etsmlp/listops", "metric": "test accuracy", "baseline": BASELINE
}  # fmt: skip
TABLE = Table(
    "Table 3",
    "ablations",
    "which?",
    reduced=(r"etsmlp/listops:(ablation=\w+,)?size=small",),
    references=(r"etsmlp/listops:size=small",),
)


def listops(variant, value, **fields):
    return LISTOPS | {"variant": f"{variant}size=small", "value": value} | fields


def test_ablations_are_compared_with_the_full_model_at_three_standard_errors():
    rows = [
        listops("", 0.62),
        listops("ablation=real,", 0.61),
        listops("ablation=no_beta,", 0.4),
        listops("ablation=no_alpha,", 0.4, steps=20),
        listops("ablation=no_omega,", 0.4, stale="Of other data."),
    ]
    text = comparisons.section(TABLE, summaries(rows))
    sentence, table = text.split("\n\n")
    assert " ".join(sentence.split()) == (
        "At 3 standard errors of the difference, of 2 results beside their reference: "
        "1 below (1 with one seed), 1 within (1 with one seed)."
    )
    no_beta, real = cells(table)[1:]
    assert no_beta[0].startswith("etsmlp/listops:ablation=no_beta")
    assert no_beta[2] == "etsmlp/listops:size=small: 0.6200"
    assert no_beta[3:] == ["-0.2200", "0.0154", "-14.27", "1, 1", "below"]
    assert real[3:] == ["-0.0100", "0.0154", "-0.65", "1, 1", "within"]


def test_of_several_references_the_nearest_is_compared():
    table = TABLE._replace(
        reduced=(r"etsmlp/listops:(ablation=\w+,)?rate=\d,size=small",),
        references=(r"etsmlp/listops:rate=\d,size=small",),
    )
    rows = [
        listops(f"{ablation}rate={rate},", value)
        for rate in (1, 2)
        for ablation, value in (("", 0.6), ("ablation=real,", 0.5))
    ]
    compared = comparisons.comparisons(table, summaries(rows))
    assert [(each.result.name, each.reference.name) for each in compared] == [
        (
            f"etsmlp/listops:{ablation}size=small",
            f"etsmlp/listops:{reference}size=small",
        )
        for ablation, reference in (
            ("ablation=real,rate=1,", "rate=1,"),
            ("ablation=real,rate=2,", "rate=2,"),
        )
    ]


def test_one_seed_without_binomial_error_is_not_compared():
    r2 = {"metric": "test r2", "baseline": {"name": "mean", "r2": 0.0}}
    rows = [listops("", value, **r2) for value in (0.6, 0.7)]
    rows[1]["variant"] = "ablation=real,size=small"
    text = comparisons.section(TABLE, summaries(rows))
    assert text.endswith("| unknown |\n")
    assert comparisons.section(TABLE, summaries(rows[:1])) == ""


def by_length(state, seed, losses, extends="strong"):
    """A run that was measured at 16 and 32 tokens on documents of these losses."""
    lines = [
        {
            "split": "test", "window_state": way, "order": "text", "length": length,
            "trained": 16, "extends": extends if way == "zero" else None,
            "loss": sum(of) / len(of), "loss_by_document": of,
        }
        for way in ("zero", "carry")
        for length, of in losses.items()
    ]  # fmt: skip
    variant = f"model=s5,length=16,state_init={state}"
    return ROW | {"variant": variant, "seed": seed, "lengths": lines}


def test_change_of_the_loss_and_carried_against_zero_states():
    rows = [
        by_length("carry", seed, {16: [2.0, 2.2], 32: [1.9, 2.1]}) for seed in (0, 1)
    ]
    rows += [by_length("zero", 0, {16: [2.0, 2.2], 32: [2.5, 2.9]}, "none")]
    changes, against = extension.section(rows).split("\n\n")[1:3]
    carry, zero = cells(changes)[1:]
    name = "longssm/text:model=s5,length=16,state_init"
    # The perplexities of the mean losses, 2.1 and 2.0.
    assert carry[:5] == [f"{name}=carry", "2", "8.166", "7.389", "-0.1000"]
    assert zero[:2] == [f"{name}=zero", "1"]
    assert zero[4:] == ["+0.6000", "0.1000", "+6.0", "one seed", "none"]
    (line,) = cells(against.strip())[1:]
    assert line == [
        f"{name}=carry",
        "1",
        "+0.7000",
        "0.1000",
        "+7.0",
        "one seed",
        "2 of 2",
        "0 of 1",
        # Of windows of 16 tokens from zero states, on which both have the same loss.
        "+0.0000",
        "0.0000",
        "",
    ]


def test_stale_and_unmeasured_runs_are_left_out():
    stale = by_length("carry", 0, {16: [2.0]}) | {"stale": "Of other data."}
    without_trained_length = by_length("zero", 0, {32: [2.0], 128: [2.0]})
    assert extension.section([stale, without_trained_length, ROW]) == ""


def test_one_document_does_not_classify_a_run():
    row = by_length("zero", 0, {16: [2.0], 32: [1.9]}, extends=None)
    (line,) = cells(extension.section([row]).split("\n\n")[1])[1:]
    assert line[-1] == "unknown"
    assert extension.extending([row]) == "0 of 1"


def test_a_standard_error_of_zero_is_known():
    rows = [
        listops(f"ablation={name},", value) | {"seed": seed}
        for name, value in (("real", 1.0), ("no_beta", 0.5))
        for seed in (0, 1)
    ]
    compared = comparisons.Comparison(*summaries(rows)[::-1])
    assert compared.result.error == 0 or compared.reference.error == 0
    assert compared.error is not None
    assert compared.verdict != "unknown"


def test_error_of_a_change_is_the_larger_of_documents_and_seeds():
    found = extension.change([[1.0, 1.0], [3.0, 3.0]])
    assert found == pytest.approx((2.0, 1.0, 2))
    assert found.verdict == "within"
    assert extension.change([[1.0]]).verdict == "one seed"
    assert extension.change([[1.0, 1.1], [1.1, 1.2]]).verdict == "rises"
