"""Dashed curves that bend a little and touch nothing, grown on many sheets at once.

References:
  Linsley, Kim, Veerabadran, Windolf and Serre, `Learning long-range spatial
  dependencies with horizontal gated recurrent units
  <https://arxiv.org/abs/1805.08315>`_, 2018, section 3.1
"""

import numpy as np

from ssm_jax.tasks.pathfinder.dashes import DashStamps

_NOBODY, _EDGE, _FIRST_DASH = 0, 1, 2  # Who may hold a pixel; the dashes from 2 on.
_PLACES = 32  # Where a curve tries to begin before it gives up.


class Canvas:
    """Sheets of pixels with dashes on them, ``n`` sheets with up to ``d`` dashes.

    Each dash holds the pixels up to a margin around it, and no other dash may have one
    of them but its successor in the same curve.

    Attributes:
      stamps: The stamps of all dashes.
      pivot: Where each dash starts from, a place on its sheet, int64, ``(n, d)``.
      direction: Its direction in the stamps, int64, ``(n, d)``; -1 where none is drawn.
    """

    def __init__(self, stamps: DashStamps, n: int, n_dashes: int) -> None:
        """Lays out empty sheets.

        Args:
          stamps: What is drawn with; the outermost pixels of its images stay free.
          n: Sheets.
          n_dashes: Dashes of a sheet, at most 254.
        """
        self.stamps = stamps
        self.pivot = np.zeros((n, n_dashes), int)
        self.direction = np.full((n, n_dashes), -1)
        holder = np.full((n, stamps.width, stamps.width), _EDGE, np.uint8)
        inside = slice(stamps.edge + 1, -stamps.edge - 1)
        holder[:, inside, inside] = _NOBODY
        self._holder = holder.reshape(n, -1)

    def fits(
        self,
        sheets: np.ndarray,
        pivot: np.ndarray,
        direction: np.ndarray,
        after: int | None = None,
    ) -> np.ndarray:
        """Whether dashes would touch nothing that is drawn.

        Args:
          sheets: On which sheets, ``(m,)``.
          pivot: Where they start from, ``(m, c)`` or ``(m, 1)``.
          direction: Their directions, ``(m, c)``.
          after: The dash that they would follow, and may touch.

        Returns:
          bool, ``(m, c)``.
        """
        place = (sheets * self._holder.shape[1])[:, None] + pivot
        pixels = place[..., None] + self.stamps.room[direction]
        holder = self._holder.reshape(-1).take(pixels)
        is_free = holder == _NOBODY
        if after is not None:
            is_free |= holder == _FIRST_DASH + after
        return is_free.all(axis=-1)

    def draw(
        self, sheets: np.ndarray, pivot: np.ndarray, direction: np.ndarray, dash: int
    ) -> None:
        """Draws one dash, number ``dash``, on each of some sheets; arrays ``(m,)``."""
        self.pivot[sheets, dash] = pivot
        self.direction[sheets, dash] = direction
        place = sheets * self._holder.shape[1] + pivot
        pixels = place[:, None] + self.stamps.room[direction]
        holder = self._holder.reshape(-1)
        # A pixel that two dashes of a curve share stays with the first of them: the
        # one after both may not have it.
        holder[pixels[holder[pixels] == _NOBODY]] = _FIRST_DASH + dash

    def extend(
        self, rng: np.random.Generator, sheets: np.ndarray, after: int, dash: int
    ) -> np.ndarray:
        """Draws dash number ``dash`` so that it follows number ``shift_left``.

        Its direction is drawn by the stamps's weights, among those that fit.

        Returns:
          Those of ``sheets`` where one did, ``(m,)``.
        """
        before = self.direction[sheets, after]
        pivot = self.pivot[sheets, after] + self.stamps.step[before]
        turns, weights = self.stamps.turns[before], self.stamps.weights[before]
        direction = _choose(rng, turns, weights)
        fits = self.fits(sheets, pivot[:, None], direction[:, None], after)[:, 0]
        # Most fit at once. Drawing the rest again among what fits gives the same
        # distribution as doing so with all, at a fraction of the cost.
        rest = ~fits
        weights = weights[rest] * self.fits(
            sheets[rest], pivot[rest, None], turns[rest], after
        )
        direction[rest] = _choose(rng, turns[rest], weights)
        fits[rest] = weights.any(axis=1)
        self.draw(sheets[fits], pivot[fits], direction[fits], dash)
        return sheets[fits]

    def draw_curve(
        self, rng: np.random.Generator, sheets: np.ndarray, dashes: range
    ) -> np.ndarray:
        """Draws a curve of some dashes on each of some sheets, wherever there is room.

        Returns:
          Those of ``sheets`` that have no such curve now and are as before, ``(m,)``.
        """
        stamps = self.stamps
        size = stamps.width - 2 * stamps.edge
        pivot = stamps.flat(rng.integers(size, size=(len(sheets), _PLACES, 2)))
        direction = rng.integers(len(stamps.step), size=pivot.shape)
        fits = self.fits(sheets, pivot, direction)
        left = fits.any(axis=1)
        first = (np.flatnonzero(left), fits.argmax(axis=1)[left])
        grown = sheets[left]
        self.draw(grown, pivot[first], direction[first], dashes[0])
        for dash in dashes[1:]:
            grown = self.extend(rng, grown, after=dash - 1, dash=dash)
        failed = np.setdiff1d(sheets, grown)
        self._erase(failed, dashes)
        return failed

    def _erase(self, sheets: np.ndarray, dashes: range) -> None:
        """Takes back the dashes drawn last."""
        self.direction[sheets, dashes.start :] = -1
        holder = self._holder[sheets]
        holder[holder >= _FIRST_DASH + dashes.start] = _NOBODY
        self._holder[sheets] = holder


def _choose(
    rng: np.random.Generator, items: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Chooses one of the items of each row, ``(m, c)``, by its weights."""
    heap = np.cumsum(weights, axis=1)
    # In (0, 1], so that what is hit has a weight; a row of none gives its first item.
    hit = (1.0 - rng.random(len(heap))) * heap[:, -1]
    return items[np.arange(len(items)), np.argmax(heap >= hit[:, None], axis=1)]
