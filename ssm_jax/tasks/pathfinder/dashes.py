"""The dashes of a dashed curve, as stamps for sheets of pixels."""

import dataclasses
import functools

import numpy as np

_SUBPIXELS = 8  # Along each axis, to see how much of a pixel a dash covers.


@dataclasses.dataclass(frozen=True, kw_only=True)
class DashStyle:
    """How curves look.

    Attributes:
      dash: Length of a dash in pixels.
      thickness: Width of a dash in pixels.
      margin: Half of the gap between two dashes, and of the least distance to any other
        curve, in pixels.
      continuity: A turn by ``r`` radians has the weight ``cos(continuity * r)**2``, and
        none where the product exceeds a right angle. Greater is straighter.
    """

    dash: int
    thickness: float
    margin: int
    continuity: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class DashStamps:
    """One dash in each of ``k`` directions, around the pivot that it starts from.

    The dash begins a gap of ``margin`` pixels after its pivot, and the next pivot is
    as far after its end. Pixels are flat indices into a square sheet, counted from the
    pivot; a set of pixels smaller than the largest repeats its first.

    Attributes:
      width: Pixels along a side of a sheet.
      edge: Pixels around the image on its sheet, so many that no stamp reaches past.
      tail: Where a dash begins, rows and columns from the pivot, int64, ``(k, 2)``.
      head: Where it ends, int64, ``(k, 2)``.
      step: The next pivot, int64, ``(k,)``.
      room: Pixels that a dash keeps for itself, int64, ``(k, p)``.
      ink: Pixels that it shows on, int64, ``(k, q)``.
      coverage: How much of each of those it covers, float32, ``(k, q)``.
      turns: Directions that may follow each direction, int64, ``(k, c)``.
      weights: How likely each of those is, float64, ``(k, c)``; zeros fill up.
    """

    width: int
    edge: int
    tail: np.ndarray
    head: np.ndarray
    step: np.ndarray
    room: np.ndarray
    ink: np.ndarray
    coverage: np.ndarray
    turns: np.ndarray
    weights: np.ndarray

    def flat(self, place: np.ndarray) -> np.ndarray:
        """Turns rows and columns of the image, ``(..., 2)``, into places of a sheet."""
        return (place + self.edge) @ np.array([self.width, 1])

    def place(self, flat: np.ndarray) -> np.ndarray:
        """Turns places of a sheet into rows and columns of the image, ``(..., 2)``."""
        return np.stack(np.divmod(flat, self.width), axis=-1) - self.edge


@functools.cache
def make_stamps(style: DashStyle, size: int) -> DashStamps:
    """Makes the stamps of a style for images of ``size`` by ``size`` pixels.

    The directions are those of all whole pixels on a circle around the pivot.

    Example:
      >>> style = DashStyle(dash=5, thickness=1.5, margin=2, continuity=1.8)
      >>> stamps = make_stamps(style, size=128)
      >>> east = stamps.head.tolist().index([0, 7])
      >>> stamps.tail[east].tolist(), stamps.step[east].item()
      ([0, 2], 9)
      >>> stamps.coverage[east].sum().item()  # 5 by 1.5 pixels, and the round ends
      9.25
    """
    radius = style.dash + style.margin
    angle = np.linspace(0, 2 * np.pi, 64 * radius, endpoint=False)
    circle = radius * np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    head = np.unique(np.rint(circle).astype(int), axis=0)
    ahead = head / np.linalg.norm(head, axis=1, keepdims=True)
    tail = head - style.dash * ahead

    reach = radius + style.margin + 2
    edge = reach + style.margin + 1  # A pivot may lie a gap outside the image.
    width = size + 2 * edge
    coverage = _coverage(tail, head, reach, style.thickness)
    pixels = np.arange(-reach, reach + 1.0)
    is_room = _distance(tail, head, pixels) <= style.margin + style.thickness / 2
    turn = np.arccos(np.clip(ahead @ ahead.T, -1, 1))
    weight = np.cos(np.minimum(style.continuity * turn, np.pi / 2)) ** 2
    weight[weight < 1e-9] = 0  # The cosine of a right angle, as floats have it.

    offsets = (pixels[:, None] * width + pixels).astype(int).ravel()
    ink, _ = _pack(coverage > 0)
    turns, is_turn = _pack(weight > 0)
    step = np.rint((style.dash + 2 * style.margin) * ahead).astype(int)
    return DashStamps(
        width=width,
        edge=edge,
        tail=np.rint(tail).astype(int),
        head=head,
        step=step @ np.array([width, 1]),
        room=offsets[_pack(is_room.reshape(len(head), -1))[0]],
        ink=offsets[ink],
        coverage=np.take_along_axis(coverage, ink, axis=1).astype(np.float32),
        turns=turns,
        weights=np.take_along_axis(weight, turns, axis=1) * is_turn,
    )


def _coverage(
    tail: np.ndarray, head: np.ndarray, reach: int, thickness: float
) -> np.ndarray:
    """How much of each pixel up to ``reach`` a dash covers, ``(k, pixels)``."""
    n = 2 * reach + 1
    fine = (np.arange(n * _SUBPIXELS) + 0.5) / _SUBPIXELS - reach - 0.5
    is_covered = _distance(tail, head, fine) <= thickness / 2
    parts = is_covered.reshape(-1, n, _SUBPIXELS, n, _SUBPIXELS)
    return parts.mean(axis=(2, 4)).reshape(len(tail), -1)


def _distance(tail: np.ndarray, head: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Distance of a grid's points from each dash, ``(k, len(axis), len(axis))``."""
    y, x = np.meshgrid(axis, axis, indexing="ij")
    (y0, x0), (dy, dx) = (v.T[..., None, None] for v in (tail, head - tail))
    along = np.clip(((y - y0) * dy + (x - x0) * dx) / (dy**2 + dx**2), 0, 1)
    return np.hypot(y - y0 - along * dy, x - x0 - along * dx)


def _pack(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists where each row is true, repeating the first, and which are no repeats."""
    counts = table.sum(axis=1, keepdims=True)
    columns = np.argsort(~table, axis=1, kind="stable")[:, : counts.max()]
    is_true = np.arange(counts.max()) < counts
    return np.where(is_true, columns, columns[:, :1]), is_true
