"""Models of other libraries, from their files and back."""

from ssm_jax.interop.mamba import load_mamba as load_mamba
from ssm_jax.interop.mamba import save_mamba as save_mamba
