"""Checkpoints of a run, and the record that says whether one is as it was saved."""

from ssm_jax.training.checkpointing.checkpoints import Checkpoints, Restored
from ssm_jax.training.checkpointing.integrity import CheckpointError

__all__ = ["CheckpointError", "Checkpoints", "Restored"]
