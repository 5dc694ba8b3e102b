"""Steps of different sizes, ``dt``, which some recurrences take."""

from typing import Any

from ssm_jax.types import StepSizes


def takes_dt(module: object) -> bool:
    """Returns whether a recurrence, a layer or a model takes ``dt``.

    Args:
      module: Its attribute ``takes_dt`` says so; without one it does not.

    Example:
      >>> from ssm_jax.layers import Recurrent
      >>> from ssm_jax.recurrences import GRU, S5
      >>> [takes_dt(Recurrent(one)) for one in (S5(d_state=32), GRU(d_state=4))]
      [True, False]
    """
    return bool(getattr(module, "takes_dt", False))


def check_takes_dt(module: Any, dt: StepSizes | None) -> None:
    """Checks that a layer or a model takes ``dt``, if it is given.

    Args:
      module: The layer or the model.
      dt: Factors of the sizes of steps, or None.

    Raises:
      ValueError: It takes none, and ``dt`` is not None.
    """
    if dt is not None and not takes_dt(module):
        recurrence = getattr(module, "recurrence", None)
        name = type(module if recurrence is None else recurrence).__name__
        raise ValueError(
            f"`dt` must be None for a recurrence without step sizes, got one for {name}"
            "; S5, S4D and SelectiveSSM take it."
        )
