"""Conversion of models from and to other formats: Hugging Face's Mamba, StableHLO."""

from ssm_jax.interop.mamba import load_mamba, save_mamba
from ssm_jax.interop.stablehlo import export_model, exported_programs

__all__ = [
    "export_model",
    "exported_programs",
    "load_mamba",
    "save_mamba",
]
