"""Weighted sums of the steps of a block, channel by channel, many blocks at once."""

import math
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp

from ssm_jax.types import Array, Float

Term = tuple[Float[Array, "i _ d"], Float[Array, "k _ d"]]

# Blocks that are summed side by side: enough for the vector units, few to be kept.
_BESIDE = 16


@jax.custom_vjp
def mixed(*terms: Term) -> Float[Array, "k i d"]:
    """Mixes the steps of each block: ``y_ki = sum_j m_ij v_kj``, of each channel.

    Differentiable any number of times in reverse mode; not in forward mode.

    Args:
      *terms: Weights ``m``, ``(i, j, d)``, and values ``v``, ``(k, j, d)``; one term or
        more, whose sum is taken.

    Returns:
      ``y``, ``(k, i, d)``; zeros where all weights are, whatever the values.

    Example:
      >>> sums = jnp.tril(jnp.ones((3, 3)))[..., None]
      >>> print(mixed((sums, jnp.ones((1, 3, 1))))[0, :, 0])
      [1. 2. 3.]
    """
    weights, values = terms[0]
    nothing = jnp.zeros_like(weights[:, 0] * values[:, :1])
    # XLA fuses nothing with a conditional. Without it, on CPUs, whatever makes weights
    # and values is evaluated anew for each of the products they are in.
    some = reduce(jnp.logical_or, (jnp.any(weights != 0) for weights, _ in terms))
    return jax.lax.cond(some, _products, lambda _: nothing, terms)


def _products(terms):
    products = (
        weights[:, j] * values[:, j : j + 1]
        for weights, values in terms
        for j in range(weights.shape[1])
    )
    return reduce(add, products)


@jax.custom_vjp
def correlated(
    g: Float[Array, "k i d"], v: Float[Array, "k j d"]
) -> Float[Array, "i j d"]:
    """Sums products over blocks, ``sum_k g_ki v_kj``: the cotangent of `mixed`'s ``m``.

    Args:
      g: Cotangents, ``(k, i, d)``.
      v: Values, ``(k, j, d)``.

    Returns:
      The sums, ``(i, j, d)``.
    """
    beside = math.gcd(len(g), _BESIDE)

    def step(k, totals):
        # Whole arrays, cut here: reshaped ones would be made once more for the loop.
        g_k, v_k = (
            jax.lax.dynamic_slice_in_dim(values, k * beside, beside)
            for values in (g, v)
        )
        return totals + g_k[:, :, None] * v_k[:, None]

    zeros = jnp.zeros_like(g[:beside, :, None] * v[:beside, None])
    return reduce(add, jax.lax.fori_loop(0, len(g) // beside, step, zeros))


def _transposed(weights):
    return jnp.swapaxes(weights, 0, 1)


def _mixed_backward(terms, g):
    return tuple((correlated(g, v), mixed((_transposed(m), g))) for m, v in terms)


def _correlated_backward(values, sums):
    g, v = values
    return mixed((sums, v)), mixed((_transposed(sums), g))


mixed.defvjp(lambda *terms: (mixed(*terms), terms), _mixed_backward)
correlated.defvjp(lambda *values: (correlated(*values), values), _correlated_backward)
