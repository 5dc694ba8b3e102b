"""What is shown of a model, of which the whole is tested with the report."""

import importlib

import jax.numpy as jnp
import numpy as np

from ssm_jax.tasks import Digits


def test_confident_mistakes_are_among_the_highest_losses():
    """Probabilities of 0 in float32 have a finite loss, and are not left out."""
    task = Digits()
    batch = task.batch("test", 0, 8, 0)
    logits = jnp.zeros((8, 10)).at[jnp.arange(8), (batch.targets + 1) % 10].set(300.0)
    # `ssm_jax.evaluation.inspect` is the function; `import_module` gives the module.
    module = importlib.import_module("ssm_jax.evaluation.inspect")
    found = module._predicted(lambda *_, **__: logits, task.spec, batch)
    np.testing.assert_allclose(found["losses"], 300.0)
    assert np.all(found["predictions"][np.arange(8), batch.targets] == 0)
