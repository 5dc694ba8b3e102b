"""What may change in the config of a run from one start of it to the next."""

from ml_collections import ConfigDict

from ssm_jax.config import differences

MAY_CHANGE = ("task.data_dir",)
"""Paths in the config: data may move."""

_SHOWN = 10


def config_changes(old: ConfigDict, new: ConfigDict) -> str:
    """Lists where two configs differ, but for what may change.

    Args:
      old: The config of a run.
      new: What it is compared with.

    Returns:
      The differences in one line, ``"path: old -> new; ..."``, the first ten of them;
      empty if there are none.

    Example:
      >>> old = {"task": {"data_dir": "a"}, "steps": 10}
      >>> new = {"task": {"data_dir": "b"}, "steps": 20}
      >>> config_changes(ConfigDict(old), ConfigDict(new))
      'steps: 10 -> 20'
    """
    paths = tuple(f"{path}:" for path in MAY_CHANGE)
    changes = [line for line in differences(old, new) if not line.startswith(paths)]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return "; ".join(changes[:_SHOWN]) + more
