"""Checks of arrays that users bring."""

import numpy as np

from ssm_jax.fields import check_indices
from ssm_jax.files import Layout


def check_layout(
    array: np.ndarray | Layout,
    name: str,
    shape: tuple[int, ...],
    n_integers: int | None,
    where: str,
) -> None:
    """Checks the shape and the kind of an array, before it is read.

    Args:
      array: The array, or its layout in a file.
      name: As for `convert`, like the other arguments.
      shape: The shape that it must have.
      n_integers: None means numbers, otherwise integers are wanted.
      where: Where the array was found.

    Raises:
      ValueError: The shape or the kind is another.
    """
    kinds = "biuf" if n_integers is None else "biu"
    if array.shape != shape or array.dtype.kind not in kinds:
        what = "numbers" if n_integers is None else "integers"
        raise ValueError(
            f"`{name}` must be {what} {shape}, got {array.dtype} {array.shape} in "
            f"{where}; the fields of the task state the shape."
        )


def convert(
    array: np.ndarray,
    name: str,
    shape: tuple[int, ...],
    n_integers: int | None,
    where: str,
) -> np.ndarray:
    """Checks an array, and returns it in the type of a batch.

    Args:
      array: The array.
      name: Its name in errors.
      shape: The shape that it must have.
      n_integers: Integers must be in ``[0, n_integers)``. None means numbers.
      where: Where the array was found, for errors.

    Returns:
      int32, or float32 if ``n_integers`` is None.

    Raises:
      ValueError: The shape or the kind is another, a number is not finite in float32,
        or an integer is out of range.

    Example:
      >>> convert(np.array([1, 2]), "targets", (2,), 3, "a.npz").dtype
      dtype('int32')
    """
    check_layout(array, name, shape, n_integers, where)
    if n_integers is None:
        # Overflow to infinity is the error that follows, not a warning.
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise ValueError(
                f"`{name}` must be finite in float32, got {array[place]} at {place} of "
                f"{where}; replace it."
            )
        return array
    check_indices(
        name, array, n_integers, f"the fields of the task state the range of {where}"
    )
    return array.astype(np.int32)
