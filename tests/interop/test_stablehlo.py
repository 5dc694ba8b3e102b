"""Exported programs, compared with the model that they were exported from."""

import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax.core import meta
from ml_collections import ConfigDict

from ssm_jax.config import spec
from ssm_jax.evaluation import restore
from ssm_jax.interop import export_model, exported_programs
from ssm_jax.interop.stablehlo import last_safe_date, named_leaves
from ssm_jax.layers import ChannelMixing, Mamba, RecurrentLayer, RotaryAttention
from ssm_jax.models import Block, PooledHead, SequenceModel, TokenEncoder, VectorEncoder
from ssm_jax.recurrences import CES, DLR, GRU, LRU, S5, SelectiveSSM
from ssm_jax.tasks import TextFolder
from ssm_jax.tasks.base import TaskSpec
from ssm_jax.training import Optimizer, TrainConfig, train
from tests.bad_inputs import refuses
from tests.cli import programs
from tests.tasks.raw_sets import novels
from tests.tiers import tiered
from tests.training import tiny

LENGTH, VOCABULARY = 20, 7
LANGUAGE = TaskSpec(
    length=LENGTH,
    inputs="token",
    d_input=VOCABULARY,
    targets="classification",
    d_output=VOCABULARY,
    l_output=LENGTH,
    language=True,
)
CLASSES = TaskSpec(
    length=LENGTH,
    inputs="vector",
    d_input=2,
    targets="classification",
    d_output=3,
    l_output=None,
)


def language_model(layer, norm="layer"):
    encoder = TokenEncoder(d_model=4, vocabulary=VOCABULARY)
    return SequenceModel(encoder, Block(layer, norm=norm), n_layers=2, head=None)


LAYERS = {
    "dlr": RecurrentLayer(DLR(d_state=4), ChannelMixing()),
    "gru": RecurrentLayer(GRU(d_state=4), ChannelMixing()),
    "mamba": Mamba(SelectiveSSM(d_state=3)),
}


def rows(spec, n, rng):
    """Inputs of ``n`` sequences of several lengths, and their mask."""
    inputs = rng.integers(0, VOCABULARY, (n, spec.length)).astype(np.int32)
    if spec.inputs == "vector":
        inputs = rng.normal(size=(n, spec.length, spec.d_input)).astype(np.float32)
    return inputs, np.arange(spec.length) < rng.integers(
        min(5, spec.length), spec.length + 1, (n, 1)
    )


@pytest.mark.nightly  # Two programs, each compiled for three platforms.
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())
def test_step_decodes_as_the_forward_pass_and_the_model(layer, key):
    model, rng = language_model(layer), np.random.default_rng(0)
    tokens, mask = rows(LANGUAGE, 3, rng)
    variables = jax.jit(model.init)(key, tokens)
    exported = exported_programs(model, variables, LANGUAGE)
    assert all(each.platforms == ("cpu", "cuda", "tpu") for each in exported.values())
    params = named_leaves(meta.unbox(variables))
    logits = exported["forward"].call(params, tokens, mask)
    expected, _ = jax.jit(model.apply)(variables, tokens, mask=mask)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    state = named_leaves(model.initial_state((3,)))
    step = jax.jit(exported["step"].call)
    for t in range(LENGTH):
        of_step, state = step(params, tokens[:, t], state)
        # Past its end a row is padded, and has zeros from the recurrence.
        valid = mask[:, t]
        np.testing.assert_allclose(
            np.asarray(of_step)[valid], np.asarray(logits)[valid, t], rtol=0, atol=1e-5
        )


@pytest.mark.nightly
def test_classifier_has_no_step_and_takes_any_batch_size(key):
    layer = RecurrentLayer(S5(d_state=4, blocks=1, bidirectional=True), ChannelMixing())
    block = Block(layer, norm="batch")
    model = SequenceModel(VectorEncoder(d_model=4), block, 1, PooledHead(d_output=3))
    rng = np.random.default_rng(0)
    variables = jax.jit(model.init)(key, rows(CLASSES, 1, rng)[0])
    (forward,) = exported_programs(model, variables, CLASSES).values()
    for n in (1, 5):
        inputs, mask = rows(CLASSES, n, rng)
        expected, _ = jax.jit(model.apply)(variables, inputs, mask=mask)
        predictions = forward.call(named_leaves(meta.unbox(variables)), inputs, mask)
        np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-5)


