"""Sequences and parameters that are sharded over devices, in `jax.shard_map`."""

from ssm_jax.sharding.axis import sharded_length
from ssm_jax.sharding.length import LengthSharded

__all__ = ["LengthSharded", "sharded_length"]
