"""Which operation made a NaN, by the flag ``jax_debug_nans``."""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

import jax

_JAX = Path(jax.__file__).parent


def is_debugging() -> bool:
    """Returns whether the flag ``jax_debug_nans`` is set."""
    # Configs of JAX declare only some of their fields.
    return bool(jax.config.jax_debug_nans)  # pyright: ignore[reportAttributeAccessIssue]


@contextlib.contextmanager
def nans_located(step: int) -> Iterator[None]:
    """Locates the operation that makes a NaN in the block.

    Without ``jax_debug_nans`` it does nothing.

    Args:
      step: The number of the step that is taken in the block.

    Raises:
      FloatingPointError: An operation made a NaN; the error names it and its line.
    """
    if not is_debugging():
        yield
        return
    try:
        # Set anew by a context: JAX drops its check of results once it has traced
        # functions that turn the flag off and on, such as those of `jnp.linalg`.
        with jax.debug_nans(True):
            yield
    except FloatingPointError as error:
        frames = traceback.extract_tb(error.__traceback__)
        outside = [at for at in frames if _JAX not in Path(at.filename).parents]
        at = (outside or frames)[-1]
        raise FloatingPointError(
            f"no operation may make a NaN, got {error} at step {step}, in "
            f"{at.filename}:{at.lineno}: {at.line}; the traceback shows its callers."
        ) from error
