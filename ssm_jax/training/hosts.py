"""Agreement of the processes that train one run, on one or several hosts.

Every process of a run takes the same steps on its own rows of each batch. What depends
on a clock or on a disk is decided by the process of index 0, because the processes must
run the same computations in the same order. With one process, nothing is exchanged.
"""

import contextlib
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

from ssm_jax.tasks.fingerprint import Fingerprint, describe

_SHOWN = 1000  # bytes of the message of an error


def is_first() -> bool:
    """Whether this process is the one that writes metrics and decides."""
    return jax.process_index() == 0


def broadcast_from_first(value: int) -> int:
    """Returns the value of the first process in all processes.

    Args:
      value: An integer that fits into int32; only that of the first process counts.
    """
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


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


def check_same_data(found: Fingerprint | None) -> None:
    """Checks that all processes read the same data.

    Args:
      found: The fingerprint of the files that this process reads; None if there are
        none.

    Raises:
      ValueError: Another process reads other data; raised in all processes.
    """
    if jax.process_count() == 1:
        return
    digest = found["sha256"] if found else "00" * 4
    values = multihost_utils.process_allgather(
        np.frombuffer(bytes.fromhex(digest)[:4], np.int32)
    )
    others = np.flatnonzero(np.ravel(values) != np.ravel(values)[0])
    if others.size:
        got = describe(found) if found else "no files"
        raise ValueError(
            "`task` must read the same data in every process, got others than process "
            f"0 in {', '.join(map(str, others))}, and in process {jax.process_index()} "
            f"{got}; copy those of one host to all, or use a disk that they share."
        )


def on_first(do: Callable[[], object]) -> None:
    """Calls a function in the first process, while the others wait for it.

    Args:
      do: The function. An error of it is raised in all processes.

    Raises:
      ValueError: In the other processes, with the message of the error.
    """
    problem: Exception | None = None
    if is_first():
        try:
            do()
        except Exception as error:
            problem = error
    if jax.process_count() > 1:
        words = f"{type(problem).__name__}: {problem}".encode() if problem else b""
        text = np.zeros(_SHOWN, np.uint8)
        text[: len(words)] = np.frombuffer(words[:_SHOWN], np.uint8)
        text = multihost_utils.broadcast_one_to_all(text)
        words = bytes(text).rstrip(b"\0").decode(errors="replace")
        if words and problem is None:
            raise ValueError(f"process 0 must be able to continue, got {words}")
    if problem is not None:
        raise problem


@contextlib.contextmanager
def name_lost_processes() -> Iterator[None]:
    """Turns the errors of JAX after another process ended into one of one line.

    Raises:
      ConnectionError: A computation of several processes failed.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        # Lack of memory is an error of this process alone, which names itself.
        if jax.process_count() == 1 or str(error).startswith("RESOURCE_EXHAUSTED"):
            raise
        got = " ".join(str(error).split())[:300]
        raise ConnectionError(
            f"all {jax.process_count()} processes must run until the end, got in "
            f"process {jax.process_index()}: {got}; start all of them again, the same "
            "command continues after the last checkpoint."
        ) from error
