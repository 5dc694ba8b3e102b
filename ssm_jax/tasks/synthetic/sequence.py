"""What endless tasks share, and the noise and position features of the atomic ones.

References:
  Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
  Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.1; the
  position features are in the authors' code only
"""

import abc
import dataclasses
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from ssm_jax.fields import check_value
from ssm_jax.tasks import base


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndlessTask(abc.ABC):
    """A task whose batches are drawn anew; each split, seed and index has its stream.

    Attributes:
      stream: Name of the random streams. It determines the numbers, so it must never
        change.
      min_length: The smallest ``length``.
      length: Length of the sequences, as the task counts it.

    Raises:
      ValueError: ``length`` is below ``min_length``.
    """

    stream: ClassVar[str]
    min_length: ClassVar[int] = 1

    length: int = 4096

    def __post_init__(self) -> None:
        """Validates ``length``."""
        check_length(self.length, minimum=self.min_length)

    @property
    def spec(self) -> base.TaskSpec:
        """Three features and one target value per step."""
        return regression_spec(length=self.length, d_output=1)

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        """Draws a batch of ``size`` rows."""

    def n_examples(self, split: base.Split) -> None:
        """Returns None: every split is endless."""
        base.check_split(split)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Returns batch ``index``; see `ssm_jax.tasks.Task.batch`."""
        base.check_request(split, index, batch_size, seed)
        # All values depend on these arguments only, not on earlier batches.
        return self.draw(base.generator(self.stream, split, seed, index), batch_size)


def check_length(length: int, *, minimum: int = 1) -> None:
    """Raises ValueError unless ``length`` is an integer of at least ``minimum``."""
    check_value("length", length, Annotated[int, Ge(minimum)], "the paper's is 4096")


def draw_noise(rng: np.random.Generator, batch_size: int, length: int) -> np.ndarray:
    """Draws standard normal rows, each divided by its maximum absolute value.

    Args:
      rng: Random number generator.
      batch_size: Number of rows, ``b``.
      length: Number of steps of a row, ``l``.

    Returns:
      float32, ``(b, l)``, within [-1, 1].

    Example:
      >>> x = draw_noise(np.random.default_rng(0), batch_size=2, length=5)
      >>> print(np.abs(x).max(axis=1))
      [1. 1.]
    """
    # Drawn and divided in float64, rounded once.
    x = rng.standard_normal((batch_size, length))
    return (x / np.abs(x).max(axis=1, keepdims=True)).astype(np.float32)


def draw_positions(
    rng: np.random.Generator, shape: tuple[int, ...], n: int
) -> np.ndarray:
    """Draws a set of distinct positions for each row, uniformly among all sets.

    Args:
      rng: Random number generator.
      shape: Number of rows and of positions of a row, ``(b, l)``.
      n: Number of positions to draw, at most ``l``.

    Returns:
      int64, ``(b, n)``, increasing, in ``[0, l)``.

    Example:
      >>> draw_positions(np.random.default_rng(0), (2, 5), n=3)
      array([[1, 2, 3],
             [1, 2, 3]])
    """
    # The places of the n smallest of independent numbers are a uniform set, and a
    # partition finds those of all rows at once.
    order = np.argpartition(rng.random(shape), n - 1, axis=1)
    return np.sort(order[:, :n], axis=1)


def with_positions(x: np.ndarray) -> np.ndarray:
    """Appends the position of each step, as a point on the unit circle.

    Args:
      x: float32, values ``(b, l)`` or vectors ``(b, l, d)``; ``l`` includes padding.

    Returns:
      float32, ``(b, l, d + 2)``, with d = 1 for values: at step i the value or vector,
      ``cos(2 pi i / l)`` and ``sin(2 pi i / l)``.

    Example:
      >>> print(with_positions(np.ones((1, 4), np.float32))[0].round(3) + 0.0)
      [[ 1.  1.  0.]
       [ 1.  0.  1.]
       [ 1. -1.  0.]
       [ 1.  0. -1.]]
    """
    x = x[..., None] if x.ndim == 2 else x
    # Relative to the length of the row, as in the authors' code.
    angle = 2.0 * np.pi * np.arange(x.shape[1]) / x.shape[1]
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1).astype(x.dtype)
    return np.concatenate(
        [x, np.broadcast_to(circle, (len(x), *circle.shape))], axis=-1
    )


def pad_right(x: np.ndarray, n: int) -> np.ndarray:
    """Appends ``n`` zeros to each row, steps at which a causal model has seen ``x``.

    Args:
      x: float32, ``(b, l)``.
      n: Number of zeros.

    Returns:
      float32, ``(b, l + n)``.
    """
    return np.pad(x, ((0, 0), (0, n)))


def regression_spec(
    *, length: int, d_output: int, d_input: int = 3, l_output: int | None = None
) -> base.TaskSpec:
    """Returns the spec of a regression on `with_positions`.

    Args:
      length: Number of steps of a sequence.
      d_output: Number of target values of a step.
      d_input: Number of features of a step, with those of the position.
      l_output: Number of steps with a target, at the end. None means every step.

    Returns:
      The spec.
    """
    return base.TaskSpec(
        length=length,
        inputs="vector",
        d_input=d_input,
        targets="regression",
        d_output=d_output,
        l_output=length if l_output is None else l_output,
    )


def regression_batch(x: np.ndarray, targets: np.ndarray) -> base.Batch:
    """Returns the batch of a regression whose targets all count in the loss.

    Args:
      x: Inputs without the position, float32, ``(b, l)`` or ``(b, l, d)``.
      targets: float32, ``(b, l_output, d_output)``.

    Returns:
      The batch, with the features of `with_positions`.
    """
    loss_mask = np.ones(targets.shape[:2], bool)
    return base.Batch(with_positions(x), targets, loss_mask=loss_mask)
