"""A dry run, as its caller meets it."""

import re

import jax
import pytest

from ssm_jax.cli import config_file
from ssm_jax.training import create
from ssm_jax.training.setup import build_parts
from tests.cli import programs
from tests.cli.test_train import DIGITS

# ml_collections loads the experiment by a call that importlib wants replaced.
pytestmark = pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")


@pytest.mark.full
def test_dry_run_counts_what_a_step_is_given_and_writes_nothing(
    monkeypatch, tmp_path, capsys
):
    picture = tmp_path / "batch.png"
    flags = "--dry_run", f"--picture={picture}", f"--workdir={tmp_path / 'run'}"
    assert programs.run(monkeypatch, "train", *DIGITS, *flags) in (0, None)
    assert {path.name for path in tmp_path.iterdir()} == {"batch.png", "batch.pdf"}
    text = capsys.readouterr().out
    config = config_file.load("experiments/dlr/digits.py")
    config.model.n_layers, config.model.encoder.d_model = 1, 4
    config.model.block.layer.recurrence.d_state = 4
    task, model, optimizer, _, parallel = build_parts(config)
    _, state = create(model, task, optimizer, seed=0)
    n = sum(leaf.size for leaf in jax.tree.leaves(state.params))
    rows = re.findall(
        r"^\| .*/.* \| \((.*)\) +\| float32 +\| ([\d,]+) +\|$", text, re.M
    )
    assert len(rows) == len(jax.tree.leaves(state.params))
    assert sum(int(count.replace(",", "")) for _, count in rows) == n
    assert re.search(rf"^\| total .* {n:,} +\|$", text, re.M)
    # Each device is given the whole state and its rows of the batch.
    batch = task.batch("train", 0, config.training.batch_size, 0)
    n_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    n_bytes += sum(leaf.nbytes for leaf in batch if leaf is not None) // 8
    assert parallel.n_devices == 8
    assert f"  {n_bytes / 2**20:,.3f} MiB of state and batch" in text
    assert re.search(r"^[\d.e+]+ floating-point operations", text, re.M)
    assert f"| inputs    | {batch.inputs.shape} | float32 | 0 0 0.5625 1 " in text
