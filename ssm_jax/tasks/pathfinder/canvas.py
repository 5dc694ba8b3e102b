"""Vectorized growth of dashed curves that do not touch, on many images at once.

References:
  Linsley, Kim, Veerabadran, Windolf and Serre, `Learning long-range spatial
  dependencies with horizontal gated recurrent units
  <https://arxiv.org/abs/1805.08315>`_, 2018, section 3.1
"""

import numpy as np

from ssm_jax.tasks.pathfinder.dashes import DashStamps

# Owner of a pixel; dash number d has owner _FIRST_DASH + d.
_FREE, _EDGE, _FIRST_DASH = 0, 1, 2
_N_STARTS = 32  # Random starts of a curve that are tried.


class Canvas:
    """A batch of ``n`` sheets of pixels with up to ``d`` dashes each.

    Each dash owns the pixels within a margin around it. Other dashes may not use them,
    except its successor in the same curve.

    Attributes:
      stamps: The stamps of all dashes.
      pivot: Pivot of each dash, a flat index into its sheet, int64, ``(n, d)``.
      direction: Index of its direction in ``stamps``, int64, ``(n, d)``; -1 for a dash
        that is not drawn.
    """

    def __init__(self, stamps: DashStamps, n: int, n_dashes: int) -> None:
        """Creates empty sheets.

        Args:
          stamps: Stamps of the dashes; the outermost pixels of the images stay empty.
          n: Number of sheets.
          n_dashes: Maximum number of dashes of a sheet, at most 254.
        """
        # uint8 holds the owners: the free and edge values and 254 dashes.
        self.stamps = stamps
        self.pivot = np.zeros((n, n_dashes), int)
        self.direction = np.full((n, n_dashes), -1)
        owner = np.full((n, stamps.width, stamps.width), _EDGE, np.uint8)
        inside = slice(stamps.edge + 1, -stamps.edge - 1)
        owner[:, inside, inside] = _FREE
        self._owner = owner.reshape(n, -1)

    def fits(
        self,
        sheets: np.ndarray,
        pivot: np.ndarray,
        direction: np.ndarray,
        after: int | None = None,
    ) -> np.ndarray:
        """Returns whether candidate dashes would touch no dash that is drawn.

        Args:
          sheets: Indices of sheets, ``(m,)``.
          pivot: Pivots of the candidates, ``(m, c)`` or ``(m, 1)``.
          direction: Directions of the candidates, ``(m, c)``.
          after: The preceding dash of the curve, which they may touch.

        Returns:
          bool, ``(m, c)``.
        """
        offset = (sheets * self._owner.shape[1])[:, None] + pivot
        # Flat indices into all sheets: one gather for all candidates.
        pixels = offset[..., None] + self.stamps.room[direction]
        owner = self._owner.reshape(-1).take(pixels)
        is_free = owner == _FREE
        if after is not None:
            is_free |= owner == _FIRST_DASH + after
        return is_free.all(axis=-1)

    def draw(
        self, sheets: np.ndarray, pivot: np.ndarray, direction: np.ndarray, dash: int
    ) -> None:
        """Draws dash number ``dash`` on each of some sheets; arrays are ``(m,)``."""
        self.pivot[sheets, dash] = pivot
        self.direction[sheets, dash] = direction
        offset = sheets * self._owner.shape[1] + pivot
        pixels = offset[:, None] + self.stamps.room[direction]
        owner = self._owner.reshape(-1)
        # A pixel shared by two successive dashes keeps its first owner, so that the
        # dash after both of them may not use it.
        owner[pixels[owner[pixels] == _FREE]] = _FIRST_DASH + dash

    def extend(
        self, rng: np.random.Generator, sheets: np.ndarray, after: int, dash: int
    ) -> np.ndarray:
        """Draws dash number ``dash`` as the successor of number ``after``.

        The direction is sampled by the weights of the stamps among those that fit.

        Returns:
          The subset of ``sheets`` where a direction fits.
        """
        directions = self.direction[sheets, after]
        pivot = self.pivot[sheets, after] + self.stamps.step[directions]
        turns, weights = self.stamps.turns[directions], self.stamps.weights[directions]
        direction = _sample_items(rng, turns, weights)
        fits = self.fits(sheets, pivot[:, None], direction[:, None], after)[:, 0]
        # Rejection sampling: most directions fit at once. Resampling the rest among
        # the fitting directions gives the same distribution as testing all directions
        # everywhere, at a fraction of the cost.
        unfit = ~fits
        weights = weights[unfit] * self.fits(
            sheets[unfit], pivot[unfit, None], turns[unfit], after
        )
        direction[unfit] = _sample_items(rng, turns[unfit], weights)
        fits[unfit] = weights.any(axis=1)
        self.draw(sheets[fits], pivot[fits], direction[fits], dash)
        return sheets[fits]

    def draw_curve(
        self, rng: np.random.Generator, sheets: np.ndarray, dashes: range
    ) -> np.ndarray:
        """Draws a curve with the numbers ``dashes`` at a random position of each sheet.

        Returns:
          The subset of ``sheets`` where this failed; they are unchanged.
        """
        stamps = self.stamps
        size = stamps.width - 2 * stamps.edge
        pivot = stamps.to_index(rng.integers(size, size=(len(sheets), _N_STARTS, 2)))
        direction = rng.integers(len(stamps.step), size=pivot.shape)
        fits = self.fits(sheets, pivot, direction)
        has_start = fits.any(axis=1)
        # The first of the random starts that fits, on each sheet.
        first = (np.flatnonzero(has_start), fits.argmax(axis=1)[has_start])
        drawn = sheets[has_start]
        self.draw(drawn, pivot[first], direction[first], dashes[0])
        for dash in dashes[1:]:
            drawn = self.extend(rng, drawn, after=dash - 1, dash=dash)
        # Sheets without a start, or without room for a later dash.
        failed = np.setdiff1d(sheets, drawn)
        self._erase(failed, dashes)
        return failed

    def _erase(self, sheets: np.ndarray, dashes: range) -> None:
        """Removes the dashes from ``dashes.start`` on."""
        self.direction[sheets, dashes.start :] = -1
        owner = self._owner[sheets]
        # Curves are drawn in the order of their numbers: later dashes are of this one.
        owner[owner >= _FIRST_DASH + dashes.start] = _FREE
        self._owner[sheets] = owner


def _sample_items(
    rng: np.random.Generator, items: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Samples one item of each row, ``(m, c)``, with probability by weight."""
    cumulative = np.cumsum(weights, axis=1)
    # In (0, 1], so that items of weight 0 are never chosen; a row of zeros returns its
    # first item.
    target = (1.0 - rng.random(len(cumulative))) * cumulative[:, -1]
    return items[
        np.arange(len(items)), np.argmax(cumulative >= target[:, None], axis=1)
    ]
