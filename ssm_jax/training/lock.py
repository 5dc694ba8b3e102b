"""Who may write to a run: one process, which holds the lock of its work folder."""

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import jax
from absl import logging

# What a file system without locks answers: NFS without a lock daemon, some Lustre.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def check_one_process() -> None:
    """Refuses the processes of `jax.distributed`.

    Raises:
      ValueError: There are several: each would do the whole work, in one folder.
    """
    if (count := jax.process_count()) > 1:
        raise ValueError(
            f"`jax.process_count()` must be 1, got {count}: a run of several processes "
            "is not supported yet; start one process, on all devices of one host."
        )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file while the block runs.

    The lock goes with the process, however that ends. The file stays: it says which
    process holds the lock or was the last to hold it. On a file system without locks
    a warning says so and the block runs.

    Args:
      path: The lock file, ``FOLDER/lock``.

    Raises:
      ValueError: Another process holds the lock, or another thread of this one.
      OSError: The file cannot be written.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            _take(handle, path)
        except OSError as error:  # of a file descriptor, which does not know its path
            raise OSError(error.errno, error.strerror, str(path)) from error
        yield
    finally:
        os.close(handle)


def _take(handle: int, path: Path) -> None:
    """Locks an open file and writes there who did."""
    try:
        # Released by the kernel with the process, so a kill leaves no stale lock.
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(handle, 1000).decode(errors="replace").strip()
        raise ValueError(
            "`workdir` must be of one process at a time, got "
            f"{path.parent}, locked by {owner or 'another process'}; wait for it or "
            "give another --workdir."
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logging.warning(
            "%s cannot be locked (%s): nothing keeps a second process from training in "
            "%s and damaging its metrics; start only one.",
            path,
            error.strerror,
            path.parent,
        )
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
