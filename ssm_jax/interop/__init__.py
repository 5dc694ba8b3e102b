"""Models of other libraries, from their files and back."""

from ssm_jax.interop.mamba import load_mamba, save_mamba

__all__ = [
    "load_mamba",
    "save_mamba",
]
