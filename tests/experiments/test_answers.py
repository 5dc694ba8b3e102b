"""What the answers of the tables say in words is what the records say in numbers."""

import itertools
import math
import re
import statistics

import pytest

from experiments import answers, extension, sections
from experiments.dlr import atomic
from experiments.fru.pixel_mnist import PAPER
from experiments.longssm.answers import small
from experiments.papers import PAPERS
from experiments.records import records
from ssm_jax.cli.summary import summaries

ROWS = records()
FOUND = summaries(ROWS)
RECORDS = answers.Records(ROWS)
DLR, ETSMLP, FRU = "dlr/atomic:task=", "etsmlp/listops:", "fru/pixel_mnist:inputs="
TINY = "rows=32,size=tiny,learning_rate="
TABLES = [
    pytest.param(table, id=f"{name}-{table.name}")
    for name, paper in PAPERS.items()
    for table in paper.tables
]


def mean(name):
    return RECORDS.of(name).mean


def values(name):
    return [row["value"] for row in RECORDS.of(name).rows]


def verdict(name, reference):
    return RECORDS.compared(name, reference).verdict


@pytest.mark.parametrize("table", TABLES)
def test_table_with_results_has_an_answer_without_open_fields(table):
    # Figures that show the runs of another table have no section of their own.
    shown_before = {"Figure 2", "Figure 3", "Figures 6 and 7", "Figure 8"}
    results = table.published(FOUND) + table.smaller(FOUND)
    assert table.answer or not results or table.name in shown_before
    filled = RECORDS.filled(table.answer)
    assert bool(filled) == bool(table.answer)
    assert not re.search(r"[{}]", filled)


def test_answer_of_missing_records_is_left_out():
    assert RECORDS.filled("At {mean fru/imdb:model=sru}.") == "At 0.8677.\n"
    assert RECORDS.filled("At {mean fru/none}.") == ""


class TestDLR:
    def test_tasks_that_are_learned(self):
        small = {task: mean(f"{DLR}{task},size=small") for task in atomic.TASKS}
        learned = {task for task, r2 in small.items() if r2 > 0.97}
        assert learned == {"shift", "cumsum", "select_fixed", "solve_fixed"}
        assert {task for task, r2 in small.items() if 0.2 < r2 < 0.97} == {"cummax"}

    def test_beside_dss(self):
        verdicts = [
            verdict(f"{DLR}{task},model=dss,size=small", f"{DLR}{task},size=small")
            for task in atomic.TASKS
        ]
        assert (verdicts.count("below"), verdicts.count("within")) == (8, 3)

    def test_more_layers_and_attention(self):
        six, two = ",n_layers=6,size=small", ",model=attention,n_layers=2,size=small"
        assert mean(f"{DLR}cummax{six}") > 0.97
        for task in ("solve", "select", "context_shift", "mips"):
            assert mean(f"{DLR}{task}{six}") < 0.05
        for task in ("solve", "context_shift"):
            assert mean(f"{DLR}{task}{two}") < 0.05
        for task in ("mips", "select"):
            assert mean(f"{DLR}{task}{two}") > 0.6

    def test_long_shift_beside_a_copy(self):
        # The variance of the targets by the part of the steps at which they are set.
        copy = 1 / sum(1 - k / 8 for k in range(8))
        assert copy == pytest.approx(2 / 9)
        assert mean("dlr/long_shift:size=small") == pytest.approx(copy, abs=0.005)
        for model in ("dss", "sgconv"):
            assert copy < mean(f"dlr/long_shift:model={model},size=small") < 0.3

    def test_subtrees(self):
        trees = "dlr/listops_subtrees:"
        near, dss = (f"{trees}model={m},size=small" for m in ("local_attention", "dss"))
        assert verdict(near, f"{trees}size=small") == "above"
        assert verdict(dss, f"{trees}size=small") == "within"


class TestETSMLP:
    @pytest.mark.parametrize("dataset", ["cola", "mrpc"])
    def test_no_result_is_above_the_majority_class(self, dataset):
        found = [each for each in FOUND if f"/language:dataset={dataset}" in each.name]
        assert len(found) >= 3
        for each in found:
            assert each.mean <= each.baseline + 2 * each.error

    def test_gate(self):
        name = "etsmlp/language:dataset=sst2,{}size=small"
        assert verdict(name.format("model=gate,"), name.format("")) == "within"

    def test_ablations(self):
        whole, without_beta = (
            f"{ETSMLP}size=small",
            f"{ETSMLP}ablation=no_beta,size=small",
        )
        names = [
            f"{ETSMLP}ablation={name},size=small"
            for name in ("real", "no_alpha", "no_omega")
        ]
        for name in (*names, without_beta):
            assert verdict(name, whole) == "within"
            assert 3 * RECORDS.compared(name, whole).error < 0.2
        values = [row["value"] for row in RECORDS.of(without_beta).rows]
        others = [
            row["value"] for name in (*names, whole) for row in RECORDS.of(name).rows
        ]
        assert max(values) == pytest.approx(0.69, abs=0.005)
        assert all(0.61 < each < 0.63 for each in sorted(values)[:2] + others)

    def test_initializations(self):
        inits = [each for each in FOUND if each.name.startswith(f"{ETSMLP}init=")]
        assert len(inits) == 5
        for each in inits:
            assert verdict(each.name, f"{ETSMLP}size=small") == "within"


