"""What is shown of a model, of which the whole is tested with the report."""

import importlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.config import spec
from ssm_jax.evaluation import evaluate_run
from ssm_jax.models import PooledHead
from ssm_jax.recurrences import DLR, S5
from ssm_jax.tasks import ArrayTask, Digits
from ssm_jax.training import WorkDir, train
from tests.tiers import tiered
from tests.training import tiny
from tests.training.test_workdir import full_disk

# `ssm_jax.evaluation.inspect` is the function; `import_module` gives the module.
MODULE = importlib.import_module("ssm_jax.evaluation.inspect")
WIDTH, LENGTH = 3, 16
RECURRENCES = {
    "dlr": DLR(d_state=8, bidirectional=True),
    "dlr_cut": DLR(d_state=8, max_kernel_length=4, bidirectional=True),
    "causal_cut": DLR(d_state=8, max_kernel_length=4),
    "s5": S5(d_state=4, blocks=1, bidirectional=True),
}


@pytest.mark.parametrize("recurrence", tiered(RECURRENCES, fast=["dlr_cut"]))
def test_kernels_are_the_responses_to_impulses(recurrence, key):
    params = recurrence.init(key, WIDTH)
    arrays = MODULE._largest_kernels(recurrence, recurrence.modes(params), LENGTH)
    lags = np.arange(LENGTH - arrays["kernels"].shape[-1], LENGTH)
    x = np.zeros((WIDTH, 2 * LENGTH, WIDTH), np.float32)
    x[np.arange(WIDTH), LENGTH, np.arange(WIDTH)] = 1
    y, _ = jax.jit(recurrence.apply)(params, x)
    for channel, taps in zip(arrays["channels"], arrays["kernels"], strict=True):
        response = np.array(y[channel, :, channel])
        response[LENGTH] -= recurrence.modes(params).feedthrough[channel]
        np.testing.assert_allclose(taps, response[LENGTH + lags], rtol=0, atol=1e-5)


def test_confident_mistakes_are_among_the_highest_losses():
    """Probabilities of 0 in float32 have a finite loss, and are not left out."""
    task = Digits()
    batch = task.batch("test", 0, 8, 0)
    logits = jnp.zeros((8, 10)).at[jnp.arange(8), (batch.targets + 1) % 10].set(300.0)
    examples = MODULE._predict(lambda *_, **__: logits, task.spec, batch)
    np.testing.assert_allclose(examples["losses"], 300.0)
    assert np.all(examples["predictions"][np.arange(8), batch.targets] == 0)


@pytest.mark.usefixtures("unchecked")
def test_full_disk_keeps_the_arrays_that_were_there(tmp_path, monkeypatch):
    path = tmp_path / "inspection.npz"
    restored = types.SimpleNamespace(model=types.SimpleNamespace(recurrence=None))
    monkeypatch.setattr(MODULE, "_examples", lambda *_: {"losses": np.arange(10.0)})
    MODULE.inspect(restored, path)
    before = path.read_bytes()
    with full_disk(), pytest.raises(OSError, match="inspection.npz"):
        MODULE.inspect(restored, path)
    assert path.read_bytes() == before


@pytest.mark.full
def test_examples_are_of_the_evaluated_split_and_come_after_the_metrics(
    tmp_path, monkeypatch
):
    """The task has no test examples, so that only its validation can be evaluated."""
    inputs = np.arange(80, dtype=np.float32).reshape(20, 4, 1)
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=np.arange(20) % 2)
    config = tiny.digits(steps=1, batch_size=8)
    config.model = tiny.model(PooledHead(d_output=2))
    config.task = spec(
        ArrayTask,
        file=str(tmp_path / "a.npz"),
        length=4,
        inputs="vector",
        d_input=1,
        targets="classification",
        d_output=2,
        validation_fraction=0.2,
        test_fraction=0.0,
    )
    work = WorkDir(tmp_path / "run")
    train(config, str(work.path))
    with monkeypatch.context() as patch:
        patch.setattr("ssm_jax.evaluation.run.inspect", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            evaluate_run(work.path, split="validation")
    assert (work.read("evaluation.json") or {})["split"] == "validation"
    evaluate_run(work.path, split="validation")
    arrays = work.read_arrays("inspection.npz")
    assert str(arrays["split"]) == "validation"
    assert (arrays["n_candidates"], len(arrays["inputs"])) == (4, 4)
