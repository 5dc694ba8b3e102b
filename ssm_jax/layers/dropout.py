"""Dropout whose masks do not depend on how a batch is spread over devices."""

import contextlib

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.layers.module import Module
from ssm_jax.types import Array, Float, Key, PRNGKey


class RowDropout(Module):
    """Dropout with a mask for each row of the batch, drawn from the row's number.

    ``y_r = m_r x_r / (1 - rate)``, where the mask ``m_r`` of row ``r`` is Bernoulli
    with the probability ``1 - rate``, drawn from the key of row ``r`` as `row_keys`
    derives it. `flax.linen.Dropout` draws one mask for the rows that a device holds,
    so the masks depend on the number of devices; these do not, provided that all
    devices are given the same key and the number of their first row.

    Attributes:
      rate: Probability that a number is dropped, in [0, 1).
      broadcast_dims: Axes of ``x`` that share a mask, such as -2 for all steps.

    Raises:
      ValueError: ``rate`` is not in [0, 1).

    Example:
      >>> layer = RowDropout(rate=0.5)
      >>> x = jnp.ones((4, 8))
      >>> rngs = {"dropout": jax.random.key(0)}
      >>> whole = layer.apply({}, x, train=True, rngs=rngs)
      >>> half = layer.apply({}, x[2:], train=True, first_row=2, rngs=rngs)
      >>> bool(jnp.all(half == whole[2:]))
      True
    """

    rate: Fraction
    broadcast_dims: tuple[int, ...] = ()

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "b ..."],
        *,
        train: bool = False,
        first_row: Array | int = 0,
    ) -> Float[jax.Array, "b ..."]:
        """Drops numbers in training; else ``x`` is returned as it is.

        Args:
          x: Rows, ``(b, ...)``.
          train: Whether to drop. The key is that of the collection ``dropout``.
          first_row: Number of the first row in the whole batch, ``()``, an integer.

        Returns:
          ``(b, ...)``, of the dtype of ``x``.
        """
        check_floating("x", x)
        x = jnp.asarray(x)
        if not train or self.rate == 0:
            return x
        shared = {axis % x.ndim for axis in self.broadcast_dims}
        n, *shape = (1 if i in shared else size for i, size in enumerate(x.shape))
        keys = row_keys(self.make_rng("dropout"), n, first_row)
        keep = 1 - self.rate
        mask = jax.vmap(lambda key: jax.random.bernoulli(key, keep, shape))(keys)
        return jnp.where(mask, x / keep, 0)


def row_keys(key: PRNGKey, n: int, first_row: Array | int = 0) -> Key[jax.Array, " n"]:
    """Keys of some rows of a batch, each a function of the row's number.

    Args:
      key: The key of the whole batch, the same on all devices.
      n: Number of rows.
      first_row: Number of the first of them in the whole batch, ``()``, an integer.

    Returns:
      The keys, ``(n,)``.
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first_row + jnp.arange(n))


def rows_from(first_row: Array | int) -> contextlib.AbstractContextManager[None]:
    """Within it, models drop as for the rows of a larger batch from a number on.

    It reaches every `RowDropout` of a model that is applied within, however deep in
    the model and under whatever Flax transformation. `flax.linen.Dropout` has one mask
    for all rows of a call; within, it is another one for each ``first_row``.

    Args:
      first_row: Number of the first row in the whole batch, ``()``, an integer.

    Returns:
      The context manager.

    Example:
      >>> model = nn.Sequential([lambda x: RowDropout(0.5)(x, train=True)])
      >>> x, rngs = jnp.ones((4, 8)), {"dropout": jax.random.key(0)}
      >>> whole = model.apply({}, x, rngs=rngs)
      >>> with rows_from(2):
      ...     half = model.apply({}, x[2:], rngs=rngs)
      >>> bool(jnp.all(half == whole[2:]))
      True
    """

    def count(call, args, kwargs, context):
        module = context.module
        if context.method_name == "__call__" and isinstance(module, RowDropout):
            kwargs = {**kwargs, "first_row": first_row}
        elif context.method_name == "__call__" and isinstance(module, nn.Dropout):
            if module.has_rng(module.rng_collection):
                # All devices have the same key, and should not drop the same.
                key = module.make_rng(module.rng_collection)
                kwargs = {"rng": jax.random.fold_in(key, first_row), **kwargs}
        return call(*args, **kwargs)

    return nn.intercept_methods(count)
