"""Mamba models in the format of Hugging Face, against `transformers`."""

import json
import sys

import chex
import jax
import numpy as np
import pytest
from flax.core import meta
from safetensors.numpy import load_file, save_file

from ssm_jax.interop import load_mamba, save_mamba
from ssm_jax.layers import Mamba
from ssm_jax.models import Block, SequenceModel, StepHead, TokenEncoder
from ssm_jax.recurrences import SelectiveSSM
from ssm_jax.training.setup import warm_start
from tests.bad_inputs import refuses

TOKENS = np.random.default_rng(0).integers(0, 11, (2, 37))


def built(recurrence=None, head=None):
    """A small Mamba model with random parameters."""
    layer = Mamba(recurrence or SelectiveSSM(d_state=4), n_layers=2)
    model = SequenceModel(
        encoder=TokenEncoder(d_model=24, vocabulary=11, std=0.02),
        block=Block(layer, norm="rms", prenorm=True),
        n_layers=2,
        head=head,
    )
    variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), TOKENS))
    rng = np.random.default_rng(1)
    moved = jax.tree.map(
        lambda leaf: np.float32(leaf + 0.3 * rng.normal(size=leaf.shape)), variables
    )
    return model, moved


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mamba")
    model, variables = built()
    save_mamba(model, variables, folder)
    return folder, model, variables


def test_saved_model_is_loaded_again(saved):
    folder, model, variables = saved
    found, again = load_mamba(folder)
    assert found == model
    chex.assert_trees_all_equal(again, variables)
    logits, _ = jax.jit(found.apply)(again, TOKENS)
    assert logits.shape == (2, 37, 11)


@pytest.mark.full
def test_rank_other_than_the_default_is_kept(tmp_path):
    model, variables = built(SelectiveSSM(d_state=4, dt_rank=5))
    save_mamba(model, variables, tmp_path)
    found, again = load_mamba(tmp_path)
    assert found == model
    chex.assert_trees_all_equal(again, variables)


