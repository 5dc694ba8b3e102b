"""What is shown of a model, of which the whole is tested with the report."""

import importlib
import types

import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.tasks import Digits
from tests.training.test_workdir import full_disk

# `ssm_jax.evaluation.inspect` is the function; `import_module` gives the module.
module = importlib.import_module("ssm_jax.evaluation.inspect")


def test_confident_mistakes_are_among_the_highest_losses():
    """Probabilities of 0 in float32 have a finite loss, and are not left out."""
    task = Digits()
    batch = task.batch("test", 0, 8, 0)
    logits = jnp.zeros((8, 10)).at[jnp.arange(8), (batch.targets + 1) % 10].set(300.0)
    found = module._predicted(lambda *_, **__: logits, task.spec, batch)
    np.testing.assert_allclose(found["losses"], 300.0)
    assert np.all(found["predictions"][np.arange(8), batch.targets] == 0)


@pytest.mark.usefixtures("unchecked")
def test_full_disk_keeps_the_arrays_that_were_there(tmp_path, monkeypatch):
    path = tmp_path / "inspection.npz"
    restored = types.SimpleNamespace(model=types.SimpleNamespace(recurrence=None))
    monkeypatch.setattr(module, "_examples", lambda of: {"losses": np.arange(10.0)})
    module.inspect(restored, path)
    before = path.read_bytes()
    with full_disk(), pytest.raises(OSError, match="inspection.npz"):
        module.inspect(restored, path)
    assert path.read_bytes() == before
