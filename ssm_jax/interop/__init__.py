"""Conversion of models from and to the formats of other libraries."""

from ssm_jax.interop.mamba import load_mamba as load_mamba
from ssm_jax.interop.mamba import save_mamba as save_mamba
