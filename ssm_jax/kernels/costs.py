"""The predicted time of a linear recurrence, by which ``"auto"`` chooses its method.

On an accelerator the kernels of a program run one after another. Each has a time of its
own, and reads and writes its arrays at the bandwidth of the memory::

    seconds = kernels * seconds_per_kernel + bytes / bandwidth

The number of kernels is proportional to the depth of a method, and the number of bytes
to that of the states. Both factors were counted in programs that were compiled for an
H100 and for a TPU v5e, of the evaluation with its gradient (``python -m benchmarks
--suite=costs``). The bandwidths are those that the manufacturers state; the seconds per
kernel are estimates. On an H200 measured times are between .6 and 2.1 of the predicted
ones, and the methods in the predicted order (``--suite=roofline``). Nothing has been
measured on a TPU.
"""

import math
from typing import NamedTuple

from ssm_jax.types import Method

_PARALLEL: tuple[Method, ...] = ("associative", "chunked")

METHODS: tuple[Method, ...] = ("sequential", *_PARALLEL)
"""The methods that are compared: of any decay, with or without resets."""


class Counts(NamedTuple):
    """What a method costs with its gradient.

    Attributes:
      passes: Number of times that an array of the size of the states is read or
        written.
      kernels_per_level: Number of kernels, divided by the `depth`.
    """

    passes: float
    kernels_per_level: float


class Accelerator(NamedTuple):
    """Speed of a device.

    Attributes:
      bandwidth: Bytes per second that kernels read and write.
      seconds_per_kernel: Time of a kernel that does nothing.
    """

    bandwidth: float
    seconds_per_kernel: float

    def seconds(self, counts: Counts, depth: int, n_bytes: int) -> float:
        """Returns the predicted time.

        Args:
          counts: What is counted per pass and per level.
          depth: Number of levels.
          n_bytes: Number of bytes of all states.
        """
        n_kernels = counts.kernels_per_level * depth
        return (
            n_kernels * self.seconds_per_kernel
            + counts.passes * n_bytes / self.bandwidth
        )


ACCELERATORS = {"gpu": Accelerator(3.35e12, 3e-6), "tpu": Accelerator(8.19e11, 1e-6)}

TIME_INVARIANT: dict[str, dict[Method, Counts]] = {
    "gpu": {
        "sequential": Counts(27.0, 6.2),
        "associative": Counts(12.9, 3.9),
        "chunked": Counts(20.3, 6.2),
    },
    "tpu": {
        "sequential": Counts(18.9, 9.2),
        "associative": Counts(50.1, 24.4),
        "chunked": Counts(20.1, 8.4),
    },
}

INPUT_DEPENDENT: dict[str, dict[Method, Counts]] = {
    "gpu": {
        "sequential": Counts(25.0, 6.0),
        "associative": Counts(22.7, 1.9),
        "chunked": Counts(30.0, 6.2),
    },
    "tpu": {
        "sequential": Counts(21.0, 11.0),
        "associative": Counts(65.4, 13.5),
        "chunked": Counts(35.2, 10.3),
    },
}

STEP = {"gpu": Counts(40.0, 22.0), "tpu": Counts(40.0, 23.0)}
"""A step of a GRU and its gradient, without reading the weights; per step."""

STEPPING = ACCELERATORS | {
    "gpu": ACCELERATORS["gpu"]._replace(seconds_per_kernel=8.2e-7)
}
"""Speed in the steps of a nonlinear recurrence, whose kernels take less time. On an
H200 a step of a GRU took 7 microseconds without its gradient (``--suite=iterations``);
the time of a kernel of both passes is an estimate from it.
"""

NONLINEAR_TERM = {"gpu": Counts(40.0, 12.0), "tpu": Counts(44.0, 54.0)}
"""The nonlinear term in an iteration of a parallel solve, and in one of its gradient;
in addition to the linear recurrence."""

ITERATIONS = {"newton": 20, "picard": 6}
"""Iterations of GRUs and LSTMs, and of Fourier recurrent units, at initial weights."""


def depth(method: Method, length: int) -> int:
    """Returns the number of steps that a method evaluates one after another.

    Args:
      method: One of `METHODS`.
      length: Number of steps of the recurrence.

    Example:
      >>> [depth(method, 1024) for method in METHODS]
      [1024, 11, 64]
    """
    if method == "sequential":
        return length
    return length.bit_length() if method == "associative" else 2 * math.isqrt(length)


def seconds(
    method: Method,
    platform: str,
    *,
    time_invariant: bool,
    length: int,
    n_bytes: int,
) -> float:
    """Returns the predicted time of a recurrence with its gradient.

    Args:
      method: One of `METHODS`.
      platform: ``"tpu"``, or a name of a GPU: ``"gpu"``, ``"cuda"`` or ``"rocm"``.
      time_invariant: Whether the decay is the same at all steps.
      length: Number of steps.
      n_bytes: Number of bytes of all states.

    Returns:
      Seconds.
    """
    name = _name(platform)
    counts = (TIME_INVARIANT if time_invariant else INPUT_DEPENDENT)[name][method]
    return ACCELERATORS[name].seconds(counts, depth(method, length), n_bytes)


def fastest(
    platform: str, *, time_invariant: bool, length: int, n_bytes: int
) -> Method:
    """Returns the method of the shortest predicted time; arguments as of `seconds`."""

    def predicted(method):
        return seconds(
            method,
            platform,
            time_invariant=time_invariant,
            length=length,
            n_bytes=n_bytes,
        )

    return min(METHODS, key=predicted)


def fastest_nonlinear(
    platform: str, solver: str, *, length: int, n_bytes: int
) -> Method:
    """Returns the method for a nonlinear recurrence with the shortest predicted time.

    Args:
      platform: As of `seconds`.
      solver: ``"newton"`` or ``"picard"``, by which it is solved in parallel.
      length: Number of steps.
      n_bytes: Number of bytes of all states.

    Returns:
      ``"sequential"`` for one step after another, else the method that evaluates the
      linear recurrence of each iteration.
    """
    name = _name(platform)
    device = ACCELERATORS[name]

    def linear(method):
        return seconds(
            method,
            platform,
            time_invariant=solver == "picard",
            length=length,
            n_bytes=n_bytes,
        )

    inner = min(_PARALLEL, key=linear)
    term = device.seconds(NONLINEAR_TERM[name], 1, n_bytes)
    iterated = ITERATIONS[solver] * (linear(inner) + term)
    stepped = STEPPING[name].seconds(STEP[name], length, n_bytes)
    return "sequential" if stepped <= iterated else inner


def _name(platform):
    return "tpu" if platform == "tpu" else "gpu"
