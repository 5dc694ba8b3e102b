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


class Norm(Module):
    """One of the normalisations that the published models use.

    Attributes:
      kind: ``"layer"``: LayerNorm over channels. ``"rms"``: the same without mean and
        shift, as in Mamba. ``"batch"``: BatchNorm over batch and
        steps, moments of the data only, running moments where not in training;
        devices that share a batch weigh the same, whatever they have of data.
        ``"scalar"``: `ScalarNorm`.
      axis_name: Mapped axis over which batch moments are shared. None: none.
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
        norm = nn.BatchNorm(
            use_running_average=not train,
            momentum=0.9,
            epsilon=1e-5,
            axis_name=self.axis_name,
            name="batch",
        )
        return norm(x, mask=None if mask is None else jnp.asarray(mask)[..., None])
