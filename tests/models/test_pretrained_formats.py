"""Each format of Hugging Face, in and out, and against `transformers`."""

import functools
import json

import chex
import jax
import numpy as np
import pytest
from flax.core import meta
from safetensors.numpy import load_file, save_file

from ssm_jax.interop import load_mamba, load_pretrained, save_pretrained
from ssm_jax.layers import GatedMLP, Griffin, Mamba, Mamba2, SlidingAttention
from ssm_jax.models import (
    Block,
    SequenceModel,
    StepHead,
    TokenEncoder,
    recurrent_gemma,
)
from ssm_jax.recurrences import RGLRU, SSD, SelectiveSSM
from ssm_jax.training.setup import warm_start
from tests.bad_inputs import refuses
from tests.tiers import tiered

TOKENS = np.random.default_rng(0).integers(0, 11, (2, 19))


def language_model(layer, tied=True, **fields):
    return SequenceModel(
        encoder=TokenEncoder(d_model=16, vocabulary=11, std=0.02),
        block=Block(layer, norm="rms", prenorm=True, **fields),
        n_layers=2,
        head=None if tied else StepHead(11, use_bias=False),
    )


GROUPS = SSD(d_head=4, d_state=3, n_groups=2, step_limits=(0.5, 0.9))
MODELS = {
    "mamba2": language_model(Mamba2(SSD(d_head=8, d_state=5), n_layers=2)),
    "mamba2_groups": language_model(
        Mamba2(GROUPS, expand=1, d_conv=3, n_layers=2), tied=False
    ),
    "falcon_mamba": language_model(
        Mamba(SelectiveSSM(d_state=3, rms_epsilon=1e-6), n_layers=2)
    ),
    "falcon_mamba_untied": language_model(
        Mamba(SelectiveSSM(d_state=3, dt_rank=5, rms_epsilon=0.1), n_layers=2),
        tied=False,
        rms_epsilon=0.125,
    ),
}
MODELS["recurrent_gemma"] = recurrent_gemma(
    16, n_layers=5, n_heads=2, vocabulary=11, window=4
)
# Its recurrence is of the width of the model, because theirs decodes no other.
GRIFFIN, ATTENTION = (
    Block(
        layer,
        norm="rms",
        prenorm=True,
        feedforward=GatedMLP(10),
        rms_epsilon=0.125,
    )
    for layer in (
        Griffin(RGLRU(n_heads=4), width=16, d_conv=3),
        SlidingAttention(n_heads=4, window=7, n_kv_heads=2, d_head=6),
    )
)
MODELS["recurrent_gemma_untied"] = MODELS["recurrent_gemma"].clone(
    block=(GRIFFIN, ATTENTION),
    pattern="ba",
    n_layers=3,
    logit_cap=2.0,
    head=StepHead(11, use_bias=False),
)
ARCHITECTURES = {
    "recurrent_gemma": "RecurrentGemmaForCausalLM",
    "recurrent_gemma_untied": "RecurrentGemmaForCausalLM",
    "falcon_mamba": "FalconMambaForCausalLM",
    "falcon_mamba_untied": "FalconMambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
    "mamba2_groups": "Mamba2ForCausalLM",
}


def random_weights(model):
    """Weights far from those of an initialization, and scales about 1."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), TOKENS)
    rng = np.random.default_rng(1)

    def draw(path, leaf):
        mean = 1 if path[-1].key in ("scale", "feedthrough") else 0
        return np.float32(mean + 0.3 * rng.normal(size=leaf.shape))

    return jax.tree_util.tree_map_with_path(draw, meta.unbox(shapes))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Saves a model when it is first needed; returns its folder and its weights."""

    @functools.cache
    def save(name):
        folder, variables = tmp_path_factory.mktemp(name), random_weights(MODELS[name])
        save_pretrained(MODELS[name], variables, folder)
        return folder, variables

    return save


def logits_of(model, variables):
    return jax.jit(model.apply)(variables, TOKENS)[0]


@pytest.mark.parametrize("name", tiered(list(MODELS)))
def test_saved_model_is_loaded_again(saved, name):
    folder, variables = saved(name)
    model, again = load_pretrained(folder)
    assert model == MODELS[name]
    # A difference from 1 is rounded.
    chex.assert_trees_all_close(again, variables, rtol=0, atol=1e-7)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [ARCHITECTURES[name]]
    assert config["tie_word_embeddings"] == (model.head is None)


