"""Length extension as extrapolation, in numbers, and as it was measured."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers
from flax.core import meta

from experiments import beyond
from experiments.longssm import text
from experiments.longssm.figures import pretrained
from experiments.longssm.figures.extrapolation import FIT_STEPS, errors, fit, memory
from experiments.longssm.figures.lengths import RECORDS, Curve, curves
from ssm_jax.config import build
from ssm_jax.evaluation.length_extension import losses_by_length
from ssm_jax.interop import save_mamba
from ssm_jax.layers import Mamba
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from tests.tiers import tiered


@pytest.mark.parametrize("m", [4, 6, 8, 10, 12, 16])
def test_memory_fitted_to_windows_is_wrong_beyond_them(m):
    (within, beyond), (seen, far) = (
        errors(m, FIT_STEPS[name]) for name in ("zero", "carry")
    )
    assert max(within, seen) < 0.1
    assert beyond > 10
    assert far < beyond / 5


def test_more_decays_are_better_only_where_they_are_fitted():
    few, many = errors(4, FIT_STEPS["zero"]), errors(10, FIT_STEPS["zero"])
    assert many[0] < few[0] / 100
    assert many[1] > few[1]


def test_decays_that_make_up_the_memory_are_found():
    """Fitted to all of it there is nothing to extrapolate."""
    whole = np.arange(2048)
    np.testing.assert_allclose(fit(16, len(whole)), memory(whole), rtol=0.02)


def parameters(variant, vocabulary):
    config = text.get_config(f"length=16,state_init=carry,{variant}")
    config.task.vocabulary = vocabulary
    tokens = jax.ShapeDtypeStruct((1, 16), "int32")
    init = build(config.copy_and_resolve_references().model).init
    variables = meta.unbox(jax.eval_shape(init, jax.random.key(0), tokens))
    return sum(leaf.size for leaf in jax.tree.leaves(variables))


@pytest.mark.full
def test_page_has_the_numbers_of_parameters():
    page = Path(text.__file__).parents[2] / "docs" / "papers" / "longssm.md"
    lines = re.findall(
        r"^\| [\d, ]+ \| (\w+), (\d+) layers \| `(\w+)` \| ([\d.]+)M \| ([\d.]+)M \|",
        page.read_text(),
        re.MULTILINE,
    )
    assert len(lines) == 9
    assert text.get_config().task.vocabulary == 30_000
    for model, n_layers, size, *millions in dict.fromkeys(lines):
        assert text.SIZES[size][1] == int(n_layers)
        variant = f"model={model.lower()},size={size}"
        sizes = [f"{parameters(variant, n) / 1e6:.1f}" for n in (30_000, 50_257)]
        assert sizes == millions


@pytest.mark.parametrize("size", tiered(["tiny", "small", "d384"], 0, full=3))
def test_matrix_states_have_as_many_parameters_as_s5(size):
    vocabulary = 257 if size in ("tiny", "small") else 30_000
    s5, hybrid, *others = (
        parameters(f"model={model},size={size}", vocabulary)
        for model in ("s5", "hybrid", "mamba2", "gated_delta_net")
    )
    assert abs(hybrid - s5) < 0.01 * s5
    assert all(abs(n - s5) < 0.03 * s5 for n in others)


def test_table_of_layers_has_their_numbers_of_parameters():
    (table,) = (table for table in beyond.PAPER.tables if table.name == "LongSSM")
    numbers = re.findall(r"\d+,\d{3}", table.note)
    models = ("s5", "hybrid", "gated_delta_net", "mamba2", "mamba")
    variants = [f"model={model},size=tiny" for model in models]
    assert numbers == [f"{parameters(variant, 257):,}" for variant in variants]


S5 = "model=s5,length=16"


def write_record(folder, variant, lines, seed=0, **more):
    path = folder / f"text.{variant}.seed{seed}.json"
    path.write_text(json.dumps({"variant": variant, **more}))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.with_suffix(".jsonl").write_text(text)


def length_lines(fresh, carried, shuffled, split="test"):
    """What a run records: fresh at 1, 2 and 4 tokens, carried once, shuffled at all."""
    evaluations = [
        ("zero", "text", n, p) for n, p in zip((1, 2, 4), fresh, strict=True)
    ]
    evaluations += [("carry", "text", 4, carried)]
    evaluations += [
        ("carry", "shuffled", n, p) for n, p in zip((1, 2, 4), shuffled, strict=True)
    ]
    return [
        {"split": split, "window_state": s, "order": o, "length": n, "loss": np.log(p)}
        for s, o, n, p in evaluations
    ]


def test_curves_of_each_training_and_evaluation(tmp_path):
    """From zero states in order and with carried ones in none; seeds averaged."""
    carried = length_lines([9.0, 8.0, 7.0], 6.0, [10.0, 8.5, 6.5])
    fresh = length_lines([5.0, 6.0, 7.0], 11.0, [20.0, 20.0, 20.0])
    fresh_1 = length_lines([7.0, 8.0, 9.0], 11.0, [20.0, 20.0, 20.0])
    write_record(tmp_path, f"{S5},state_init=carry,rows=32,size=small", carried)
    write_record(tmp_path, f"{S5},state_init=zero,rows=32,size=small", fresh)
    write_record(tmp_path, f"{S5},state_init=zero,rows=32,size=small", fresh_1, seed=1)
    # Not of this figure: rows that depend on the length, another learning rate,
    # training in no order, other states, another split, and what is stale.
    zero = f"{S5},state_init=zero"
    write_record(tmp_path, f"{zero},size=small", fresh)
    write_record(tmp_path, f"{zero},rows=32,size=small,learning_rate=0.02", fresh)
    write_record(
        tmp_path, f"{S5},state_init=zero,order=shuffled,rows=32,size=small", fresh
    )
    write_record(tmp_path, f"{S5},state_init=noise,rows=32,size=small", fresh)
    write_record(
        tmp_path,
        f"{S5},state_init=zero,rows=32,size=small",
        fresh,
        seed=2,
        stale="Of one novel.",
    )
    lengths, model = [1, 2, 4], ("s5", 16)
    shuffled, in_order = ("carry", "shuffled"), ("zero", "text")
    # The perplexities of the mean losses of two seeds.
    mean = np.sqrt(np.multiply([5.0, 6.0, 7.0], [7.0, 8.0, 9.0])).tolist()
    expected = [
        Curve(*model, "carry", shuffled, lengths, [10.0, 8.5, 6.5]),
        Curve(*model, "carry", in_order, lengths, [9.0, 8.0, 7.0]),
        Curve(*model, "zero", shuffled, lengths, [20.0, 20.0, 20.0]),
        Curve(*model, "zero", in_order, lengths, mean),
    ]
    gru = "model=gru,length=16,state_init=zero,rows=32,size=small"
    write_record(tmp_path, gru, fresh)
    assert {curve.model for curve in curves(tmp_path)} == {"gru", "s5"}
    found = curves(tmp_path, models=["s5"])
    for curve, expected_curve in zip(found, expected, strict=True):
        assert curve[:-1] == expected_curve[:-1]
        np.testing.assert_allclose(curve[-1], expected_curve[-1], rtol=1e-12)


def test_curves_need_records(tmp_path):
    with pytest.raises(ValueError, match="`records` must hold runs of .*, got none in"):
        curves(tmp_path)
    stale = length_lines([1.0] * 3, 1.0, [1.0] * 3)
    write_record(
        tmp_path,
        f"{S5},state_init=zero,rows=32,size=small",
        stale,
        stale="Of one novel.",
    )
    with pytest.raises(ValueError, match="`records` must hold runs of .*, got none in"):
        curves(tmp_path)
    assert curves(RECORDS)


def test_records_measured_on_one_novel_are_stale():
    """Their lines say nothing of the text, for they are of the beginning of one."""
    for path in RECORDS.glob("*.jsonl"):
        row = json.loads(path.with_suffix(".json").read_text())
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert bool(row.get("stale")) == any("corpus" not in line for line in lines)


def test_rows_do_not_depend_on_the_length_where_that_is_asked():
    lengths = np.array([16, 32, 128])
    for choice, rows in ((",rows=32", [32, 32, 32]), ("", [128, 64, 16])):
        variants = (
            f"model=s5,length={n},state_init=carry{choice},size=small" for n in lengths
        )
        settings = [text.get_config(variant).training for variant in variants]
        assert [setting.batch_size for setting in settings] == rows
        # As much text for every length, in training and in validation.
        for name in ("steps", "evaluation_batches"):
            n_tokens = (
                np.array([setting[name] for setting in settings]) * rows * lengths
            )
            assert len(set(n_tokens)) == 1


@pytest.mark.full
def test_published_models_are_measured_from_their_files(tmp_path, key):
    tokens = np.random.default_rng(0).integers(0, 11, 130)
    (tmp_path / "text.txt").write_text(" ".join(f"w{token}" for token in tokens))
    model = SequenceModel(
        encoder=TokenEncoder(d_model=16, vocabulary=11, std=0.02),
        block=Block(Mamba(n_layers=1), norm="rms", prenorm=True),
        n_layers=1,
        head=None,
    )
    variables = meta.unbox(jax.jit(model.init)(key, tokens[None]))
    words = tokenizers.models.WordLevel({f"w{i}": i for i in range(11)}, "w0")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    (tmp_path / "tiny").mkdir()
    save_mamba(model, variables, tmp_path / "tiny")
    tokenizer.save(str(tmp_path / "tiny" / "tokenizer.json"))

    ((name, losses),) = pretrained.measure(tmp_path, (8, 64))
    assert name == "tiny"
    expected = losses_by_length(model, variables, tokens, (8, 64))
    assert [loss.length for loss in losses] == [8, 64]
    assert [loss.loss for loss in losses] == [loss.loss for loss in expected]


def test_no_published_model_is_an_error(tmp_path):
    (tmp_path / "text.txt").write_text("w1 w2")
    with pytest.raises(ValueError, match=r"must hold a folder with a config\.json"):
        next(pretrained.measure(tmp_path))


def test_size_of_state_is_of_mamba_alone():
    with pytest.raises(ValueError, match=r"`variant: d_state` must be left out for s5"):
        text.get_config("model=s5,length=16,state_init=zero,d_state=64")
