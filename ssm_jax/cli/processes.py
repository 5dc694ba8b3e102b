"""Connection of the processes of a run, by flags or as the cluster tells.

If one of them is lost, JAX ends the others by SIGABRT (exit status 134) within the
seconds of ``--heartbeat_timeout``, wherever they wait. In place of what it prints then,
with a trace of its stack, there is one line that says what to do.
"""

import atexit
import contextlib
import faulthandler
import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
from absl import flags, logging

from ssm_jax.cli.compile_cache import close_default_cache
from ssm_jax.cli.errors import one_line_errors
from ssm_jax.cli.native_log import StderrFilter
from ssm_jax.training.interruption import SavedInterrupt

_TIMEOUT_S = 300
_HEARTBEAT_S = 100

_GRACE_S = 1
_watchers: list[StderrFilter] = []

# What JAX prints where a process did not connect in time, or was lost, line by line:
# `jax.distributed.initialize` has no option that leaves it out.
_OF_JAX = "|".join(
    (
        r"^F\d{4} .*DEADLINE_EXCEEDED",
        r"^[WEF]\d{4} .*(coordination_service|preemption_sync_manager|client\.h)",
        r"^Additional GRPC error|^:UNKNOWN:Error received|^RPC: /xla",
        r"^The tasks have crashed|^\d+$|^$",  # Numbers of tasks.
        r"^\*\*\* Check failure|^ +@ +0x",
    )
)

_LOST = r"heartbeats\):\n((?:\d+\n)+)"
"""How JAX names the processes that it lost."""


def define_processes() -> None:
    """Defines the flags; their defaults are those of the environment."""
    env = os.environ
    flags.DEFINE_string(
        "coordinator_address",
        env.get("JAX_COORDINATOR_ADDRESS"),
        "Host and port of the first process, when several processes train one run.",
    )
    flags.DEFINE_integer(
        "num_processes", _number(env, "JAX_NUM_PROCESSES"), "How many there are."
    )
    flags.DEFINE_integer(
        "process_id", _number(env, "JAX_PROCESS_ID"), "Index of this process, from 0."
    )
    flags.DEFINE_integer(
        "connect_timeout",
        _TIMEOUT_S,
        "Seconds in which all processes must have connected.",
    )
    flags.DEFINE_integer(
        "heartbeat_timeout",
        _HEARTBEAT_S,
        "Seconds without a sign of life after which a process counts as lost, and the "
        "others end.",
    )


def connect() -> None:
    """Connects this process to the others of the run, if there are any.

    Slurm, Open MPI, Cloud TPU VMs and GKE tell how many there are; elsewhere the flags
    of `define_processes` do. It must be called before JAX is used.

    Raises:
      ValueError: Only some of the flags are given, or they do not fit.
      ConnectionError: A process did not connect in time.
    """
    values = flags.FLAGS
    names = ("coordinator_address", "num_processes", "process_id")
    values_by_name = {name: getattr(values, name) for name in names}
    cluster = cluster_of(os.environ)
    if all(value is None for value in values_by_name.values()):
        if cluster is None:
            return
    elif lacking := [name for name, value in values_by_name.items() if value is None]:
        if cluster is None:
            raise ValueError(
                f"`--{lacking[0]}` must be given with "
                f"{', '.join(f'--{n}' for n in names if n not in lacking)}, got none; "
                "each process needs all three, or a cluster that JAX knows."
            )
    _check_numbers(values_by_name["num_processes"], values_by_name["process_id"])
    address = values_by_name["coordinator_address"] or "the first one"
    rule = f"all processes must connect within {values.connect_timeout} s to {address}"
    _start_watcher(
        f"error: {rule}, got one that did not; start all of them with the address of "
        "the first, or raise --connect_timeout."
    )
    try:
        # JAX does not raise an error but ends the process.
        jax.distributed.initialize(
            **values_by_name,
            local_device_ids=_all_gpus(os.environ) if cluster == "Slurm" else None,
            initialization_timeout=values.connect_timeout,
            heartbeat_timeout_seconds=values.heartbeat_timeout,
        )
    except ValueError as error:
        if cluster != "TPU":
            raise ValueError(
                f"`{cluster}` must tell the address of the first process, got none "
                f"({error}); give --coordinator_address, --num_processes and "
                "--process_id."
            ) from error
        # A TPU without the metadata of a cluster is one host.
        return
    except RuntimeError as error:
        raise ConnectionError(
            f"{rule}, got {' '.join(str(error).split())[:300]}; start all of them, or "
            "raise --connect_timeout."
        ) from error
    _stop_watcher()
    _start_watcher(
        "error: all processes must run until the end, got {} that ended or was no "
        "longer heard of, see its own output; start all of them again, the same "
        "command continues after the last checkpoint."
    )
    if jax.process_count() > 1:
        close_default_cache()
    if jax.process_index() and logging.get_verbosity() == logging.INFO:
        # The first process logs what is the same in all.
        logging.set_verbosity(logging.WARNING)
    logging.info(
        "process %d of %d, with %d of %d devices",
        *(jax.process_index(), jax.process_count()),
        *(jax.local_device_count(), jax.device_count()),
    )