@pytest.mark.full
def test_forward_pass_of_irregular_steps_takes_their_sizes(key):
    layer = RecurrentLayer(S5(d_state=4, blocks=1), ChannelMixing())
    model = SequenceModel(VectorEncoder(4), Block(layer), 1, PooledHead(3))
    rng, spec = np.random.default_rng(0), dataclasses.replace(CLASSES, irregular=True)
    inputs, mask = rows(CLASSES, 3, rng)
    dt = rng.uniform(0.2, 3, mask.shape).astype(np.float32)
    variables = jax.jit(model.init)(key, inputs)
    (forward,) = exported_programs(model, variables, spec, platforms=["cpu"]).values()
    expected, _ = jax.jit(model.apply)(variables, inputs, mask=mask, dt=dt)
    params = named_leaves(meta.unbox(variables))
    found = forward.call(params, inputs, mask, dt)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


ANY_LENGTH = LAYERS | {
    "s5": RecurrentLayer(S5(d_state=4, blocks=1, bidirectional=True), ChannelMixing()),
    "ces": RecurrentLayer(CES(), ChannelMixing()),
    "lru": RecurrentLayer(LRU(d_state=4), ChannelMixing()),
}


# Without the checks of annotations: a symbolic dimension is no `int`.
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("layer", tiered(ANY_LENGTH, 0, full=0))
def test_forward_pass_takes_any_length(layer, key):
    model, rng = language_model(layer), np.random.default_rng(0)
    variables = jax.jit(model.init)(key, np.zeros((1, 4), np.int32))
    # The methods of accelerators are chosen too, and must not depend on the length.
    exported = exported_programs(model, variables, LANGUAGE)["forward"]
    params = named_leaves(meta.unbox(variables))
    for length in (1, 2 * LENGTH):
        tokens, mask = rows(dataclasses.replace(LANGUAGE, length=length), 2, rng)
        mask[:, 0] = True
        expected, _ = jax.jit(model.apply)(variables, tokens, mask=mask)
        found = exported.call(params, tokens, mask)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("length", tiered([None, 8], 0, full=1))
def test_fixed_length_is_explained(length, tmp_path, key):
    pytest.importorskip("flatbuffers")
    # Angles of positions are formed on the host, for a length that is known.
    layer = RotaryAttention(n_heads=1) if length is None else LAYERS["gru"]
    model = language_model(layer)
    variables = jax.jit(model.init)(key, np.zeros((1, 4), np.int32))
    export_model(model, variables, LANGUAGE, tmp_path, length=length, platforms=["cpu"])
    about = json.loads((tmp_path / "export.json").read_text())
    assert about["length"] == (length or LENGTH)
    expected = "symbolic" if length is None else "given"
    assert expected in about["length_reason"]
    content = bytearray((tmp_path / "forward.stablehlo").read_bytes())
    forward = jax.export.deserialize(content)
    assert forward.in_avals[-1].shape[1] == about["length"]
    params = dict(np.load(tmp_path / "params.npz"))
    tokens = np.zeros((2, about["length"]), np.int32)
    tokens[1, -1] = about["vocabulary"]
    logits = forward.call(params, tokens, np.ones(tokens.shape, bool))
    assert np.isfinite(logits).all((1, 2)).tolist() == [True, False]


@pytest.mark.parametrize(
    ("version", "date"),
    [
        ("0.10.2", "2026-12-17"),
        ("0.11.2", "2027-02-17"),
        ("0.12.0.1", "2027-04-19"),
        ("0.12.0.dev20261001", "2027-04-19"),
        ("1.0", "2027-04-19"),
    ],
)
def test_last_safe_date_is_six_months_after_the_release(version, date):
    assert last_safe_date(version).isoformat() == date


