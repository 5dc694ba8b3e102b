"""Files that the user brings: their paths, and the arrays of an npz."""

import os
from pathlib import Path

from ssm_jax.files import ArrayFile


def path_of(data_dir: str | None, file: str) -> str:
    """Returns the path of a file, relative to ``data_dir`` unless it is absolute."""
    return os.path.join(os.path.expanduser(data_dir or ""), os.path.expanduser(file))


def data_files(path: str) -> dict[str, Path]:
    """Returns the files of a task on one file, as `Task` says."""
    return {Path(path).name: Path(path)}


def check_is_there(path: str) -> None:
    """Checks that there is a file.

    Raises:
      FileNotFoundError: There is none.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"`file` must be in `data_dir`, got {path} with nothing there; "
            "`--data_dir` is the directory of the file."
        )


def state_of(path: str) -> tuple[int, ...]:
    """Returns what a file is now, which keys what is kept of it in memory."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def npz(path: str) -> ArrayFile:
    """Opens an ``.npz`` file, whose arrays are read when they are asked for.

    Raises:
      ValueError: The file is damaged, or an array that is asked for is pickled or
        larger than a file of that size may hold; see `ssm_jax.files.ArrayFile`.
    """

    def explain(cause: str) -> str:
        return (
            f"`file` must be a whole npz of arrays without objects, got {path}: "
            f"{cause}; write it by `np.savez`."
        )

    return ArrayFile(path, explain)
