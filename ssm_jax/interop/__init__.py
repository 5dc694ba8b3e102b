"""Conversion of models from and to other formats: Hugging Face, StableHLO.

In code that uses NNX, layers and models work through `flax.nnx.bridge`; their outputs
and the states that a caller carries are those of Linen:

    >>> import jax.numpy as jnp
    >>> from flax import nnx
    >>> from ssm_jax import DLR, Recurrent
    >>> x = jnp.ones((1, 8, 4))  # (b, l, d)
    >>> layer = nnx.bridge.ToNNX(Recurrent(DLR(d_state=2)), rngs=nnx.Rngs(0))
    >>> y, state = layer.lazy_init(x)(x)
    >>> y.shape
    (1, 8, 4)

``nnx.update(module, run.variables["params"])`` gives a module the parameters of a
restored run, after ``module.lazy_init``.
"""

from ssm_jax.interop.stablehlo import export_model, exported_programs
from ssm_jax.models.pretrained import (
    load_mamba,
    load_pretrained,
    save_mamba,
    save_pretrained,
)

__all__ = [
    "export_model",
    "exported_programs",
    "load_mamba",
    "load_pretrained",
    "save_mamba",
    "save_pretrained",
]