class TestFRU:
    def test_pixels(self):
        for name in ("pixels,model=fru", "pixels,model=fru40", "permuted,model=fru"):
            found, theirs = RECORDS.of(f"{FRU}{name}"), PAPER[f"inputs={name}"]
            assert abs(found.mean - theirs) < 3 * found.error
        for inputs in ("pixels", "permuted"):
            for unit in ("sru", "lstm", "rnn"):
                small = f"{FRU}{inputs},model={unit},size=small"
                assert verdict(small, f"{FRU}{inputs},model=fru,size=small") == "below"
        for unit in ("lstm", "rnn"):
            found = RECORDS.of(f"{FRU}pixels,model={unit},size=small")
            assert found.mean == pytest.approx(found.baseline)

    def test_imdb(self):
        for name in ("fru,n_frequencies=1", "sru"):
            assert verdict(f"fru/imdb:model={name}", "fru/imdb:model=fru") == "within"
        for unit, theirs in (("lstm", 0.8364), ("rnn", 0.505)):
            assert mean(f"fru/imdb:model={unit}") > theirs

    @pytest.mark.parametrize("curves", ["sines", "poly5", "poly10", "poly15"])
    def test_mixtures(self, curves):
        for size in ("", ",size=small"):
            fru, sru, lstm, rnn = (
                f"fru/mixture:curves={curves},model={unit}{size}"
                for unit in ("fru", "sru", "lstm", "rnn")
            )
            missed = {name: RECORDS.missed(name, fru) for name in (sru, lstm, rnn)}
            assert min(missed.values()) > 1
            if not size:
                assert missed[rnn] > 100 and 5 < missed[lstm] < 50
                assert (missed[sru] < 5) == curves.startswith("poly")

    def test_rows(self):
        twenty = "fru/frequencies:inputs=rows,n_frequencies=20"
        for n in (5, 10):
            name = f"fru/frequencies:inputs=rows,n_frequencies={n}"
            assert verdict(name, twenty) == "within"
        for unit in ("sru", "lstm"):
            assert verdict(f"{FRU}rows,model={unit}", f"{FRU}rows,model=fru") == "above"
        assert mean(f"{FRU}rows,model=rnn") == pytest.approx(
            mean(f"{FRU}rows,model=fru")
        )

    def test_range_of_the_frequencies(self):
        low = "fru/frequencies:inputs=pixels,n_frequencies=20,size=small"
        high = low.replace("size", "frequency_max=196,size")
        assert len(values(low)) == len(values(high)) == 3
        assert verdict(low, high) == "within"


