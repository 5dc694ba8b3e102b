"""Weighted sums of a block's steps, against einsum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels.mixing import correlated, mixed
from tests.kernels.oracle import assert_close, draw
from tests.tiers import tiered

D = 3


def drawn(blocks, i, j):
    rng = np.random.default_rng(blocks)
    m, v, g = (
        draw(rng, shape, is_complex=False)
        for shape in ((i, j, D), (blocks, j, D), (blocks, i, D))
    )
    return jnp.asarray(m), jnp.asarray(v), jnp.asarray(g)


def by_einsum(m, v):
    return jnp.einsum("ijd,kjd->kid", m, v, precision="highest")


@pytest.mark.parametrize("blocks", tiered([1, 17, 48], (17,)))
@pytest.mark.parametrize(("i", "j"), [(4, 4), (2, 5), (5, 1)])
def test_sums_and_their_derivatives_are_those_of_einsum(blocks, i, j):
    m, v, g = drawn(blocks, i, j)
    y, back = jax.vjp(lambda m, v: mixed((m, v)), m, v)
    wanted, wanted_back = jax.vjp(by_einsum, m, v)
    assert_close(y, wanted, 1e-6)
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-6), back(g), wanted_back(g))


@pytest.mark.full
def test_sums_are_differentiable_again():
    m, v, g = drawn(32, 4, 4)

    def slope(function):
        def loss(m, v):
            return jnp.sum(jnp.sin(function(m, v)) * g)

        def of_slope(m, v):
            of_m, of_v = jax.grad(loss, (0, 1))(m, v)
            return jnp.sum(jnp.square(of_m)) + jnp.sum(jnp.sin(of_v))

        return jax.jit(jax.grad(of_slope, (0, 1)))(m, v)

    found = slope(lambda m, v: mixed((m, v)))
    jax.tree.map(lambda a, b: assert_close(a, b, 1e-5), found, slope(by_einsum))


def test_terms_are_added():
    m, v, _ = drawn(8, 4, 4)
    more, w, _ = drawn(8, 4, 2)
    assert_close(mixed((m, v), (more, w)), by_einsum(m, v) + by_einsum(more, w), 1e-6)


@pytest.mark.parametrize("term", [0, 1])
def test_a_term_without_weights_adds_nothing(term):
    m, v, _ = drawn(8, 4, 4)
    nothing = jnp.zeros_like(m), v
    terms = [(m, v), nothing] if term else [nothing, (m, v)]
    assert_close(mixed(*terms), by_einsum(m, v), 1e-6)
    assert not np.any(mixed(nothing, nothing))


def test_what_is_not_a_number_stays_so():
    """Also where it is the only weight, or meets a weight of zero beside others."""
    m, v, _ = drawn(8, 4, 4)
    assert np.isnan(mixed((jnp.full_like(m, jnp.nan), v))).all()
    broken = v.at[0, 0].set(jnp.nan)
    assert np.isnan(mixed((m.at[:, 0].set(0), broken))[0]).all()


@pytest.mark.full
def test_many_are_mixed_at_once():
    m, v, g = drawn(16, 4, 4)
    many = jnp.stack([m, jnp.zeros_like(m)])
    y = jax.vmap(lambda m: mixed((m, v)))(many)
    assert_close(y[0], by_einsum(m, v), 1e-6)
    assert not np.any(y[1])
    of_m = jax.vmap(lambda g: correlated(g, v))(jnp.stack([g, 2 * g]))
    assert_close(of_m[1], 2 * of_m[0], 1e-6)
