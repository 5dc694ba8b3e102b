"""Weights of another run as the first ones of a new run."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flax import traverse_util

from ssm_jax.training.checkpointing import Checkpoints
from ssm_jax.training.checkpointing.integrity import Json, read_record, records
from ssm_jax.training.checkpointing.leaves import abstract, named_leaves
from ssm_jax.training.stopping import best_step
from ssm_jax.types import PyTree


class WarmStart(NamedTuple):
    """Variables of a model, some of them from another run.

    Attributes:
      params: Parameters.
      model_state: Other variables.
      step: The step of the other run.
      loaded: Paths of what is from the other run, such as
        ``params/encoder/linear/dense/kernel``.
      skipped: What the other run has besides, with its shape.
      initialized: What the other run lacks, with its shape; the values are unchanged.
    """

    params: PyTree
    model_state: PyTree
    step: int
    loaded: tuple[str, ...]
    skipped: tuple[str, ...]
    initialized: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yields lines for the log."""
        for what in ("loaded", "skipped", "initialized"):
            names = getattr(self, what)
            yield f"{what}, {len(names)} arrays: {', '.join(names) or 'none'}"


def warm_start(
    workdir: str | os.PathLike[str], params: PyTree, model_state: PyTree
) -> WarmStart:
    """Loads what has the same path and shape from the best checkpoint of a run.

    The classes of that run are not needed: its checkpoint alone is read. If it averaged
    its parameters (``training.ema``), the averages are loaded.

    Args:
      workdir: Work dir of the other run; it is not modified.
      params: Initialized parameters of the model, without boxes.
      model_state: Its other variables.

    Returns:
      The variables, in the dtypes of those given, and what came from where.

    Raises:
      ValueError: The run has no checkpoint, or no parameter of that path and shape.
      CheckpointError: The checkpoint is damaged.
    """
    directory = Path(workdir, "checkpoints").absolute()
    record = _best_record(directory)
    saved = record["leaves"]
    wanted = abstract(saved, "ema") or abstract(saved, "params")
    wanted |= abstract(saved, "model_state")
    target = traverse_util.unflatten_dict(wanted, sep="/")
    restored = Checkpoints(directory).restore(target, step=record["step"]).state
    if "ema" in restored:
        restored["params"] = restored.pop("ema")
    theirs = named_leaves(restored)
    ours = named_leaves({"params": params, "model_state": model_state})
    loaded = {
        name: np.asarray(theirs[name], leaf.dtype)
        for name, leaf in ours.items()
        if name in theirs and theirs[name].shape == leaf.shape
    }
    if not any(name.startswith("params/") for name in loaded):
        raise ValueError(
            "`init_from` must be a run with a parameter of the path and shape of one "
            f"of this model, got {workdir} with {_shown(theirs)[0]} where this model "
            f"has {_shown(ours)[0]}; leave it out, or use the model of that run."
        )
    tree = {"params": params, "model_state": model_state}
    leaves = [loaded.get(name, leaf) for name, leaf in ours.items()]
    tree = jax.tree.unflatten(jax.tree.structure(tree), leaves)
    return WarmStart(
        **tree,
        step=record["step"],
        loaded=tuple(loaded),
        skipped=_shown({n: leaf for n, leaf in theirs.items() if n not in loaded}),
        initialized=_shown({n: leaf for n, leaf in ours.items() if n not in loaded}),
    )


def _best_record(directory: Path) -> Json:
    """The record of the best step by the metric that the run was ranked by."""
    latest = Checkpoints(directory).latest_step
    if latest is None:
        raise ValueError(
            "`init_from` must be the work dir of a run with a checkpoint, got "
            f"{directory.parent}; train that run first."
        )
    # Of all checkpoints: the latest may have been saved between two evaluations.
    metrics = [{**of["metrics"], "step": of["step"]} for of in records(directory)]
    best = best_step(metrics)
    return read_record(directory / str(latest if best is None else best))


def _shown(leaves: dict) -> tuple[str, ...]:
    return tuple(f"{name} {leaf.shape}" for name, leaf in leaves.items())
