"""Values that are evaluated once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import compiling_for
from ssm_jax.kernels.fusion import materialized

X = jnp.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_values_and_gradients_are_unchanged(platform):
    def total(x):
        first, second = materialized((x, jnp.sin(x)))
        return jnp.sum(first * second)

    with compiling_for(platform):
        # Of each row, as of models that are trained together.
        value, gradient = jax.vmap(jax.value_and_grad(total))(X)
    np.testing.assert_allclose(value, jnp.sum(X * jnp.sin(X), -1), rtol=1e-6)
    np.testing.assert_allclose(gradient, X * jnp.cos(X) + jnp.sin(X), rtol=1e-6)


def test_a_small_array_is_not_evaluated_for_each_element_that_reads_it():
    def fusion_of_both(x):
        def outer(evaluate):
            return lambda x: evaluate(jnp.sin(x)) * jnp.ones((512, 1))

        return (
            jax.jit(outer(evaluate)).lower(x).compile().as_text()
            for evaluate in (lambda value: value, materialized)
        )

    fused, apart = fusion_of_both(jnp.ones(8))
    assert "conditional" not in fused and "conditional" in apart


def test_an_array_of_nan_stays_one():
    assert jnp.all(jnp.isnan(materialized(jnp.full(2, jnp.nan))))