class TestLongSSM:
    @pytest.mark.parametrize("length", [16, 32])
    def test_s5(self, length):
        carry, zero = (small("s5", length, states) for states in ("carry", "zero"))
        assert extension.extending(RECORDS.of(carry).rows) == "3 of 3"
        assert extension.extending(RECORDS.of(zero).rows) == "0 of 3"
        verdict = {16: "within", 32: "rises"}[length]
        assert RECORDS.gain(carry, zero).verdict == verdict
        assert RECORDS.equal(carry, zero).verdict == "rises"

    @pytest.mark.parametrize("length", [16, 32])
    def test_mamba(self, length):
        carry, zero = (small("mamba", length, states) for states in ("carry", "zero"))
        assert (
            extension.verdicts(RECORDS.of(zero).rows)
            == {
                16: ["none", "weak", "none"],
                32: ["weak"] * 3,
            }[length]
        )
        assert RECORDS.change(zero).verdict == "falls"
        assert RECORDS.gain(carry, zero).verdict == "rises"
        assert RECORDS.equal(carry, zero).verdict == "rises"

    def test_gru(self):
        gains = []
        for length in (16, 32, 128):
            carry, zero = (small("gru", length, each) for each in ("carry", "zero"))
            assert (
                RECORDS.change(zero).verdict == RECORDS.change(carry).verdict == "falls"
            )
            assert RECORDS.gain(carry, zero).verdict == "rises"
            gains.append(RECORDS.gain(carry, zero).mean)
        assert gains == sorted(gains, reverse=True)

    @pytest.mark.parametrize("model", ["s5", "mamba", "gru"])
    def test_short_carried_windows_beside_longer_ones(self, model):
        carry, zero = small(model, 16, "carry"), small(model, 32, "zero")
        assert RECORDS.gain(carry, zero).verdict == "rises"
        assert RECORDS.of(carry).last["steps"] == 2 * RECORDS.of(zero).last["steps"]

    def test_instability(self):
        def name(model, states, rate):
            return f"longssm/text:model={model},length=16,state_init={states}{rate}"

        settings = [
            ("s5", "carry", ""),
            ("s5", "carry", ",state_penalty=0.001"),
            ("s5_bounded", "carry", ""),
            ("s5", "zero", ""),
        ]
        for rate, n_rising in (("0.01", 0), ("0.1", 0), ("0.5", 1)):
            for model, states, more in settings:
                rows = RECORDS.of(name(model, states, f",{TINY}{rate}{more}")).rows
                assert len(rows) == 3 and all(len(row["curve"]) == 4 for row in rows)
                expected = n_rising if states == "carry" else 0
                assert sum(map(sections.rises, rows)) == expected
        penalized = name("s5", "carry", f",{TINY}0.5,state_penalty=0.001")
        (worse,) = (
            row
            for row in RECORDS.of(penalized).rows
            if row["value"] > row["baseline"]["perplexity"]
        )
        assert sections.rises(worse)
        last = [*worse["curve"].values()][-1]
        assert last == pytest.approx(worse["baseline"]["perplexity"], rel=0.05)
        one, two = (
            mean(name(model, "carry", f",{TINY}0.01")) for model in ("s5", "s5_bounded")
        )
        assert one == pytest.approx(two, abs=1e-4)

    def test_seeds_that_extend(self):
        """What the README says of all lengths of training."""
        found = {
            (model, states): [
                extension.verdicts(each.rows)
                for each in FOUND
                if re.fullmatch(
                    rf"longssm/text:model={model},length=\d+,state_init={states},"
                    "rows=32,size=small",
                    each.name,
                )
            ]
            for model in ("s5", "mamba", "gru")
            for states in ("carry", "zero")
        }
        n_none = {key: sum(of, []).count("none") for key, of in found.items()}
        n_runs = {key: len(sum(of, [])) for key, of in found.items()}
        assert min(n_runs.values()) >= 9
        assert n_none["s5", "zero"] == n_runs["s5", "zero"]
        assert 0 < n_none["mamba", "zero"] < n_runs["mamba", "zero"]
        assert n_none["gru", "zero"] == 0
        for model in ("s5", "mamba", "gru"):
            assert set(sum(found[model, "carry"], [])) == {"strong"}


class TestBeyond:
    def test_ces_as_a_language_model(self):
        for states in ("carry", "zero"):
            ces, dlr, fru, gru = (
                f"longssm/text:model={model},length=16,state_init={states},rows=32,"
                "size=tiny"
                for model in ("ets", "dlr", "fru", "gru")
            )
            assert verdict(ces, fru) == "below"
            assert verdict(ces, dlr) == verdict(ces, gru) == "above"

    def test_carried_states(self):
        for model in ("dlr", "ets", "gru", "fru"):
            carry, zero = (
                RECORDS.of(
                    f"longssm/text:model={model},length=16,state_init={states},"
                    "rows=32,size=tiny"
                )
                for states in ("carry", "zero")
            )
            if model == "fru":
                assert abs(RECORDS.change(carry.name).mean) < 0.001
                found = extension.verdicts(carry.rows)
                assert sorted(found) == ["none", "none", "weak"]
                assert RECORDS.gain(carry.name, zero.name).verdict == "rises"
                assert RECORDS.change(zero.name).verdict == "rises"
                assert RECORDS.equal(carry.name, zero.name).verdict == "rises"
            else:
                assert extension.verdicts(carry.rows) == ["strong"] * 3

    def test_forecasts(self):
        rows = [row for row in ROWS if row["experiment"] == "own_data/beijing"]
        last = rows[0]["forecast"]["last value"]
        names = {row["variant"] for row in rows}
        means, errors = {}, {}
        for name in names:
            of = [row["forecast"]["model"] for row in rows if row["variant"] == name]
            assert (
                statistics.mean(each["mae_by_step"][0] for each in of)
                > (last["mae_by_step"][0])
            )
            means[name] = statistics.mean(each["mae"] for each in of)
            errors[name] = statistics.stdev(each["mae"] for each in of) / len(of) ** 0.5
            assert max(each["mae"] for each in of) < last["mae"]
        for one, other in itertools.combinations(names, 2):
            error = math.hypot(errors[one], errors[other])
            assert abs(means[one] - means[other]) < 3 * error