@pytest.mark.full
def test_run_begins_from_the_weights_of_a_folder(saved):
    folder, variables = saved("mamba2_groups")
    zeros = jax.tree.map(np.zeros_like, variables["params"])
    chex.assert_trees_all_equal(
        warm_start(folder, zeros, {}).params, variables["params"]
    )


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_tokens_one_by_one_are_those_of_one_call(saved, name):
    model, variables = load_pretrained(saved(name)[0])
    apply, state, found = jax.jit(model.apply), model.initial_state((2,)), []
    for token in TOKENS.T:
        logits, state = apply(variables, token[:, None], state)
        found.append(logits)
    expected = logits_of(model, variables)
    atol = 2e-5 * np.abs(expected).max()
    np.testing.assert_allclose(np.concatenate(found, 1), expected, rtol=0, atol=atol)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODELS)
def test_logits_match_transformers(saved, name, tmp_path):
    """Needs ``torch`` and ``transformers``, which the package does not depend on."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder, variables = saved(name)
    theirs = getattr(transformers, ARCHITECTURES[name]).from_pretrained(folder).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor(TOKENS), use_cache=False).logits.numpy()
    logits = logits_of(MODELS[name], variables)
    np.testing.assert_allclose(logits, expected, atol=2e-5 * np.abs(expected).max())
    # Their own files have other fields, and the same weights.
    theirs.save_pretrained(tmp_path)
    model, again = load_pretrained(tmp_path)
    chex.assert_trees_all_close(again, variables, rtol=0, atol=1e-7)
    logits = logits_of(model, again)
    np.testing.assert_allclose(logits, expected, atol=2e-5 * np.abs(expected).max())


def copied(folder, target, config=None, arrays=None, absent=()):
    """Copies a model, with some fields and weights replaced or left out."""
    fields = json.loads((folder / "config.json").read_text()) | (config or {})
    fields = {name: value for name, value in fields.items() if value != "absent"}
    (target / "config.json").write_text(json.dumps(fields))
    weights = load_file(folder / "model.safetensors") | (arrays or {})
    weights = {name: weights[name] for name in weights if name not in absent}
    save_file(weights, target / "model.safetensors")


CONFIGS = {
    "mamba2": {
        "heads": ("num_heads", 3),
        "groups": ("n_groups", 3),
        "size": ("head_dim", "absent"),
        "limits": ("time_step_limit", [0.1]),
        "limits that cross": ("time_step_limit", [0.9, 0.5]),
        "limit of words": ("time_step_limit", [0.0, "inf"]),
        "epsilon": ("layer_norm_epsilon", 1e-6),
        "bias": ("use_bias", True),
        "tied": ("tie_word_embeddings", "no"),
    },
    "falcon_mamba": {
        "epsilon": ("mixer_rms_eps", 0.0),
        "width": ("intermediate_size", 40),
        "rank": ("time_step_rank", "big"),
    },
    "recurrent_gemma": {
        "odd width": ("intermediate_size", 95),
        "heads": ("lru_width", 17),
        "heads of keys": ("num_key_value_heads", 3),
        "kind": ("block_types", ["recurrent", "global"]),
        "one kind": ("block_types", ["recurrent"]),
        "rotated": ("partial_rotary_factor", 0.1),
        "more than all": ("partial_rotary_factor", 1.5),
        "angles": ("rope_parameters", {"rope_theta": 500}),
        "base": ("rope_theta", 500.0),
        "cap": ("logits_soft_cap", None),
        "activation": ("hidden_activation", "silu"),
    },
}
BAD_CONFIGS = {
    f"{name}, {what}": (name, *case)
    for name, cases in CONFIGS.items()
    for what, case in cases.items()
}


@pytest.mark.parametrize(
    ("name", "field", "value"), tiered(BAD_CONFIGS, 1, unpack=True)
)
def test_config_with_a_bad_field_is_rejected(saved, tmp_path, name, field, value):
    copied(saved(name)[0], tmp_path, config={field: value})
    shown = "" if value == "absent" else str(value).strip("[]()")
    with refuses("folder", shown, rule=field.replace("time_step", "")):
        load_pretrained(tmp_path)


INFINITE = (float("inf"), {"__float__": "Infinity"})


@pytest.mark.full
@pytest.mark.parametrize("infinity", INFINITE, ids=["bare", "object"])
def test_infinite_bound_of_the_steps_is_none(saved, tmp_path, infinity):
    copied(saved("mamba2")[0], tmp_path, {"time_step_limit": [0.25, infinity]})
    model, _ = load_pretrained(tmp_path)
    assert model.blocks[0].layer.recurrence.step_limits == (0.25, None)


@pytest.mark.full
@pytest.mark.parametrize("word", ["NaN", "-Infinity"])
def test_bound_that_is_no_number_is_rejected(saved, tmp_path, word):
    config = {"time_step_limit": [0.0, {"__float__": word}]}
    copied(saved("mamba2")[0], tmp_path, config)
    with refuses("folder", word, rule="time_step_limit"):
        load_pretrained(tmp_path)


@pytest.mark.full
def test_width_of_the_weights_has_precedence(saved, tmp_path):
    """A published config has another ``expand`` than its weights."""
    folder, variables = saved("falcon_mamba")
    copied(folder, tmp_path, {"expand": 16})
    model, again = load_pretrained(tmp_path)
    assert model == MODELS["falcon_mamba"]
    chex.assert_trees_all_equal(again, variables)


WEIGHTS = {
    "mamba2": "backbone.layers.1.mixer.norm.weight",
    "mamba2_groups": "lm_head.weight",
    "falcon_mamba": "backbone.layers.1.mixer.dt_proj.bias",
    "recurrent_gemma": "model.layers.2.temporal_block.k_proj.weight",
    "recurrent_gemma_untied": "model.layers.1.temporal_block.rg_lru.input_gate_bias",
}


@pytest.mark.parametrize(("name", "weight"), tiered(WEIGHTS.items(), 1, unpack=True))
def test_weights_that_do_not_fit_are_rejected(saved, tmp_path, name, weight):
    folder = saved(name)[0]
    copied(folder, tmp_path, absent=[weight])
    with refuses("folder", weight, rule="missing"):
        load_pretrained(tmp_path)
    shape = load_file(folder / "model.safetensors")[weight].shape
    copied(folder, tmp_path, arrays={weight: np.zeros((*shape[:-1], 7), np.float32)})
    with refuses("folder", shape, rule=weight):
        load_pretrained(tmp_path)


def test_readout_that_is_a_table_of_its_own_needs_an_untied_config(saved, tmp_path):
    folder = saved("mamba2")[0]
    readout = {"lm_head.weight": np.ones((11, 16), np.float32)}
    copied(folder, tmp_path, arrays=readout)
    with refuses("folder", "lm_head.weight", rule="tie_word_embeddings"):
        load_pretrained(tmp_path)
    copied(folder, tmp_path, {"tie_word_embeddings": "absent"}, readout)
    # The default of `Mamba2ForCausalLM`.
    _, variables = load_pretrained(tmp_path)
    assert np.all(variables["params"]["head"]["linear"]["dense"]["kernel"] == 1)


def test_other_models_are_named(saved, tmp_path):
    copied(saved("mamba2")[0], tmp_path, {"model_type": "llama"})
    with refuses("folder", "'llama'", rule="mamba2"):
        load_pretrained(tmp_path)
    with refuses("folder", "'mamba2'", rule="model_type"):
        load_mamba(saved("mamba2")[0])


@pytest.mark.full
def test_model_that_no_format_represents_is_rejected(tmp_path):
    layer = Mamba2(GROUPS, n_layers=2)
    for model, shown in (
        (language_model(layer, rms_epsilon=1e-6), "1e-06"),
        (language_model(layer, dropout=0.125), "0.125"),
        (MODELS["recurrent_gemma"].clone(logit_cap=None), "logit_cap = None"),
        (language_model(GRIFFIN.layer), "Griffin"),
        (language_model(layer).clone(head=StepHead(11)), "use_bias = True"),
    ):
        with refuses("model", shown, rule="Mamba2ForCausalLM"):
            save_pretrained(model, {}, tmp_path)
