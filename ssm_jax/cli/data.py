"""The flags that say where the data of a run are, and whether they may have changed."""

from absl import flags


def define_data(where: str) -> None:
    """Defines ``--data_dir`` and ``--allow_changed_data``.

    Args:
      where: What ``--help`` says of the directory.
    """
    flags.DEFINE_string("data_dir", None, where)
    flags.DEFINE_bool(
        "allow_changed_data", False, "Go on with other data than the run began with."
    )
