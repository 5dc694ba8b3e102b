"""The plan of an evaluation: its method, and the sizes of its blocks and slices.

The one place that decides how ``method="auto"`` evaluates a recurrence or a
convolution, and how many steps and modes are evaluated at once: by the platform that is
compiled for, the kind of decay and the shape. Each threshold stands beside its
measurement, which is recorded in ``experiments/benchmarks/``: times of one call with
its gradient on 2 cores in ``convolutions.json`` and ``lengths.json``, by ``python -m
benchmarks --suite=convolutions`` and ``--suite=lengths``; counts of compiled programs
in ``costs.json``, by ``python -m benchmarks --suite=costs``.

An FFT is the only method whose rounding errors at a step depend on later inputs: they
are relative to the largest input of the sequence. ``"auto"`` therefore takes another
method wherever it costs at most 1.5 times as much, in time on CPUs and in bytes moved
on accelerators.

On accelerators a linear recurrence is evaluated by the method of the shortest predicted
time. The kernels of a program run one after another. Each has a time of its own, and
reads and writes its arrays at the bandwidth of the memory::

    seconds = kernels * seconds_per_kernel + bytes / bandwidth

The number of kernels is proportional to the depth of a method, and the number of bytes
to that of the states. Both factors were counted in programs that were compiled for an
H100 and for a TPU v5e, of the evaluation with its gradient. The bandwidths are those
that the manufacturers state; the seconds per kernel are estimates. On an H200 measured
times are between .6 and 2.1 of the predicted ones, and the methods in the predicted
order (``roofline.json``). Nothing has been measured on a TPU.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.powers import LogDecay
from ssm_jax.types import Decays, Dimension, Method, PyTree, States


def is_symbolic(length: Dimension) -> bool:
    """Returns whether a length is a dimension of `jax.export.symbolic_shape`.

    Where a program is exported for any length, ``"auto"`` chooses ``"sequential"``, the
    only method whose program is the same at every length.

    Args:
      length: A dimension of a shape.

    Example:
      >>> import jax
      >>> is_symbolic(3), is_symbolic(jax.export.symbolic_shape("l")[0])
      (False, True)
    """
    # A symbolic dimension is compared, and then asked for its value, in vain.
    return not isinstance(length, int)


def is_time_invariant(a: States | Decays | LogDecay) -> bool:
    """Returns whether a decay is one of each state."""
    return isinstance(a, LogDecay) or jnp.ndim(a) == 1


# Predicted times of linear and nonlinear recurrences on accelerators.

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

# `costs.json` has these counts and those of the next tables.
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
H200 a step of a GRU took 7 microseconds without its gradient (``iterations_gpu.json``);
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


def _name(platform):
    return "tpu" if platform == "tpu" else "gpu"


# Methods of recurrences.

# For `chosen_method` without sizes: the array whose costs were counted.
_LENGTH = 4096
_BYTES_PER_STEP = 2**15


def chosen_method(
    a: States | Decays | LogDecay,
    *,
    platform: str | None = None,
    length: Dimension | None = None,
    n_bytes: Dimension | None = None,
) -> Method:
    """Returns the method that ``method="auto"`` selects.

    Args:
      a: Decay as in `linear_recurrence`; only its type and rank are used.
      platform: ``"cpu"``, ``"gpu"`` or ``"tpu"``. None means `target_platform`.
      length: Number of steps. None means 4,096.
      n_bytes: Number of bytes of all states. None means 32 KiB for each step.

    Returns:
      ``"sequential"`` on CPUs, where it is faster than the parallel methods, for a
      single step, as in decoding, and for a symbolic length, as in an export. On other
      platforms the method for which `ssm_jax.kernels.plan` predicts the shortest time,
      from the bytes and kernels of compiled programs: on GPUs ``"associative"``, on
      TPUs ``"chunked"`` for large arrays and ``"associative"`` for small ones. Never
      ``"pallas"``, whose kernels need GPUs from Hopper on, which is not known when a
      program is compiled elsewhere, and have not been measured on TPUs.

    Example:
      >>> chosen_method(jnp.array([0.5]), platform="tpu")
      'chunked'
    """
    steps: Dimension = _LENGTH if length is None else length
    return linear_method(
        time_invariant=is_time_invariant(a),
        length=steps,
        n_bytes=_BYTES_PER_STEP * steps if n_bytes is None else n_bytes,
        platform=platform,
    )


def linear_method(
    *,
    time_invariant: bool,
    length: Dimension,
    n_bytes: Dimension,
    platform: str | None = None,
) -> Method:
    """Returns the method of a linear recurrence; see `chosen_method`.

    Args:
      time_invariant: Whether the decay is the same at all steps.
      length: Number of steps.
      n_bytes: Number of bytes of all states.
      platform: As of `chosen_method`.
    """
    platform = platform or target_platform()
    if _is_stepped(platform, length):
        return "sequential"
    predicted = functools.partial(
        seconds,
        platform=platform,
        time_invariant=time_invariant,
        length=length,
        n_bytes=n_bytes,
    )
    return min(METHODS, key=predicted)


def _is_stepped(platform, length):
    """Whether no method that is parallel in time is compared."""
    return length == 1 or platform == "cpu" or is_symbolic(length)


def chunk_method(*, length: Dimension, size: Dimension, bytes_per_step: int) -> Method:
    """Returns the method within the chunks of an input-dependent recurrence.

    Args:
      length: Number of steps.
      size: Number of steps of a chunk.
      bytes_per_step: Number of bytes of all states of a step.
    """
    steps = length if is_symbolic(length) else min(size, length)
    return linear_method(
        time_invariant=False, length=steps, n_bytes=bytes_per_step * steps
    )


def recomputes_steps(*, n_inputs: int, n_states: int) -> bool:
    """Whether the backward pass of a scan over steps computes each step again.

    From its inputs and the state before it. Else decays, and all other values that a
    derivative needs, are stored, each as large as a state.

    Args:
      n_inputs: Number of entries of the inputs of a step, of one sequence.
      n_states: Number of entries of the state of one sequence.

    Example:
      >>> channels, states = 64, 16  # Of Mamba: x and Delta, B and C.
      >>> recomputes_steps(
      ...     n_inputs=2 * channels + 2 * states, n_states=channels * states
      ... )
      True
    """
    # Few inputs are read in less time than several arrays of the size of the states.
    # Of many inputs it depends on the functions of them, gates among them.
    return n_inputs < n_states


def nonlinear_method(
    solver: str, *, length: Dimension, n_bytes: Dimension, platform: str | None = None
) -> Method:
    """Returns the method of a nonlinear recurrence.

    Args:
      solver: ``"newton"`` or ``"picard"``, by which it is solved in parallel.
      length: Number of steps.
      n_bytes: Number of bytes of all states.
      platform: As of `chosen_method`.

    Returns:
      ``"sequential"`` for one step after another, as on CPUs, where the iterations of a
      parallel solve cost more than the steps; else the method that evaluates the linear
      recurrence of each iteration.
    """
    platform = platform or target_platform()
    if _is_stepped(platform, length):
        return "sequential"
    name = _name(platform)
    linear = functools.partial(
        seconds,
        platform=platform,
        time_invariant=solver == "picard",
        length=length,
        n_bytes=n_bytes,
    )
    inner = min(_PARALLEL, key=linear)
    term = ACCELERATORS[name].seconds(NONLINEAR_TERM[name], 1, n_bytes)
    iterated = ITERATIONS[solver] * (linear(inner) + term)
    stepped = STEPPING[name].seconds(STEP[name], length, n_bytes)
    return "sequential" if stepped <= iterated else inner


def dense_method(length: Dimension) -> Method:
    """Returns the method of a recurrence with a dense matrix, without resets.

    Args:
      length: Number of steps.

    Returns:
      ``"sequential"`` or ``"chunked"``: blocks of 2 steps of S4 take 7.2 ms, one step
      after the other 5.7 ms; of 64 steps 29 and 54 ms.
    """
    return "sequential" if length == 1 or is_symbolic(length) else "chunked"


def matrix_method(length: Dimension) -> Literal["sequential", "chunked"]:
    """Returns the method of a recurrence of matrices.

    Args:
      length: Number of steps.

    Returns:
      ``"sequential"`` for a single step and a symbolic length, else ``"chunked"``.
    """
    short = is_symbolic(length) or length < _MATRIX_STEPS
    return "sequential" if short else "chunked"


def steps_give_values(entries: int, *, by_entry: bool) -> bool:
    """Whether steps are faster than chunks where no gradient of the outputs is taken.

    Args:
      entries: Entries of the state of a head.
      by_entry: Whether each entry of a key has its own decay.
    """
    most = _ENTRIES_OF_STEPS[by_entry]
    return entries <= most and target_platform() == "cpu"


# Methods of convolutions.

DIRECT_STEPS = 32
"""Steps up to which ``"chunked"`` is one product with a Toeplitz matrix. At 32 steps it
takes .7 to 1.8 ms for 1 to 256 modes, an FFT .4 to 1.2 ms, whose errors are not causal.
"""

# On CPUs, up to so many modes per channel, convolutions by blocks from so many steps
# on. Their program grows with the number of modes. There they and an FFT take, in ms:
# 1 mode, 33 steps, 1.2 and .7; 4 modes, 256 steps, 2.7 and 2.7; 8 modes, 512 steps, 6.1
# and 6.2; 16 modes, 4,096 steps, 80 and 61.
_CHUNKED_FROM = ((1, 33), (4, 256), (8, 512), (16, 4096))

# On accelerators the states of so many modes are fewer bytes than the spectra: in
# single compilations by ``--suite=costs``, which are not recorded.
_MODES_OF_STATES = 2

# From this length on an FFT is faster than the sum over the taps of every step. Of 16
# taps and steps both take .3 ms; of 32 the FFT .5 ms, the sum .9 ms.
_TAPS = 16


def convolution_method(
    *,
    length: Dimension,
    n_modes: int,
    n_directions: int = 1,
    platform: str | None = None,
) -> Method:
    """Returns the method for more than one step, without resets.

    Args:
      length: Number of steps, at least 2.
      n_modes: Number of modes of a channel and direction.
      n_directions: 1, or 2 if there is a kernel over future steps.
      platform: As of `chosen_method`.

    Returns:
      ``"chunked"``, ``"associative"`` or ``"fft"``; ``"sequential"`` if the length is
      symbolic.

    Example:
      >>> for n_modes in 1, 8, 64:
      ...     print(convolution_method(length=4096, n_modes=n_modes, platform="cpu"))
      chunked
      chunked
      fft
    """
    n_modes *= n_directions
    if is_symbolic(length):
        return "sequential"
    if length <= DIRECT_STEPS:
        return "chunked"
    if (platform or target_platform()) != "cpu":
        return "associative" if n_modes <= _MODES_OF_STATES else "fft"
    for most, shortest in _CHUNKED_FROM:
        if n_modes <= most:
            return "chunked" if length >= shortest else "fft"
    return "fft"


def modal_method(
    shape: Sequence[Dimension],
    *,
    n_modes: int,
    n_directions: int,
    bytes_per_state: int,
    has_reset: bool,
) -> Method:
    """Returns the method for the modes of independent channels.

    Args:
      shape: Shape of the input, ``(*b, l, d)``.
      n_modes: Number of modes of a channel and direction.
      n_directions: 1, or 2 if there is a kernel over future steps.
      bytes_per_state: Number of bytes of a state.
      has_reset: Whether there are resets, which no convolution has.

    Returns:
      The method of the states for a single step and with resets, else
      `convolution_method`.
    """
    length = shape[-2]
    if is_symbolic(length) or (length > 1 and not has_reset):
        return convolution_method(
            length=length, n_modes=n_modes, n_directions=n_directions
        )
    # The states of all channels, which a `vmap` evaluates together.
    n_bytes = min(bytes_per_state * n_modes * math.prod(shape), 8 * STATES_AT_ONCE)
    return linear_method(time_invariant=True, length=length, n_bytes=n_bytes)


def finite_convolution_method(length: Dimension, *, has_reset: bool = False) -> Method:
    """Returns the method for a kernel that ends.

    Args:
      length: Number of steps.
      has_reset: Whether there are resets, which no FFT has.

    Returns:
      ``"sequential"`` or ``"fft"``.
    """
    short = is_symbolic(length) or length <= _TAPS
    return "sequential" if short or has_reset else "fft"


# Blocks: steps that are evaluated at once.

# Bytes of the states of a block, so that they stay in the cache of a CPU, and the
# number of blocks from which on they pay. With them a step of S5 with its gradient
# takes 1.3 times as long at 1,048,576 steps as at 16,384.
_STATE_BYTES = 2**21
_MIN_BLOCKS = 4

# On CPUs an FFT of more than `_LONGEST_FFT` steps leaves the cache, and convolutions of
# blocks with a state between them are faster, if there are not too many modes. With
# them a step of S4D with its gradient takes 54 ns at 1,048,576 steps and 58 ns at
# 65,536, where it is one FFT.
_LONGEST_FFT = 2**16
_FFT_BLOCK = 2**14
_MODES_OF_BLOCKS = 64

# Steps of a block in a convolution by few modes: a step costs products with all steps
# of its block, and a share of the block's state.
_CONVOLUTION_BLOCK = 16

# Most steps whose states exist at the same time where decays depend on the input.
_CHUNK = 256

# Steps of a chunk of a recurrence of matrices, of smaller and of larger heads, the
# entries of the state of a larger one, and steps from which on there are chunks: the
# products of a chunk are quadratic in its length, and a state is stored per chunk. On
# a CPU the gradient of a head of 64 x 64 takes 31 and 45 ms with chunks of 32 and 64
# steps, of 128 x 128 60 and 49 ms. `python -m benchmarks --suite=matrix` times them.
_MATRIX_CHUNKS = 32, 64
_MATRIX_LARGE = 128 * 128
_MATRIX_STEPS = 2

# Most entries of the state of a head whose outputs are computed step by step on CPUs,
# with decays of heads and of entries of keys. The products of a chunk are as many
# multiplications as its steps where a head is as wide as a chunk is long.
_ENTRIES_OF_STEPS = 32 * 32, 64 * 64

# Most steps of a block of a dense recurrence, whose Toeplitz matrix has the square of
# them as entries.
_DENSE_BLOCK = 128


def state_block(
    length: Dimension, bytes_per_step: int, *, method: Method = "auto"
) -> Dimension:
    """Returns the number of steps of a block whose states stay in the cache of a CPU.

    Args:
      length: Number of steps of the sequences.
      bytes_per_step: Bytes of the states of all sequences at a step.
      method: Method that the states are evaluated by.

    Returns:
      The number of steps; ``length`` if the states of all of them are small enough, on
      accelerators, and by methods that are parallel in time.

    Example:
      >>> state_block(1024, 8 * 64), state_block(65536, 8 * 64)
      (1024, 4096)
    """
    sequential = method in ("auto", "sequential") and target_platform() == "cpu"
    # How many blocks a symbolic length has is not known.
    if not sequential or is_symbolic(length):
        return length
    if length * bytes_per_step < _MIN_BLOCKS * _STATE_BYTES:
        return length
    return max(1, _STATE_BYTES // bytes_per_step)


def fft_block(length: Dimension, n_modes: int) -> Dimension:
    """Returns the number of steps that are convolved by one FFT, then its state.

    Args:
      length: Number of steps of the sequences.
      n_modes: Number of modes of a channel, of one direction.
    """
    few = n_modes <= _MODES_OF_BLOCKS and target_platform() == "cpu"
    return _FFT_BLOCK if few and length > _LONGEST_FFT else length


def convolution_block(length: int) -> int:
    """Returns the number of steps of a block of `block_convolution`."""
    return min(_CONVOLUTION_BLOCK, length)


def dense_block(length: int) -> int:
    """Returns the number of steps of a block of a dense recurrence.

    Returns:
      The smallest power of 2 from ``sqrt(length)``, at most 128.
    """
    return min(_DENSE_BLOCK, 1 << ((length - 1).bit_length() + 1) // 2)


def matrix_chunk(length: int, entries: int) -> int:
    """Returns the number of steps of a chunk of a recurrence of matrices.

    Args:
      length: Number of steps.
      entries: Entries of the state of a head.

    Returns:
      A power of 2.
    """
    most = _MATRIX_CHUNKS[entries >= _MATRIX_LARGE]
    return min(most, 1 << (length - 1).bit_length())


def chunk_size(length: Dimension, n: int, bytes_per_step: Dimension) -> Dimension:
    """Returns the number of steps of a chunk, which balances the memory of two kinds.

    Args:
      length: Number of steps of the sequence.
      n: Number of state entries per input channel.
      bytes_per_step: Bytes of the states of all sequences at a step.
    """
    if is_symbolic(length):
        return length
    # Shorter chunks store more states between chunks, longer ones more states within a
    # chunk. With l / n steps the states of a chunk have the size of the input.
    size = min(_CHUNK, max(math.isqrt(length), -(-length // n)))
    if target_platform() != "cpu" or is_symbolic(bytes_per_step):
        return size
    # Those of a chunk stay in the cache, and with n steps those between chunks have the
    # size of the input.
    return min(size, max(n, _STATE_BYTES // max(1, bytes_per_step)))


# Slices: modes that are evaluated at once.

STATES_AT_ONCE = 2**24
"""Bound on the number of states in memory where all states of a sequence are computed:
2**24 complex64 are 128 MiB. At least one mode of every channel and step is computed."""


def modes_at_once(shape: Sequence[Dimension], n_modes: int) -> int:
    """Returns the number of modes of a slice, whose states exist at the same time.

    Args:
      shape: Shape of the input, ``(*b, l, d)``.
      n_modes: Number of modes of a channel.
    """
    # Into how many slices the states of a symbolic length go is not known.
    if is_symbolic(shape[-2]):
        return n_modes
    return min(n_modes, max(1, STATES_AT_ONCE // math.prod(shape)))


def is_convolved(method: Method, shape: Sequence[Dimension], n_modes: int) -> bool:
    """Returns whether modes are evaluated as a convolution, not by their states.

    Args:
      method: Method of the modes of independent channels, without resets.
      shape: Shape of the input, ``(*b, l, d)``.
      n_modes: Number of modes of a channel.
    """
    if method != "chunked":
        return method == "fft"
    length, size = shape[-2], math.prod(shape)
    # The states between the blocks must fit in memory.
    states = size // convolution_block(length) * n_modes
    return length <= DIRECT_STEPS or states <= max(STATES_AT_ONCE, size)


# The choice at run time between an FFT and the states of growing modes.

# Bound on `log(|lam|**length)` in a convolution by FFT. It admits decays that exceed 1
# by rounding only.
_GROWTH = 0.1


def fft_unless_growing(
    log_decays: Sequence[LogDecay],
    length: int,
    by_fft: Callable[..., Any],
    by_states: Callable[..., Any],
    *operands: PyTree,
) -> Any:
    """Evaluates by FFT, or by states if a decay exceeds 1 by too much for an FFT.

    The rounding errors of an FFT at every step, including the first ones, are
    proportional to the largest tap, ``|lam|**length``.

    Args:
      log_decays: Logarithms of the decays.
      length: Number of steps.
      by_fft: Function of the operands.
      by_states: Likewise, with the same result.
      *operands: Arguments of both functions.
    """
    growing = functools.reduce(
        operator.or_,
        (jnp.max(decay.log_abs) * length > _GROWTH for decay in log_decays),
    )
    # The decay is known at run time only, so both branches are compiled.
    return jax.lax.cond(growing, by_states, by_fft, *operands)


def limit_growth(log_decay: LogDecay, length: int) -> LogDecay:
    """Returns a decay that `fft_unless_growing` evaluates by FFT.

    Args:
      log_decay: Logarithm of the decay.
      length: Number of steps.
    """
    return log_decay._replace(log_abs=jnp.minimum(log_decay.log_abs, _GROWTH / length))
