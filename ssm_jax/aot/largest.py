"""The largest batch whose training step fits into the memory of a device."""

from collections.abc import Callable

LIMIT = 2**20
"""Number of examples of the largest batch that is tried."""


def largest_batch(
    fits: Callable[[int], bool], unit: int, first: int, limit: int | None = None
) -> int | None:
    """Finds the largest batch that fits, by doubling and then by bisection.

    Args:
      fits: Whether a batch of this size fits. Every batch smaller than one that fits
        is assumed to fit too.
      unit: The result is a multiple of it.
      first: The size to try first, a multiple of ``unit``.
      limit: Number of examples that there are, such as those of a data set. None means
        `LIMIT`.

    Returns:
      The size; above 64 units, one that is at most a 64th larger may fit too. None if
      ``unit`` itself does not fit or is above the limit.

    Example:
      >>> largest_batch(lambda n: n <= 100, unit=8, first=16)
      96
    """
    top = min(LIMIT, limit or LIMIT) // unit
    good, bad = 0, min(first // unit, top)  # in units
    while bad and fits(bad * unit):
        if bad == top:
            return bad * unit
        good, bad = bad, min(2 * bad, top)
    if not good:
        # Downwards in the same way, so that a first guess far too large costs little.
        while bad > 1 and not fits(bad // 2 * unit):
            bad //= 2
        good = bad // 2
    # Each size is compiled, which takes minutes for TPUs.
    while bad - good > max(1, good // 64):
        middle = (good + bad) // 2
        if fits(middle * unit):
            good = middle
        else:
            bad = middle
    return good * unit or None
