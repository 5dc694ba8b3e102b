"""The dashes of a dashed curve, rasterized as stamps in all directions."""

import dataclasses
import functools

import numpy as np

_SUBPIXELS = 8  # Per axis: supersampling for the coverage of a pixel.


@dataclasses.dataclass(frozen=True, kw_only=True)
class DashStyle:
    """Geometry of the dashes of a curve.

    Attributes:
      dash: Length of a dash in pixels.
      thickness: Width of a dash in pixels.
      margin: Half of the gap between two dashes, and half of the minimum distance to
        another curve, in pixels.
      continuity: A turn by ``r`` radians has the weight ``cos(continuity * r)**2``, or
        0 if ``continuity * r`` exceeds pi / 2. Larger values give straighter curves.
    """

    dash: int
    thickness: float
    margin: int
    continuity: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class DashStamps:
    """One dash in each of ``k`` directions, relative to its pivot.

    A dash begins ``margin`` pixels after its pivot, and the next pivot is ``margin``
    pixels after its end. Pixels are offsets of flat indices into a square sheet,
    relative to the pivot; a set of pixels is padded by repeating its first pixel.

    Attributes:
      width: Side length of a sheet in pixels.
      edge: Width of the frame around the image on its sheet; no stamp exceeds it.
      tail: Beginning of the dash, rows and columns from the pivot, int64, ``(k, 2)``.
      head: End of the dash, int64, ``(k, 2)``.
      step: Offset of the next pivot, int64, ``(k,)``.
      room: Pixels that a dash reserves, int64, ``(k, p)``.
      ink: Pixels that a dash covers, at least in part, int64, ``(k, q)``.
      coverage: Covered fraction of each of them, float32, ``(k, q)``.
      turns: Directions that may follow each direction, int64, ``(k, c)``.
      weights: Weights of these directions, float64, ``(k, c)``, padded with 0.
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

    def to_index(self, position: np.ndarray) -> np.ndarray:
        """Converts rows and columns of an image, ``(..., 2)``, to sheet indices."""
        return (position + self.edge) @ np.array([self.width, 1])

    def to_position(self, index: np.ndarray) -> np.ndarray:
        """Converts sheet indices to rows and columns of an image, ``(..., 2)``."""
        return np.stack(np.divmod(index, self.width), axis=-1) - self.edge


@functools.cache
def make_stamps(style: DashStyle, size: int) -> DashStamps:
    """Returns the stamps of a style for images of ``size`` by ``size`` pixels.

    The directions are those of all pixels on a circle around the pivot.

    Example:
      >>> style = DashStyle(dash=5, thickness=1.5, margin=2, continuity=1.8)
      >>> stamps = make_stamps(style, size=128)
      >>> east = stamps.head.tolist().index([0, 7])
      >>> stamps.tail[east].tolist(), stamps.step[east].item()
      ([0, 2], 9)
      >>> stamps.coverage[east].sum().item()  # 5 by 1.5 pixels, plus the round ends
      9.25
    """
    radius = style.dash + style.margin
    # About ten angles per pixel of the circle, so that no pixel is missed.
    angle = np.linspace(0, 2 * np.pi, 64 * radius, endpoint=False)
    circle = radius * np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    # `unique` also sorts: the numbers of the directions, and seeded images, are fixed.
    head = np.unique(np.rint(circle).astype(int), axis=0)
    ahead = head / np.linalg.norm(head, axis=1, keepdims=True)
    tail = head - style.dash * ahead

    reach = radius + style.margin + 2
    edge = reach + style.margin + 1  # A pivot may lie a gap outside of the image.
    width = size + 2 * edge
    coverage = _coverage(tail, head, reach, style.thickness)
    pixels = np.arange(-reach, reach + 1.0)
    is_room = _distance(tail, head, pixels) <= style.margin + style.thickness / 2
    # Rounding may bring a cosine above 1, where `arccos` is NaN.
    turn = np.arccos(np.clip(ahead @ ahead.T, -1, 1))
    weight = np.cos(np.minimum(style.continuity * turn, np.pi / 2)) ** 2
    weight[weight < 1e-9] = 0  # cos(pi / 2) is not exactly 0 in floats.

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
    """Returns the covered fraction of each pixel within ``reach``, ``(k, pixels)``."""
    n = 2 * reach + 1
    # The centers of the subpixels.
    fine = (np.arange(n * _SUBPIXELS) + 0.5) / _SUBPIXELS - reach - 0.5
    covered = []
    # One direction at a time: the distances of all take gigabytes for long dashes.
    for k in range(len(tail)):
        is_covered = _distance(tail[k : k + 1], head[k : k + 1], fine) <= thickness / 2
        parts = is_covered.reshape(n, _SUBPIXELS, n, _SUBPIXELS)
        covered.append(parts.mean(axis=(1, 3)).ravel())
    return np.stack(covered)


def _distance(tail: np.ndarray, head: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Returns distances of grid points to each dash, ``(k, len(axis), len(axis))``."""
    y, x = np.meshgrid(axis, axis, indexing="ij")
    (y0, x0), (dy, dx) = (v.T[..., None, None] for v in (tail, head - tail))
    # Projection onto the line, clipped to the segment: dashes have round ends.
    along = np.clip(((y - y0) * dy + (x - x0) * dx) / (dy**2 + dx**2), 0, 1)
    return np.hypot(y - y0 - along * dy, x - x0 - along * dx)


def _pack(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the true columns of each row, padded with the first, and a mask."""
    counts = table.sum(axis=1, keepdims=True)
    # Stable: true columns first, in their order.
    columns = np.argsort(~table, axis=1, kind="stable")[:, : counts.max()]
    is_true = np.arange(counts.max()) < counts
    return np.where(is_true, columns, columns[:, :1]), is_true
