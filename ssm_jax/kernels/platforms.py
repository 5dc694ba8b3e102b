"""The platform that a function is traced for, by which ``"auto"`` chooses methods."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import jax

from ssm_jax.types import PyTree

# A context of `jax.jit`: a function traced for one platform is traced anew for another.
_TARGET = jax.make_user_context(None)


def target_platform() -> str:
    """Returns the platform that a function is traced for.

    Returns:
      The platform of `compiling_for`, else that of `jax.default_device`, else that of
      the default backend: ``"cpu"``, ``"tpu"``, or for GPUs ``"gpu"``, ``"cuda"`` or
      ``"rocm"``.
    """
    if _TARGET.value is not None:
        return _TARGET.value
    # An attribute that JAX adds when it is imported.
    device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def compiling_for(platform: str) -> AbstractContextManager[None]:
    """Makes ``method="auto"`` choose the methods for a platform.

    Args:
      platform: ``"cpu"``, ``"cuda"``, ``"rocm"`` or ``"tpu"``; this machine need not
        have one.

    Returns:
      A context in which functions are traced for that platform.

    Example:
      >>> from ssm_jax.kernels import chosen_method
      >>> with compiling_for("tpu"):
      ...     chosen_method(jax.numpy.array([0.5]))
      'chunked'
    """
    return _TARGET(platform)


def on_each_platform(
    function: Callable[..., PyTree], platforms: Sequence[str]
) -> Callable[..., PyTree]:
    """Returns a function that can be lowered for several platforms at once.

    It is traced once per platform, so that ``"auto"`` chooses the methods of each; what
    is lowered for one platform has the operations of that platform only. This is done
    around a whole program and not around each choice: the derivative of a choice would
    store the residuals of every method.

    Args:
      function: Function of arrays.
      platforms: The platforms, as in `compiling_for`.

    Returns:
      A function with the arguments and results of ``function``.
    """

    def trace_for(platform):
        def traced(*args):
            with compiling_for(platform):
                return function(*args)

        return traced

    branches = {platform: trace_for(platform) for platform in platforms}
    return lambda *args: jax.lax.platform_dependent(*args, **branches)
