"""Dropout whose masks do not depend on how a batch is sharded over devices."""

import contextlib

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Fraction
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.sharding import reshard
from ssm_jax.layers.module import Module
from ssm_jax.sharding.axis import first_step, n_pieces
from ssm_jax.types import Array, Float, Key, PRNGKey


class RowDropout(Module):
    """Dropout with one mask per row of the batch, drawn from a key per row.

    ``y_r = m_r x_r / (1 - rate)``, where the mask ``m_r`` of row ``r`` is Bernoulli
    with probability ``1 - rate``, drawn from the key of row ``r`` that `row_keys`
    derives. `flax.linen.Dropout` draws one mask for all rows on a device, so its masks
    depend on the number of devices. The masks of this layer do not, provided that all
    devices receive the same key and the index of their first row.

    Attributes:
      rate: Probability of dropping an element, in [0, 1).
      broadcast_dims: Axes of ``x`` along which the mask is shared; -2 shares it over
        all steps.

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
        """Applies dropout if ``train``; otherwise returns ``x`` unchanged.

        Args:
          x: Rows, ``(b, ...)``.
          train: Whether dropout is active. The key is taken from the rng collection
            ``dropout``.
          first_row: Index of the first row in the global batch, an integer scalar.

        Returns:
          ``(b, ...)``, with the dtype of ``x``.
        """
        check_floating("x", x)
        x = jnp.asarray(x)
        # Before `make_rng`, so that evaluation needs no key.
        if not train or self.rate == 0:
            return x
        # A shared axis has size 1 in the mask, which is broadcast along it.
        shared = {axis % x.ndim for axis in self.broadcast_dims}
        n, *shape = (1 if i in shared else size for i, size in enumerate(x.shape))
        # Each device draws the masks of its own rows.
        keys = reshard(row_keys(self.make_rng("dropout"), n, first_row), x, [0])
        keep, piece = 1 - self.rate, x.shape[-2]
        # Rows of features, as after a mean over the steps, have no axis of steps.
        by_step = n_pieces() > 1 and x.ndim > 2 and x.ndim - 2 not in shared
        if by_step:
            # The masks of whole sequences: they do not depend on the devices.
            shape[-2] *= n_pieces()
        mask = jax.vmap(lambda key: jax.random.bernoulli(key, keep, shape))(keys)
        if by_step:
            mask = jax.lax.dynamic_slice_in_dim(
                mask, first_step(piece), piece, axis=x.ndim - 2
            )
        return jnp.where(mask, x / keep, 0)


def row_keys(key: PRNGKey, n: int, first_row: Array | int = 0) -> Key[jax.Array, " n"]:
    """Derives one key per row from the key of the batch and the index of the row.

    Args:
      key: Key of the global batch, the same on all devices.
      n: Number of rows.
      first_row: Index of the first row in the global batch, an integer scalar.

    Returns:
      The keys, ``(n,)``.
    """
    return jax.vmap(jax.random.fold_in, (None, 0))(key, first_row + jnp.arange(n))


def rows_from(first_row: Array | int) -> contextlib.AbstractContextManager[None]:
    """Context manager that sets ``first_row`` of every `RowDropout`.

    It applies to all models called inside the context, to nested modules and under Flax
    transformations. `flax.linen.Dropout`, which draws one mask for all rows of a call,
    draws a different mask for each ``first_row``.

    Args:
      first_row: Index of the first row in the global batch, an integer scalar.

    Returns:
      A context manager.

    Example:
      >>> model = nn.Sequential([lambda x: RowDropout(0.5)(x, train=True)])
      >>> x, rngs = jnp.ones((4, 8)), {"dropout": jax.random.key(0)}
      >>> whole = model.apply({}, x, rngs=rngs)
      >>> with rows_from(2):
      ...     half = model.apply({}, x[2:], rngs=rngs)
      >>> bool(jnp.all(half == whole[2:]))
      True
    """

    def set_first_row(call, args, kwargs, context):
        module = context.module
        if context.method_name == "__call__" and isinstance(module, RowDropout):
            kwargs = {**kwargs, "first_row": first_row}
        elif context.method_name == "__call__" and isinstance(module, nn.Dropout):
            if module.has_rng(module.rng_collection):
                # All devices hold the same key but must draw different masks.
                # A key that the caller passes takes precedence.
                key = module.make_rng(module.rng_collection)
                kwargs = {"rng": jax.random.fold_in(key, first_row), **kwargs}
        return call(*args, **kwargs)

    return nn.intercept_methods(set_first_row)
