"""The steps of a run, compiled ahead of time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax import aot
from ssm_jax.cli import config_file
from tests.bad_inputs import refuses

ROOT = Path(__file__).parents[2]
DIGITS = "experiments/dlr/digits.py"
SMALL = (
    "--config.model.n_layers=1",
    "--config.model.encoder.d_model=8",
    "--config.model.block.layer.recurrence.d_state=4",
)
TEXT = "experiments/longssm/text.py:model=dlr,length=128,state_init=carry,size=tiny"


MILLION = (
    "experiments/longssm/text.py:"
    "model=s5,length=1000000,state_init=zero,rows=1,size=tiny"
)


def small():
    """DLR on digits, of one layer."""
    config = config_file.load(DIGITS)
    config.model.n_layers, config.model.encoder.d_model = 1, 8
    config.model.block.layer.recurrence.d_state = 4
    return config


def test_abstract_run_has_the_shapes_of_the_run():
    described = aot.abstract_run(small(), jax.devices()[:1])
    leaves = jax.tree.leaves((described.state, described.batch))
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert described.batch.inputs.shape == (64, 64, 1)
    assert described.state.step.dtype == jnp.int32
    assert described.has_data


@pytest.mark.parametrize("layout", ["stream", "packed"])
def test_batch_without_data_is_as_the_spec_says(layout):
    config = config_file.load(TEXT)
    config.task.layout = layout
    described = aot.abstract_run(config, jax.devices()[:1])
    batch = described.batch
    assert not described.has_data
    rows = described.training.batch_size
    assert batch.inputs.shape == batch.targets.shape == (rows, 128)
    assert (batch.reset is not None) == (layout == "packed") and batch.mask is None
    carried = jax.tree.leaves(described.state.carry)
    assert carried and all(leaf.shape[0] == rows for leaf in carried)


@pytest.mark.full
def test_batch_must_be_a_multiple_of_the_devices():
    with refuses("batch_size`", 12, rule="multiple of 8"):
        aot.abstract_run(small(), jax.devices(), 12)


@pytest.mark.nightly
def test_step_sums_one_gradient_over_the_devices_and_donates_the_state():
    described = aot.abstract_run(small(), jax.devices())
    program = aot.compile_program("train", *aot.train_program(described), "cpu")
    leaves = jax.tree.leaves(described.state.params)
    n = sum(leaf.size for leaf in leaves)
    assert program.traffic is not None
    (reduced,) = program.traffic.collectives
    # The gradient, and the sums of the loss and of the metric.
    assert reduced.kind == "all-reduce"
    assert 4 * n < reduced.bytes <= 4 * n + 32
    assert program.alias_bytes > 3 * 4 * n  # parameters, both moments of Adam
    assert program.fits(2**30) and not program.fits(2**10)
    assert json.loads(json.dumps(program.record()))["name"] == "train"


@pytest.mark.parametrize(
    ("message", "n_bytes"),
    [
        ("RESOURCE_EXHAUSTED: Used 20.5G of 15.75G hbm.", 20.5 * 2**30),
        ("RESOURCE_EXHAUSTED: memory required for HLO temporaries (353.67M)", None),
        ("RESOURCE_EXHAUSTED: of another kind", 0),
    ],
)
def test_program_that_a_compiler_refuses_for_its_memory_does_not_fit(message, n_bytes):
    class Refused:
        def lower(self, *_):
            raise jax.errors.JaxRuntimeError(f"{message}\nmore")

    program = aot.compile_program("train", Refused(), (), "tpu")
    assert program.out_of_memory == message
    assert not program.fits(2**60)
    assert program.memory_bytes == int(353.67 * 2**20 if n_bytes is None else n_bytes)
    assert program.traffic is None


@pytest.mark.parametrize("quick", [True, False])
def test_quick_program_is_compiled_without_effort(quick):
    class Lowered:
        def lower(self):
            return self

        def compile(self, options):
            effort = options["exec_time_optimization_effort"] if options else None
            assert effort == (-1.0 if quick else None)
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: seen")

    program = aot.compile_program("train", Lowered(), (), "tpu", quick=quick)
    assert program.out_of_memory == "RESOURCE_EXHAUSTED: seen"


@pytest.mark.full
def test_decoding_step_is_that_of_a_language_model_and_sends_nothing():
    described = aot.abstract_run(config_file.load(TEXT), jax.devices())
    decode = aot.decode_program(described)
    assert decode is not None
    jitted, (_, tokens, before) = decode
    assert tokens.shape == (8,)
    logits, after = jax.eval_shape(jitted, *decode[1])
    assert logits.shape == (8, described.run.spec.d_output)
    assert jax.tree.map(np.shape, after) == jax.tree.map(np.shape, before)
    assert aot.decode_program(aot.abstract_run(small(), jax.devices())) is None


def compiled(folder, target, *flags):
    """The record and the output of `launch.compile`; skips without the compiler."""
    device = aot.parse_target(target).device
    if missing := aot.missing_packages(device.platform):
        pytest.skip(f"{', '.join(missing)} not installed: extra [compile]")
    output = folder / "record.json"
    # The flags of the tests are those of the CPU, and JAX is used here already.
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command = [sys.executable, "-m", "launch.compile", *flags]
    run = subprocess.run(
        [*command, f"--target={target}", f"--json={output}"],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(output.read_text()), run.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["gpu:h100:8", "gpu:h200:2x8", "tpu:v5e:2x4"])
def test_small_experiment_compiles_for_the_target(target, tmp_path):
    record, printed = compiled(tmp_path, target, f"--config={DIGITS}", *SMALL)
    step, evaluation = record["programs"]
    assert (step["name"], evaluation["name"]) == ("train", "evaluate")
    assert 0 < step["memory_bytes"] < record["device_memory_bytes"] / 100
    # One gradient; the methods are those of accelerators, which have no loop over time.
    (reduced,) = step["traffic"]["collectives"]
    assert reduced["kind"] == "all-reduce"
    assert 4 * record["parameters"] < reduced["bytes"] <= 4 * record["parameters"] + 32
    assert step["traffic"]["loops"] == evaluation["traffic"]["loops"] == []
    assert "fits: " in printed


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("one", "eight"), [("gpu:h100:1", "gpu:h100:8"), ("tpu:v5e:1x1", "tpu:v5e:2x4")]
)
def test_million_tokens_on_eight_devices_take_a_sixth_of_the_memory(
    one, eight, tmp_path
):
    memory = {}
    for target, mesh in ((one, "data=1,seq=1"), (eight, "data=1,seq=8")):
        flags = f"--config={MILLION}", f"--config.training.mesh={mesh}", "--quick"
        record, printed = compiled(tmp_path, target, *flags)
        memory[target] = record["programs"][0]["memory_bytes"]
        assert memory[target] <= record["device_memory_bytes"]
    assert "1 on each device, each shared by 8 devices" in printed
    assert 0 < 6 * memory[eight] <= memory[one]


@pytest.mark.nightly
def test_methods_are_those_of_the_platform_that_is_compiled_for():
    config = config_file.load("experiments/dlr/atomic.py:task=shift,size=demo")
    config.model.block.layer.recurrence.update(d_state=4, bidirectional=False)
    described = aot.abstract_run(config, jax.devices())
    loops = {}
    for platform in ("cpu", "cuda"):
        evaluation = aot.evaluation_program(described)
        program = aot.compile_program("evaluate", *evaluation, platform)
        assert program.traffic is not None
        loops[platform] = program.traffic.loops
        jax.clear_caches()
    assert loops["cpu"]  # Blocks, one after the other.
    assert loops["cuda"] == ()  # An FFT.
