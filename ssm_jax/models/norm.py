"""Normalisations over the channels of each step."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.layers.module import Module
from ssm_jax.types import Activations, Steps

NormKind = Literal["layer", "rms", "batch", "scalar"]


class ScalarNorm(Module):
    """Normalises the channels of a step, with one scale and one shift for all of them.

    ``y = s (x - mean + m) / deviation``. The authors' code of DLR calls this layer
    norm.

    Parameters, float32:
      scale: ``()``, ``s``, at the start 1.
      shift: ``()``, ``m``, at the start 0.

    Note:
      The authors' code divides by zero where all channels of a step are equal; here
      1e-12 is added to the variance.
    """

    @nn.compact
    def __call__(self, x: Activations) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        scale = self.param("scale", nn.initializers.ones, ())
        shift = self.param("shift", nn.initializers.zeros, ())
        mean = jnp.mean(x, -1, keepdims=True)
        variance = jnp.var(x, -1, keepdims=True)
        return scale * jax.lax.rsqrt(variance + 1e-12) * (x - mean + shift)


class BatchNorm(Module):
    """Normalises each channel by its moments over all valid steps of a batch.

    ``y = s (x - mean) / sqrt(var + epsilon) + b``. Over a mapped axis the moments are
    those of the valid steps of all devices together: a device weighs as much as it has
    of them, and may have none. `flax.linen.BatchNorm` takes the mean of the devices'
    own moments, which are others where their numbers of valid steps differ.

    Attributes:
      axis_name: Mapped axis that the batch is spread over. None: none.
      momentum: Weight of the running moments in their next values.
      epsilon: Added to the variance.

    Parameters, float32:
      scale: ``(d,)``, ``s``, at the start 1.
      bias: ``(d,)``, ``b``, at the start 0.

    Variables of the collection ``batch_stats``, float32:
      mean: ``(d,)``, the running mean, at the start 0.
      var: ``(d,)``, the running variance, at the start 1. A batch without valid steps
        changes neither.
    """

    axis_name: str | None = None
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        check_floating("x", x)
        check_flags("mask", mask)
        d = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, d)
        bias = self.param("bias", nn.initializers.zeros, d)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, d)
        running_var = self.variable("batch_stats", "var", jnp.ones, d)
        mean, var = running_mean.value, running_var.value
        if train:
            # No axis is mapped where a model is initialized.
            starting = self.is_initializing()
            n, mean, var = _moments(x, mask, None if starting else self.axis_name)
            if not starting:
                weight = jnp.where(n > 0, 1 - self.momentum, 0)
                running_mean.value += weight * (mean - running_mean.value)
                running_var.value += weight * (var - running_var.value)
        return (x - mean) * (scale * jax.lax.rsqrt(var + self.epsilon)) + bias


def _moments(x, mask, axis_name):
    """Number of valid steps, and mean and variance over them, each channel's own."""
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    valid = jnp.ones((1, 1), bool) if mask is None else jnp.asarray(mask)[..., None]
    valid = jnp.broadcast_to(valid, (*x.shape[:-1], 1))

    def total(values):
        sums = jnp.sum(values, tuple(range(x.ndim - 1)))
        return sums if axis_name is None else jax.lax.psum(sums, axis_name)

    n = total(valid.astype(x.dtype))
    safe_n = jnp.maximum(n, 1)
    mean = total(jnp.where(valid, x, 0)) / safe_n
    # Of the differences from the mean: `E[x^2] - mean^2` cancels where the mean is
    # large.
    var = total(jnp.square(jnp.where(valid, x - mean, 0))) / safe_n
    return n, mean, var


class Norm(Module):
    """One of the normalisations that the published models use.

    Attributes:
      kind: ``"layer"``: LayerNorm over channels. ``"rms"``: the same without mean and
        shift, as in Mamba. ``"batch"``: `BatchNorm`, over all valid steps of the batch.
        ``"scalar"``: `ScalarNorm`.
      axis_name: Mapped axis that the batch is spread over, whose devices share the
        moments of BatchNorm. None: none.
    """

    kind: NormKind = "layer"
    axis_name: str | None = None

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        check_floating("x", x)
        check_flags("mask", mask)
        if self.kind == "scalar":
            return ScalarNorm(name="scalar")(x)
        if self.kind == "layer":
            return nn.LayerNorm(epsilon=1e-5, name="layer")(x)
        if self.kind == "rms":
            return nn.RMSNorm(epsilon=1e-5, name="rms")(x)
        norm = BatchNorm(self.axis_name, name="batch")
        return norm(x, mask=mask, train=train)