def test_weights_in_several_files_and_in_bfloat16_are_loaded(saved, tmp_path):
    folder, _, variables = saved
    arrays = load_file(folder / "model.safetensors")
    names = sorted(arrays)
    for i, part in enumerate((names[:5], names[5:])):
        half = {name: jax.numpy.bfloat16(arrays[name]) for name in part}
        save_file(jax.tree.map(np.asarray, half), tmp_path / f"model-{i}.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    _, again = load_mamba(tmp_path)
    chex.assert_trees_all_close(again, variables, rtol=2**-8)


@pytest.mark.parametrize("field", ["model_type", "use_bias", "layer_norm_epsilon"])
def test_config_of_another_model_is_rejected(saved, tmp_path, field):
    config = json.loads((saved[0] / "config.json").read_text()) | {field: "other"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"{field}.* 'other'"):
        load_mamba(tmp_path)


def copied(saved, folder, config=None, arrays=None):
    """Copies a model, with some fields of its config and some weights replaced."""
    fields = json.loads((saved[0] / "config.json").read_text()) | (config or {})
    fields = {name: value for name, value in fields.items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(fields))
    weights = load_file(saved[0] / "model.safetensors") | (arrays or {})
    save_file(weights, folder / "model.safetensors")


REQUIRED = ("vocab_size", "hidden_size", "state_size", "expand", "conv_kernel")
CONFIGS = {
    **{f"no {name}": {name: "absent"} for name in (*REQUIRED, "num_hidden_layers")},
    **{f"{name} in words": {name: "24"} for name in REQUIRED},
    "fraction": {"hidden_size": 24.0},
    "zero": {"state_size": 0},
    "bool": {"expand": True},
    "list": {"conv_kernel": [4]},
    "null": {"vocab_size": None},
    "layers": {"num_hidden_layers": 10**9},
    "rank": {"time_step_rank": "big"},
    "epsilon": {"layer_norm_epsilon": "1e-5"},
    "activation": {"hidden_act": ["silu"]},
}


@pytest.mark.parametrize("fields", CONFIGS.values(), ids=CONFIGS)
def test_config_with_a_bad_field_is_rejected(saved, tmp_path, fields):
    copied(saved, tmp_path, config=fields)
    ((name, value),) = fields.items()
    with refuses("folder", "" if value == "absent" else value, rule=name):
        load_mamba(tmp_path)


TEXTS = {
    "empty": b"",
    "truncated": b'{"hidden_size": 24,',
    "list": b"[]",
    "number": b"1",
    "not UTF-8": b'{"a": "\xff"}',
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_config_that_is_no_object_is_rejected(saved, tmp_path, text):
    copied(saved, tmp_path)
    (tmp_path / "config.json").write_bytes(text)
    with refuses("folder", tmp_path / "config.json"):
        load_mamba(tmp_path)


NAME = "backbone.layers.0.mixer.D"
D = np.arange(48, dtype=np.float32)
WEIGHTS = {
    "not a number": (NAME, np.where(D == 3, np.nan, D), "nan"),
    "infinite": (NAME, np.where(D == 3, -np.inf, D), "-inf"),
    "too large for float32": (NAME, D.astype(np.float64) * 1e300, "inf"),
    "int8": (NAME, D.astype(np.int8), "I8"),
    "int64": (NAME, D.astype(np.int64), "I64"),
    "bool": (NAME, D > 3, "BOOL"),
    "shape": (NAME, D[None], (1, 48)),
    "another readout": ("lm_head.weight", np.zeros((11, 24), np.float32), "lm_head"),
    "readout's shape": ("lm_head.weight", np.zeros((24, 11), np.float32), (24, 11)),
}


@pytest.mark.parametrize(("name", "array", "shown"), WEIGHTS.values(), ids=WEIGHTS)
def test_weight_that_is_no_finite_number_is_rejected(
    saved, tmp_path, name, array, shown
):
    copied(saved, tmp_path, arrays={name: array})
    with refuses("folder", shown, rule=name):
        load_mamba(tmp_path)


def test_readout_that_is_the_table_is_accepted(saved, tmp_path):
    table = load_file(saved[0] / "model.safetensors")["backbone.embeddings.weight"]
    copied(saved, tmp_path, arrays={"lm_head.weight": table})
    chex.assert_trees_all_equal(load_mamba(tmp_path)[1], saved[2])


FILES = {
    "empty": lambda whole: b"",
    "truncated": lambda whole: whole[:-100],
    "truncated header": lambda whole: whole[:20],
    "no weights": lambda whole: b"hello" * 100,
    "header of 2^60 bytes": lambda whole: (2**60).to_bytes(8, "little") + whole[8:],
}


@pytest.mark.parametrize("damage", FILES.values(), ids=FILES)
def test_damaged_file_of_weights_is_rejected(saved, tmp_path, damage):
    copied(saved, tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with refuses("folder", file, rule="whole"):
        load_mamba(tmp_path)


def test_weight_in_two_files_is_rejected(saved, tmp_path):
    copied(saved, tmp_path)
    save_file({NAME: D}, tmp_path / "other.safetensors")
    with refuses("folder", "other.safetensors", rule=NAME):
        load_mamba(tmp_path)


def test_package_that_is_not_installed_is_named(saved, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for call in (
        lambda: load_mamba(saved[0]),
        lambda: save_mamba(*saved[1:], tmp_path),
    ):
        with refuses("safetensors", rule="[interop]", error=ImportError):
            call()


def test_weights_that_do_not_fit_are_rejected(saved, tmp_path):
    (tmp_path / "config.json").write_text((saved[0] / "config.json").read_text())
    with pytest.raises(FileNotFoundError, match=".safetensors"):
        load_mamba(tmp_path)
    arrays = load_file(saved[0] / "model.safetensors")
    cut = arrays | {"backbone.layers.1.mixer.D": np.ones(7, np.float32)}
    save_file(cut, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"\(48,\) for backbone.layers.1.mixer.D"):
        load_mamba(tmp_path)
    arrays.pop("backbone.layers.0.mixer.A_log")
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="backbone.layers.0.mixer.A_log"):
        load_mamba(tmp_path)


@pytest.mark.full
def test_model_that_the_format_cannot_represent_is_rejected(tmp_path):
    model, variables = built(head=StepHead(d_output=11))
    with pytest.raises(ValueError, match="`model`.*`SequenceModel`"):
        save_mamba(model, variables, tmp_path)


def test_logits_match_transformers(saved):
    """Needs ``torch`` and ``transformers``, which the package does not depend on."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder, model, variables = saved
    theirs = transformers.MambaForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor(TOKENS)).logits.numpy()
    logits, _ = jax.jit(model.apply)(variables, TOKENS)
    np.testing.assert_allclose(logits, expected, atol=1e-4 * np.abs(expected).max())


def test_run_begins_from_the_weights_of_a_folder(saved):
    folder, model, variables = saved
    zeros = jax.tree.map(np.zeros_like, variables["params"])
    found = warm_start(folder, zeros, {})
    chex.assert_trees_all_equal(found.params, variables["params"])
    assert not found.skipped and not found.initialized and found.step == 0
    with refuses("init_from", str(folder), rule="path and shape"):
        warm_start(folder, {"other": np.zeros(3)}, {})
