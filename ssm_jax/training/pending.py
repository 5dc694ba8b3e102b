"""Reductions of the steps since the last line of metrics, in a checkpoint.

A run that is saved between two lines of metrics averages over the steps before and
after the restart, as one that was not interrupted does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from ssm_jax.training.checkpointing.leaves import named_leaves
from ssm_jax.training.losses import Reductions
from ssm_jax.types import PyTree


def stacked(waiting: Sequence[Reductions]) -> PyTree:
    """Reductions of several steps as one tree, whose arrays begin with the steps."""
    steps: list[Any] = jax.device_get(list(waiting))
    return jax.tree.map(lambda *values: np.stack(values), *steps) if steps else {}


def unstacked(arrays: Mapping[str, np.ndarray], like: Reductions) -> list[Reductions]:
    """Inverse of `stacked`.

    Args:
      arrays: The arrays by their names in the checkpoint.
      like: Reductions of another step.

    Returns:
      The reductions of each step. None of a checkpoint of another version, which has
      reductions with other fields: the next line of metrics averages over fewer steps.
    """
    names, structure = list(named_leaves(like)), jax.tree.structure(like)
    if arrays and not set(names) <= arrays.keys():
        logging.warning("the metrics of steps before the checkpoint are left out")
        return []
    n_steps = min((len(array) for array in arrays.values()), default=0)
    return [
        jax.tree.unflatten(structure, [arrays[name][i] for name in names])
        for i in range(n_steps)
    ]
