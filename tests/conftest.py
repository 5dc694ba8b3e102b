"""JAX as the tests want it: eight CPU devices.

Nothing of ssm_jax is imported at the head of this file: the hook that checks the
shape annotations is installed after it is read.
"""

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def unchecked(monkeypatch) -> None:
    """Lets an argument of the wrong type through to the error that users see."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