ALONE = """
import sys
sys.modules["ssm_jax"] = sys.modules["flax"] = None  # importing them is an error
import jax, numpy as np

folder, arrays = sys.argv[1:]
given = np.load(arrays)
params = dict(np.load(f"{folder}/params.npz"))

def program(name):
    with open(f"{folder}/{name}.stablehlo", "rb") as file:
        return jax.export.deserialize(bytearray(file.read()))

got = {"forward": program("forward").call(params, given["inputs"], given["mask"])}
if "steps" in given:
    tokens, logits, step = given["inputs"], [], jax.jit(program("step").call)
    first = np.load(f"{folder}/state.npz").items()
    state = {name: np.stack([value] * len(tokens)) for name, value in first}
    for t in range(tokens.shape[1]):
        now, state = step(params, tokens[:, t], state)
        logits.append(now)
    got["step"] = np.stack(logits, 1)
np.savez(arrays, **got)
"""


def text_config(folder):
    """A run of one step on tiny novels."""
    novels(folder, 12)
    numbers = {"steps": 1, "batch_size": 8, "evaluation_batches": 1}
    model = spec(
        SequenceModel,
        encoder=TokenEncoder(d_model=4, vocabulary=257),
        block=Block(LAYERS["dlr"]),
        n_layers=1,
        head=None,
    )
    return ConfigDict(
        {
            "experiment": "tests/text",
            "task": spec(TextFolder, data_dir=str(folder), length=LENGTH),
            "model": model,
            "optimizer": spec(Optimizer, learning_rate=1e-2),
            "training": spec(TrainConfig, **numbers),
        }
    )


CONFIGS = {
    "language": text_config,
    "classes": lambda _: tiny.digits(steps=1, batch_size=8),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("config", tiered(CONFIGS, fast=0, full=()))
def test_run_is_exported_and_runs_where_the_package_is_not(
    config, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("flatbuffers")
    (folder := tmp_path / "novels").mkdir()
    train(config(folder), str(tmp_path / "run"))
    arguments = (f"--workdir={tmp_path}/run", f"--output={tmp_path}/exported")
    assert programs.run(monkeypatch, "export", *arguments) in (0, None)
    printed = capsys.readouterr().out
    assert "forward.stablehlo (" in printed
    assert "length: any" in printed
    restored = restore(tmp_path / "run")
    language = restored.task.spec.language
    about = json.loads((tmp_path / "exported" / "export.json").read_text())
    assert about["jax"] == jax.__version__
    assert about["loads_until"] in printed
    if language:
        assert about["vocabulary"] == 257
        offset = about["preprocessing"]["offset"]
        head = [about["preprocessing"]["separator"], *(b + offset for b in b"It was")]
        assert head == restored.task.encode("It was")
    batch = restored.task.batch("validation", 0, 4, seed=0)
    mask = np.ones(batch.inputs.shape[:2], bool)
    arrays = tmp_path / "arrays.npz"
    given = {"inputs": batch.inputs, "mask": mask} | ({"steps": 1} if language else {})
    np.savez(arrays, **given)
    command = [sys.executable, "-c", ALONE, str(tmp_path / "exported"), str(arrays)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected, _ = jax.jit(restored.model.apply)(restored.variables, batch.inputs)
    with np.load(arrays) as file:
        got = dict(file)
    assert set(got) == ({"forward", "step"} if language else {"forward"})
    for predictions in got.values():
        np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [
        ({"platforms": ["cpu", "gpu"]}, "platforms", "gpu"),
        ({"platforms": []}, "platforms", "none"),
        ({"length": 0}, "length", 0),
    ],
)
def test_platforms_and_lengths_that_do_not_exist_are_refused(change, name, value):
    with refuses(name, value):
        exported_programs(language_model(LAYERS["dlr"]), {}, LANGUAGE, **change)


def test_missing_package_and_dtype_of_no_file_are_refused(tmp_path, monkeypatch):
    model = language_model(LAYERS["dlr"])
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with refuses("flatbuffers", "no such package"):
            export_model(model, {}, LANGUAGE, tmp_path)
        patch.setattr("importlib.util.find_spec", lambda name: name)
        half = {"params": {"w": jax.numpy.ones(2, jax.numpy.bfloat16)}}
        with refuses("params/w", "bfloat16"):
            export_model(model, half, LANGUAGE, tmp_path)
