"""Length extension as extrapolation, in numbers, and as it was measured."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers
from flax.core import meta

from experiments.longssm import pretrained, text
from experiments.longssm.extrapolation import SEEN, errors, fitted, memory
from experiments.longssm.lengths import RECORDS, Curve, curves
from ssm_jax.config import build
from ssm_jax.evaluation.length_extension import losses_by_length
from ssm_jax.interop import save_mamba
from ssm_jax.layers import Mamba
from ssm_jax.models import Block, SequenceModel, TokenEncoder


@pytest.mark.parametrize("m", [4, 6, 8, 10, 12, 16])
def test_memory_fitted_to_windows_is_wrong_beyond_them(m):
    (within, beyond), (seen, far) = (
        errors(m, SEEN[name]) for name in ("zero", "previous")
    )
    assert max(within, seen) < 0.1
    assert beyond > 10
    assert far < beyond / 5


def test_more_decays_are_better_only_where_they_are_fitted():
    few, many = errors(4, SEEN["zero"]), errors(10, SEEN["zero"])
    assert many[0] < few[0] / 100
    assert many[1] > few[1]


def test_decays_that_make_up_the_memory_are_found():
    """Fitted to all of it there is nothing to extrapolate."""
    whole = np.arange(2048)
    np.testing.assert_allclose(fitted(16, len(whole)), memory(whole), rtol=0.02)


def test_curves_are_those_of_fresh_windows_in_order(tmp_path):
    way = {"start": "zero", "order": "text"}
    lines = [way | {"length": 2**i, "perplexity": 9.0 - i} for i in range(3)]
    others = [line | {"order": "shuffled"} for line in lines]
    others += [line | {"start": "previous"} for line in lines]
    for variant in ("s5+16+zero+small", "gru+8+previous", "gru+8+zero+shuffled"):
        path = tmp_path / f"text.{variant}.seed0.json"
        path.write_text(json.dumps({"variant": variant}))
        text = "".join(json.dumps(line) + "\n" for line in (*others, *lines))
        path.with_suffix(".jsonl").write_text(text)
    along = [1, 2, 4], [9.0, 8.0, 7.0]
    assert curves(tmp_path) == [
        Curve("gru", 8, "previous", *along),
        Curve("s5", 16, "zero", *along),
    ]


def test_curves_need_records(tmp_path):
    with pytest.raises(ValueError, match="must be records of models by length"):
        curves(tmp_path)
    assert curves(RECORDS)


@pytest.mark.parametrize(
    ("variant", "millions"),
    [
        ("s5+16+zero+d192", 12),
        ("s5+16+zero", 29),
        ("s5+16+zero+d768", 117),
        ("s5+16+zero+d1024", 329),
        ("gru+16+zero", 33),
        ("mamba+16+zero+d1024", 211),
    ],
)
def test_sizes_are_near_the_papers(variant, millions, key):
    """Of 50,257 tokens; the paper has 12, 30, 127, 370, 30 and 180."""
    config = text.get_config(variant)
    config.task.vocabulary = 50_257
    model = build(config.model)
    tokens = jnp.zeros((1, 16), jnp.int32)
    params = jax.eval_shape(lambda: model.init(key, tokens)["params"])
    found = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert round(found / 1e6) == millions


def test_published_models_are_measured_from_their_files(tmp_path, key):
    tokens = np.random.default_rng(0).integers(0, 11, 130)
    (tmp_path / "text.txt").write_text(" ".join(f"w{token}" for token in tokens))
    model = SequenceModel(
        encoder=TokenEncoder(d_model=16, vocabulary=11, deviation=0.02),
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

    ((name, found),) = pretrained.measured(tmp_path, (8, 64))
    assert name == "tiny"
    wanted = losses_by_length(model, variables, tokens, (8, 64))
    assert [each.length for each in found] == [8, 64]
    assert [each.loss for each in found] == [each.loss for each in wanted]


def test_no_published_model_is_an_error(tmp_path):
    (tmp_path / "text.txt").write_text("w1 w2")
    with pytest.raises(ValueError, match=r"must hold a folder with a config\.json"):
        next(pretrained.measured(tmp_path))
