"""Locking of a work dir, so that only one process writes to it."""

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import jax
from absl import logging

from ssm_jax.files import named_errors

# What a file system without locks answers: NFS without a lock daemon, some Lustre.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def check_one_process() -> None:
    """Checks that `jax.distributed` has not connected several processes.

    Raises:
      ValueError: There are several processes, for something that only training does
        with several.
    """
    if (count := jax.process_count()) > 1:
        raise ValueError(
            f"`jax.process_count()` must be 1, got {count}: several processes train; "
            "start one process, on all devices of one host."
        )


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file while the block runs.

    The lock is released when the process ends, even if it is killed. The file is kept;
    it names the process that holds the lock or held it last. On a file system without
    locks a warning is logged and the block runs.

    Args:
      path: The lock file, ``WORKDIR/lock``.

    Raises:
      ValueError: Another process holds the lock, or another thread of this one.
      OSError: The file cannot be written.
    """
    # Without O_TRUNC: until the lock is taken, the content names its owner. A link, as
    # in the work dir of others, may lead to a file that is not to be written.
    with named_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        with named_errors(path):  # A file descriptor does not know its path.
            _take(handle, path)
        yield
    finally:
        # Releases the lock. The file is not deleted: a process that had opened it would
        # hold a lock on the deleted file, and another one on a new file of this name.
        os.close(handle)


def _take(handle: int, path: Path) -> None:
    """Locks an open file and writes the name of this process to it."""
    try:
        # Released by the kernel with the process, so a kill leaves no stale lock. Not
        # blocking: a second run fails at once instead of waiting for the first.
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
    # Truncated first, because the name of the previous owner may be longer.
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