@contextlib.contextmanager
def exit_at_error() -> Iterator[None]:
    """Ends one of several processes at an error, instead of waiting for the others.

    JAX would wait for them at the end of the process, and they for this one. Ctrl-C
    before the first step, which the others do not learn of, counts as an error.

    Raises:
      Exception: That of the block, if there is one process.
    """
    try:
        yield
    except SavedInterrupt:
        raise  # All processes end.
    except (Exception, KeyboardInterrupt):
        if not jax.distributed.is_initialized() or jax.process_count() == 1:
            raise
        status = 1
        try:
            with one_line_errors(traceback="--traceback" in sys.argv):
                raise
        except SystemExit as end:
            status = end.code
        except Exception:
            traceback.print_exc()
        if jax.process_index() == 0:
            # Without this process JAX ends the others, which may have the same to say.
            time.sleep(_GRACE_S)
        _stop_watcher()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def cluster_of(environ: Mapping[str, str]) -> str | None:
    """Returns the cluster that has started several processes, as JAX detects it.

    Args:
      environ: Environment variables.

    Returns:
      ``"Slurm"``, ``"Open MPI"`` or ``"TPU"``; None if there is one process.
    """
    slurm = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID")
    if all(name in environ for name in slurm):
        return "Slurm" if int(environ.get("SLURM_NTASKS", 1)) > 1 else None
    if int(environ.get("OMPI_COMM_WORLD_SIZE", 1)) > 1:
        return "Open MPI"
    # A process on a TPU VM does not know how many there are before it connects.
    if importlib.util.find_spec("libtpu") is None:
        return None
    devices = any(Path("/dev").glob("accel*")) or any(Path("/dev/vfio").glob("[0-9]*"))
    return "TPU" if devices else None


def _all_gpus(environ):
    """The GPUs of a Slurm task that is alone on its node; None otherwise.

    JAX would take one of them: its default is one task for each GPU.
    """
    nodes = environ.get("SLURM_STEP_NUM_NODES", environ.get("SLURM_JOB_NUM_NODES"))
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    if nodes != environ["SLURM_NTASKS"] or not visible:
        return None
    return list(range(len(visible.split(","))))


def _start_watcher(text):
    """Prints a line if this process ends in a way in which no Python code runs."""
    # Its traces of all threads would follow the message of JAX.
    faulthandler.disable()
    _watchers.append(StderrFilter(_OF_JAX, text + "\n", _LOST))
    atexit.register(_stop_watcher)


def _stop_watcher():
    """Ends the child that would print the line."""
    while _watchers:
        _watchers.pop().close()


def _check_numbers(count, index):
    if count is not None and count < 1:
        raise ValueError(
            f"`--num_processes` must be positive, got {count}; 1 is one process."
        )
    if index is not None and not 0 <= index < (count or index + 1):
        raise ValueError(
            f"`--process_id` must be from 0 to {(count or 1) - 1}, got {index}; each "
            "process has its own."
        )


def _number(environ, name):
    value = environ.get(name)
    if value is not None and not value.isdecimal():
        raise ValueError(f"`{name}` must be a number, got {value!r}; unset it.")
    return None if value is None else int(value)
