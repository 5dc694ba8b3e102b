"""Mamba models in the format of Hugging Face, against `transformers`."""

import json

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
        wanted = theirs(torch.tensor(TOKENS)).logits.numpy()
    logits, _ = jax.jit(model.apply)(variables, TOKENS)
    np.testing.assert_allclose(logits, wanted, atol=1e-4 * np.abs(wanted).max())
