"""Records with old names become records of experiments that exist."""

import json

import pytest

from experiments import convert_records
from experiments.records import config_of


@pytest.mark.parametrize(
    ("experiment", "old", "new"),
    [
        ("dlr/pixel_mnist", "permuted", "permuted=true"),
        ("etsmlp/pathx", "small_change+gate", "model=gate,small_change=true"),
        ("etsmlp/listops", "gate+ring_0.6_0.9", "model=gate,init=ring_0.6_0.9"),
        ("etsmlp/listops", "code", "hyperparameters=code"),
        ("etsmlp/language", "cola+gate+small", "dataset=cola,model=gate,size=small"),
        ("fru/imdb", "words1+fru", "model=fru,n_frequencies=1"),
        ("fru/mixture", "poly5+lstm", "curves=poly5,model=lstm"),
        ("fru/pixel_mnist", "rows+rnn+quarter", "inputs=rows,model=rnn,size=quarter"),
        (
            "longssm/text",
            "s5+16+other+shuffled+d768",
            "model=s5,length=16,state_init=state_passing,order=shuffled,size=d768",
        ),
        ("dlr/digits", "", ""),
    ],
)
def test_variant_is_that_of_the_experiment(experiment, old, new):
    assert convert_records.variant(old, experiment) == new
    assert convert_records.variant(new, experiment) == new
    assert config_of({"experiment": experiment, "variant": new}).variant == new


def test_files_are_converted_once(tmp_path, monkeypatch):
    monkeypatch.setitem(convert_records.ADDRESSES, "ssm_jax.a:B", "ssm_jax.c:D")
    monkeypatch.setitem(convert_records.FIELDS, "stair", "staircase")
    folder = tmp_path / "longssm"
    folder.mkdir()
    old = folder / "text.s5+16+previous+small.seed2.json"
    row = {
        "experiment": "longssm/text", "variant": "s5+16+previous+small", "seed": 2,
        "config": {"cls": "ssm_jax.a:B", "stair": 0.5, "betas": [0.9]},
    }  # fmt: skip
    old.write_text(json.dumps(row))
    line = {"start": "previous", "order": "text", "perplexity": 5.0}
    old.with_suffix(".jsonl").write_text(json.dumps(line) + "\n")
    convert_records.main(tmp_path, lambda text: None)
    variant = "model=s5,length=16,state_init=carry,size=small"
    new = folder / f"text.{variant}.seed2.json"
    assert sorted(folder.iterdir()) == [new, new.with_suffix(".jsonl")]
    config = {"cls": "ssm_jax.c:D", "staircase": 0.5, "betas": [0.9]}
    assert json.loads(new.read_text()) == row | {"variant": variant, "config": config}
    assert json.loads(new.with_suffix(".jsonl").read_text()) == {
        "window_state": "carry", "order": "text", "perplexity": 5.0
    }  # fmt: skip
    before = {path: path.read_text() for path in folder.iterdir()}
    convert_records.main(tmp_path, lambda text: None)
    assert {path: path.read_text() for path in folder.iterdir()} == before


def test_experiment_that_became_a_variant_is_renamed(tmp_path):
    (tmp_path / "dlr").mkdir()
    old = tmp_path / "dlr/shift.size=demo.seed0.json"
    row = {"experiment": "dlr/shift", "variant": "size=demo", "seed": 0}
    old.write_text(json.dumps(row))
    convert_records.main(tmp_path, lambda text: None)
    new = tmp_path / "dlr/atomic.task=shift,size=demo.seed0.json"
    assert list(new.parent.iterdir()) == [new]
    named = {"experiment": "dlr/atomic", "variant": "task=shift,size=demo"}
    assert json.loads(new.read_text()) == row | named


def test_unknown_word_is_refused():
    with pytest.raises(ValueError, match="`variant` must have known words, got 'big'"):
        convert_records.variant("big", "dlr/digits")
