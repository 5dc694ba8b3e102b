"""Orbax alone reads a checkpoint, in a process that does not have this package."""

import os
import subprocess
import sys

import chex
import jax
import numpy as np
import pytest
from flax import traverse_util
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ssm_jax.evaluation import restore
from ssm_jax.training import train
from ssm_jax.training.checkpointing import Checkpoints, checkpoints, integrity
from tests.tiers import tiered
from tests.training import tiny

READ = """
import sys
sys.modules["ssm_jax"] = None  # Its import would be an error.
import numpy, orbax.checkpoint as ocp
from flax.traverse_util import flatten_dict
tree = getattr(ocp, sys.argv[1])().restore(sys.argv[2])
numpy.savez(sys.argv[3], **flatten_dict(tree, sep="/"))
"""


def read(checkpointer, state, tmp_path):
    """The arrays in the folder of a step by name, read on one device."""
    file = tmp_path / "read.npz"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    # With -I, neither the working directory nor PYTHONPATH is searched for modules.
    command = [sys.executable, "-I", "-c", READ, checkpointer, state, file]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    with np.load(file) as arrays:
        return dict(arrays)


@pytest.mark.nightly
def test_checkpoint_of_a_run_is_read_as_the_nested_tree(tmp_path):
    run = tmp_path / "run"
    train(tiny.digits(steps=2, evaluate_every=2, ema=0.5), str(run))
    found = read("StandardCheckpointer", run / "checkpoints" / "2" / "state", tmp_path)
    record = integrity.read_record(run / "checkpoints" / "2")
    assert found.keys() == record["leaves"].keys()
    # What is evaluated are the averages.
    variables = dict(restore(run, "latest").variables)
    expected = {"ema": variables.pop("params"), "model_state": variables}
    for name, leaf in traverse_util.flatten_dict(expected, sep="/").items():
        np.testing.assert_array_equal(found[name], leaf, strict=True)
    assert any(name.startswith("opt_state/") for name in found)
    assert found["step"] == 2


@pytest.mark.parametrize(
    "checkpointer",
    tiered(["StandardCheckpointer", "PyTreeCheckpointer"], fast=0, full=1),
)
def test_arrays_of_eight_devices_are_read_on_one(tmp_path, checkpointer):
    devices = Mesh(np.asarray(jax.devices()), "d")
    arrays = {"a": np.arange(16.0), "b": np.arange(3.0, dtype=np.float32)}
    axes = {"a": PartitionSpec("d"), "b": PartitionSpec()}
    with Checkpoints(tmp_path / "run") as saved:
        state = {
            name: jax.device_put(array.astype(np.float32), NamedSharding(devices, axis))
            for (name, array), axis in zip(arrays.items(), axes.values(), strict=True)
        }
        saved.save(1, {"params": state})
    found = read(checkpointer, tmp_path / "run" / "1" / "state", tmp_path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[f"params/{name}"], array)


def without_nested(write):
    """Writes the records of the first checkpoints, which did not say how they are."""
    return lambda path, record: write(
        path, {name: value for name, value in record.items() if name != "nested"}
    )


@pytest.mark.filterwarnings("ignore:Sharding info not provided")
def test_tree_is_nested_and_flat_ones_of_before_are_still_read(tmp_path, monkeypatch):
    key = jax.random.key_data(jax.random.key(3))
    tree = {"params": {"a": {"b": np.arange(3.0)}}, "key": np.asarray(key)}
    state = {**tree, "key": jax.random.key(3)}
    with Checkpoints(tmp_path) as saved:
        saved.save(1, state)
        saved.wait()
        found = checkpoints.ocp.load(str(tmp_path / "1"), checkpointable_name="state")
        jax.tree.map(np.testing.assert_array_equal, found, tree)
        write = integrity.write_record
        monkeypatch.setattr(checkpoints, "stored", dict)
        monkeypatch.setattr(integrity, "write_record", without_nested(write))
        saved.save(2, state)
    found = checkpoints.ocp.load(str(tmp_path / "2"), checkpointable_name="state")
    assert found.keys() == {"params/a/b", "key"}
    restored = Checkpoints(tmp_path).restore(state)
    assert restored.step == 2
    chex.assert_trees_all_equal(restored.state, state)
