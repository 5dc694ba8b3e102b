"""Conversion of models from and to the formats of other libraries."""

from ssm_jax.interop.mamba import load_mamba, save_mamba

__all__ = [
    "load_mamba",
    "save_mamba",
]
