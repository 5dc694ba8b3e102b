"""Compiled programs are kept for later processes, by JAX's compilation cache.

They are in the cache directory of the user, unless ``--compile_cache`` or the
environment variable JAX_COMPILATION_CACHE_DIR names another. JAX finds a program by its
operations, its options, the versions of JAX and XLA and the kind of the device, of a
CPU its instruction sets: machines may share a home directory.

JAX would bound the size itself, by a lock and a listing of the directory for each
program, and by the package filelock. Here the programs that were not used for the
longest time are deleted when a process starts. Nothing is locked: a process that meets
a file which another one writes or deletes compiles that program, with a warning.
"""

import contextlib
import errno
import os
import shutil
import sys
from pathlib import Path

from absl import flags, logging

VARIABLE = "JAX_COMPILATION_CACHE_DIR"

MAX_BYTES, MAX_FILES = 2**30, 2**12
"""Bounds of the default directory when a process starts."""

_FREE_BYTES = 2**28
"""Free space without which nothing is kept."""


def define_compile_cache() -> None:
    """Defines ``--compile_cache``."""
    flags.DEFINE_string(
        "compile_cache",
        None,
        "Directory of compiled programs, or none (default: in the user's cache).",
    )


def open_compile_cache(choice: str | None) -> None:
    """Makes JAX keep compiled programs, where there is a place for them.

    Args:
      choice: The value of ``--compile_cache``.
    """
    jax = sys.modules.get("jax")
    if jax is None:  # The program compiles nothing.
        return
    if choice == "none":
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if choice is None and VARIABLE in os.environ:
        return  # JAX has read it.
    try:
        directory = choice or str(_own_directory())
        if "://" not in directory:  # as that of a bucket
            _check_space(Path(directory))
    except (OSError, RuntimeError) as error:  # A user may have no home directory.
        logging.warning("compiled programs are not kept: %s", error)
        return
    jax.config.update("jax_compilation_cache_dir", directory)
    # The default leaves out what compiles in less than a second.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def close_default_cache() -> None:
    """Keeps nothing unless a directory was asked for, in one of several processes.

    The first process alone writes. Compiling for GPUs, processes wait for what the
    others have measured: those that find no program would wait for one that found it.
    """
    if flags.FLAGS.compile_cache is None:
        directory = os.environ.get(VARIABLE)
        sys.modules["jax"].config.update("jax_compilation_cache_dir", directory)


def default_directory() -> Path:
    """Returns the directory of compiled programs, which need not exist.

    Raises:
      RuntimeError: The user has no home directory.
    """
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The standard ignores relative paths.
        caches = caches if caches.is_absolute() else Path.home() / ".cache"
    return caches / "ssm_jax" / "compiled"


def delete_oldest(directory: Path, max_bytes: int, max_files: int) -> None:
    """Deletes the files that were not used for the longest time, and empty ones.

    Args:
      directory: The directory, with those in it.
      max_bytes: Maximum size of the files that are kept.
      max_files: Maximum number of files that are kept.
    """
    found = []
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):  # Another process may delete it.
            if path.is_file():
                status = path.stat()
                used = max(status.st_atime, status.st_mtime)
                found.append((used, status.st_size, path))
    kept_bytes = 0
    for number, (_, size, path) in enumerate(sorted(found, reverse=True), 1):
        kept_bytes += size
        if size == 0 or kept_bytes > max_bytes or number > max_files:
            with contextlib.suppress(OSError):
                path.unlink()


def _own_directory():
    """The default directory, within its bounds."""
    directory = default_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    # Whoever writes there runs code here.
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "others may write there", str(directory))
    delete_oldest(directory, MAX_BYTES, MAX_FILES)
    return directory


def _check_space(directory):
    """Checks that files can be written, as JAX would warn of each program."""
    directory.mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK | os.X_OK):
        code = errno.EACCES
    elif shutil.disk_usage(directory).free < _FREE_BYTES:
        code = errno.ENOSPC
    else:
        return
    raise OSError(code, os.strerror(code), str(directory))
