"""The method that ``"auto"`` chooses for a convolution with the kernel of modes.

An FFT is the only method whose rounding errors at a step depend on later inputs: they
are relative to the largest input of the sequence. ``"auto"`` therefore takes another
method wherever it costs at most 1.5 times as much, in time on CPUs and in bytes moved
on accelerators. The thresholds of CPUs are those of ``python -m benchmarks
--suite=convolutions``, recorded in ``experiments/benchmarks/convolutions.json``; that
of accelerators is of single compilations by ``--suite=costs``, which are not recorded
yet.
"""

from ssm_jax.types import Dimension, Method

DIRECT_STEPS = 32
"""Steps up to which ``"chunked"`` is one product with a Toeplitz matrix."""

# On CPUs, up to so many modes per channel, convolutions by blocks from so many steps
# on. Their program grows with the number of modes.
_CHUNKED_FROM = ((1, 33), (4, 256), (8, 512), (16, 4096))

# On accelerators the states of so many modes are fewer bytes than the spectra.
_MODES_OF_STATES = 2

# From this length on an FFT is faster than the sum over the taps of every step.
_TAPS = 16


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


def convolution_method(
    platform: str, *, length: Dimension, n_modes: int, n_directions: int = 1
) -> Method:
    """Returns the method for more than one step, without resets.

    Args:
      platform: ``"cpu"``, ``"tpu"``, or a name of a GPU.
      length: Number of steps, at least 2.
      n_modes: Number of modes of a channel and direction.
      n_directions: 1, or 2 if there is a kernel over future steps.

    Returns:
      ``"chunked"``, ``"associative"`` or ``"fft"``; ``"sequential"`` if the length is
      symbolic.

    Example:
      >>> for n_modes in 1, 8, 64:
      ...     print(convolution_method("cpu", length=4096, n_modes=n_modes))
      chunked
      chunked
      fft
    """
    n_modes *= n_directions
    if is_symbolic(length):
        return "sequential"
    if length <= DIRECT_STEPS:
        return "chunked"
    if platform != "cpu":
        return "associative" if n_modes <= _MODES_OF_STATES else "fft"
    for most, shortest in _CHUNKED_FROM:
        if n_modes <= most:
            return "chunked" if length >= shortest else "fft"
    return "fft"


def finite_convolution_method(length: Dimension) -> Method:
    """Returns the method for a kernel that ends, without resets.

    Args:
      length: Number of steps.

    Returns:
      ``"sequential"`` or ``"fft"``.
    """
    short = is_symbolic(length) or length <= _TAPS
    return "sequential" if short else "fft"
