"""`materialize` returns its argument, also in derivatives and under `vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import compiling_for
from ssm_jax.kernels.fusion import materialize, runtime_false


def test_values_and_derivatives_are_those_of_the_argument():
    x, z = jnp.array([0.5, jnp.nan, -2.0]), jnp.array([1 + 2j, 3j])

    def total(x):
        first, _ = materialize((x, z))
        return jnp.sum(first**3)

    for given, expected in zip(jax.jit(materialize)((x, z)), (x, z), strict=True):
        np.testing.assert_array_equal(given, expected)
    rows = jnp.array([[0.5, -2.0], [1.0, 3.0]])
    given = jax.jit(jax.vmap(jax.grad(total)))(rows)
    np.testing.assert_allclose(given, 3 * rows**2)
    _, tangent = jax.jvp(total, (rows,), (jnp.ones_like(rows),))
    np.testing.assert_allclose(tangent, jnp.sum(3 * rows**2), rtol=1e-6)


def test_only_programs_for_cpus_have_a_conditional():
    x = jnp.ones(2)
    for platform, conditionals in (("cpu", 1), ("cuda", 0)):
        with compiling_for(platform):
            text = str(jax.make_jaxpr(lambda x: materialize(x))(x))
        assert text.count("cond[") == conditionals


def test_a_small_array_is_not_evaluated_for_each_element_that_reads_it():
    def fusion_of_both(x):
        def outer(evaluate):
            return lambda x: evaluate(jnp.sin(x)) * jnp.ones((512, 1))

        return (
            jax.jit(outer(evaluate)).lower(x).compile().as_text()
            for evaluate in (lambda value: value, materialize)
        )

    fused, apart = fusion_of_both(jnp.ones(8))
    assert "conditional" not in fused and "conditional" in apart


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, jnp.inf, jnp.nan, 1j, jnp.nan * 1j])
def test_branch_is_never_taken(number):
    given = jnp.array([number, 2.0])
    assert not jax.jit(runtime_false)(given)
    np.testing.assert_array_equal(jax.jit(materialize)(given), given)


def test_trees_without_a_floating_point_element_have_no_branch():
    trees = {"none": None, "empty": jnp.zeros((0, 2)), "integers": jnp.arange(3)}
    assert runtime_false(trees) is None
    assert materialize(trees) is trees
