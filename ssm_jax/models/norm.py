"""Normalization layers: `Norm`, `BatchNorm` and `ScalarNorm`."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import PositiveFloat
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.layers.layer_norm import LayerNorm, center
from ssm_jax.layers.module import FlaxRMSNorm, Module
from ssm_jax.types import Activations, Steps

AxisName = str | tuple[str, ...] | None
"""The mapped axis or axes over which a batch is sharded."""

NormKind = Literal["layer", "rms", "batch", "scalar"]


class ScalarNorm(Module):
    """Normalizes the channels of each step, with a scalar scale and a scalar shift.

    ``y = s (x - mean + m) / std``. The authors' code of DLR calls this layer norm.

    Parameters, float32:
      scale: ``()``, ``s``, initialized to 1.
      shift: ``()``, ``m``, initialized to 0.

    Note:
      The authors' code divides by zero if all channels of a step are equal. This layer
      adds 1e-12 to the variance.
    """

    @nn.compact
    def __call__(self, x: Activations) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        scale = self.param("scale", nn.initializers.ones, ())
        shift = self.param("shift", nn.initializers.zeros, ())
        dtype = common_dtype(x, scale)
        x = center(x)
        variance = jnp.mean(jnp.square(x), -1, keepdims=True)
        # The shift is added before the scaling, as in the authors' code.
        y = scale * jax.lax.rsqrt(variance + 1e-12) * (x + shift)
        return y.astype(dtype)


class BatchNorm(Module):
    """Normalizes each channel by its mean and variance over all valid steps of a batch.

    ``y = s (x - mean) / sqrt(var + epsilon) + b``. With ``axis_name`` the moments are
    taken over the valid steps of all devices together, so each device is weighted by
    its number of valid steps, which may be 0. `flax.linen.BatchNorm` averages the
    moments of the devices with equal weights, which gives a different result if the
    numbers of valid steps differ.

    Attributes:
      axis_name: Mapped axis over which the batch is sharded. None means that the batch
        is not sharded.
      momentum: Decay of the running moments.
      epsilon: Constant added to the variance.

    Parameters, float32:
      scale: ``(d,)``, ``s``, initialized to 1.
      bias: ``(d,)``, ``b``, initialized to 0.

    Variables of the collection ``batch_stats``, float32:
      mean: ``(d,)``, the running mean, initialized to 0.
      var: ``(d,)``, the running variance, initialized to 1. A batch without valid steps
        changes neither of them.
    """

    axis_name: AxisName = None
    momentum: float = 0.9
    epsilon: float = 1e-5

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        _check(x, mask)
        d = x.shape[-1:]
        scale = self.param("scale", nn.initializers.ones, d)
        bias = self.param("bias", nn.initializers.zeros, d)
        dtype = common_dtype(x, scale)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, d)
        running_var = self.variable("batch_stats", "var", jnp.ones, d)
        mean, var = running_mean.value, running_var.value
        difference = x.astype(common_dtype(x, mean))
        difference = difference - promoted_like(mean, difference)
        if train:
            # Models are initialized outside the mapped function, where the axis name is
            # unbound.
            initializing = self.is_initializing()
            axis_name = None if initializing else self.axis_name
            n, mean, var, difference = _moments(x, mask, axis_name)
            if not initializing:
                # A batch without valid steps has no moments to average in.
                # The increment form leaves the running moments bitwise unchanged then.
                weight = jnp.where(n > 0, 1 - self.momentum, 0)
                running_mean.value += weight * (mean - running_mean.value)
                running_var.value += weight * (var - running_var.value)
        # Scale and deviation are combined first: one product per element instead of
        # two.
        wide = common_dtype(difference, scale)
        difference, scale, bias = (v.astype(wide) for v in (difference, scale, bias))
        factor = scale * jax.lax.rsqrt(var + self.epsilon).astype(wide)
        y = difference * promoted_like(factor, difference)
        y = y + promoted_like(bias, y)
        # The moments are float32, also where inputs and parameters are bfloat16.
        return y.astype(dtype)


def _moments(x, mask, axis_name):
    """Number of valid steps, mean and variance of each channel, and ``x - mean``."""
    # Sums over many steps lose too much in bfloat16 and float16.
    x = x.astype(common_dtype(x, jnp.float32))
    valid = jnp.ones((1, 1), bool) if mask is None else jnp.asarray(mask)[..., None]
    valid = jnp.broadcast_to(valid, (*x.shape[:-1], 1))

    def total(values):
        sums = jnp.sum(values, tuple(range(x.ndim - 1)))
        return sums if axis_name is None else jax.lax.psum(sums, axis_name)

    # Sums, not means, are added over devices: each may have another number of steps.
    n = total(valid.astype(x.dtype))
    # Without valid steps the moments are 0 instead of NaN.
    safe_n = jnp.maximum(n, 1)
    mean = total(jnp.where(valid, x, 0)) / safe_n
    # Two passes, because `E[x^2] - mean^2` cancels where the mean is large. The mean
    # itself is rounded there; that of the differences is subtracted once more, and as
    # it is zero but for rounding, it has no derivative.
    centered_x = x - promoted_like(mean, x)
    difference = jnp.where(valid, centered_x, 0)
    rounding = jax.lax.stop_gradient(total(difference) / safe_n)
    var = total(jnp.square(difference)) / safe_n - jnp.square(rounding)
    return n, mean + rounding, var, centered_x - promoted_like(rounding, x)


class Norm(Module):
    """A normalization layer selected by name.

    Attributes:
      kind: ``"layer"``: LayerNorm over the channels. ``"rms"``: RMSNorm over the
        channels, as in Mamba. ``"batch"``: `BatchNorm` over all valid steps of the
        batch. ``"scalar"``: `ScalarNorm`.
      axis_name: Mapped axis over which the batch is sharded; BatchNorm shares its
        moments over it. None means that the batch is not sharded.
      rms_epsilon: Constant added to the mean square of an RMSNorm; the default is that
        of the published Mamba models.
    """

    kind: NormKind = "layer"
    axis_name: AxisName = None
    rms_epsilon: PositiveFloat = 1e-5

    @nn.compact
    def __call__(
        self, x: Activations, *, mask: Steps | None = None, train: bool = False
    ) -> Activations:
        """Maps ``(*b, l, d)`` to ``(*b, l, d)``."""
        _check(x, mask)
        if self.kind == "scalar":
            return ScalarNorm(name="scalar")(x)
        if self.kind == "layer":
            return _recompute(LayerNorm)(name="layer")(x)
        if self.kind == "rms":
            return _recompute(FlaxRMSNorm)(epsilon=self.rms_epsilon, name="rms")(x)
        # Only these moments include other steps, so only they need the mask.
        norm = BatchNorm(self.axis_name, name="batch")
        return norm(x, mask=mask, train=train)


def _recompute(norm):
    """Returns a module that computes its parts again for the gradient."""
    return nn.remat(norm, prevent_cse=False)


def _check(x, mask):
    check_floating("x", x)
    check_flags("mask", mask)
