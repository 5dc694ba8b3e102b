"""Copying: strings of random letters, each followed by its copy."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.fields import PositiveInt
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Copying(tokens.TokenTask):
    """Classification: the next token of strings that are repeated.

    A string ``s`` of random letters is written as ``$ s | s .``, and the targets are
    its copy and the end, ``.``, each at the step before. The number of letters is
    uniform between two bounds.

    What the task asks of a model: a memory of a whole string, whose size grows with the
    string, and the reading of it in order; attention does both by a lookup of the last
    few letters, and a state of fixed size holds strings up to a length only.

    Attributes:
      length: Number of steps of a row.
      n_letters: Number ``A`` of different letters.
      shortest: Number of letters of the shortest strings. None: the number that fills a
        row.
      longest: Number of letters of the longest strings. None: the number that fills a
        row.
      packed: Whether a row has as many strings as fit, one after the other, whose
        states no reset separates; otherwise it has one. The rest of the row is padding.

    Batch:
      inputs: int32, ``(b, length)``: 0 is padding, 1 to ``A`` are letters, then come
        ``$``, ``|`` and ``.``.
      targets: int32, ``(b, length)``, the next token.
      loss_mask: bool, ``(b, length)``, true where the next token is of a copy, or the
        end behind it.
      mask: bool, ``(b, length)``, false on padding.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    The published setting is the default: strings of 5 to 20 of 26 letters, packed into
    220 steps. Strings of one length, as they are evaluated, fill a row:

      >>> Copying(length=602, shortest=None, longest=None, packed=False).n_copied
      (300, 300)

    Raises:
      ValueError: A number is not positive, or ``shortest`` is above ``longest``, or
        ``length`` below ``2 longest + 2``.

    Example:
      >>> task = Copying(length=15, shortest=1, longest=3)
      >>> batch = task.batch("train", 0, batch_size=1, seed=0)
      >>> letters = np.array([*"_abcdefghijklmnopqrstuvwxyz$|."])
      >>> print(*letters[batch.inputs[0]])
      $ v w n | v w n . $ u | u . _
      >>> print(*letters[np.where(batch.loss_mask[0], batch.targets[0], 0)])
      _ _ _ _ v w n . _ _ _ u . _ _

    References:
      Jelassi, Brandfonbrener, Kakade and Malach, `Repeat After Me: Transformers are
      Better than State Space Models at Copying <https://arxiv.org/abs/2402.01032>`_,
      2024, section 3
    """

    stream = "copying"

    length: PositiveInt = 220
    n_letters: PositiveInt = 26
    shortest: PositiveInt | None = 5
    longest: PositiveInt | None = 20
    packed: bool = True

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_length(4, "a string of one letter with its copy")
        low, high = self.n_copied
        self._check_length(2 * high + 2, "the longest string with its copy")
        if low > high:
            raise ValueError(
                f"`shortest` must be at most the letters of the longest string, {high},"
                f" got {low}; take shorter strings."
            )

    @property
    def n_copied(self) -> tuple[int, int]:
        """Number of letters of the shortest and of the longest strings."""
        most = (self.length - 2) // 2
        return (
            most if self.shortest is None else self.shortest,
            most if self.longest is None else self.longest,
        )

    @property
    @override
    def spec(self) -> base.TaskSpec:
        """A class at each step, of which those before a copied letter count."""
        return tokens.spec_of_tokens(
            length=self.length,
            vocabulary=self.n_letters + 4,
            n_classes=self.n_letters + 4,
            l_output=self.length,
        )

    @property
    @override
    def chance(self) -> float:
        """Accuracy of a prediction that knows where a copy ends, but no letter of it.

        With ``m`` letters in the mean, ``(m / n_letters + 1) / (m + 1)``. In packed
        rows it is a little larger, as the strings that fit behind others are shorter.
        """
        mean = sum(self.n_copied) / 2
        return (mean / self.n_letters + 1) / (mean + 1)

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        # One more than the steps: the last one is only a target.
        low, high = self.n_copied
        width, end = self.length + 1, self.n_letters + 3
        most = width // (2 * low + 3) if self.packed else 1
        n = rng.integers(low, high, size=(size, most), endpoint=True)
        letters = rng.integers(1, self.n_letters + 1, size=(size, width))
        ends = np.cumsum(2 * n + 3, axis=1)
        used = np.where(ends <= width, 2 * n + 3, 0)
        padded = width - used.sum(axis=1, keepdims=True)
        # Each token with the start and the number of letters of its string; -1: none.
        parts = np.concatenate([used, padded], axis=1).reshape(-1)
        start, count = (
            np.repeat(np.pad(of_string, ((0, 0), (0, 1)), constant_values=-1), parts)
            for of_string in (ends - 2 * n - 3, n)
        )
        start, count = start.reshape(size, width), count.reshape(size, width)
        step = np.arange(width) - start
        copied = np.take_along_axis(
            letters, np.maximum(np.arange(width) - count - 1, 0), axis=1
        )
        row = np.select(
            [
                count < 0,
                step == 0,
                step <= count,
                step == count + 1,
                step <= 2 * count + 1,
            ],
            [0, end - 2, letters, end - 1, copied],
            default=end,
        ).astype(np.int32)
        is_answer = (count >= 0) & (step > count + 1)
        return base.Batch(
            row[:, :-1].copy(),
            targets=row[:, 1:].copy(),
            loss_mask=is_answer[:, 1:].copy(),
            mask=(count >= 0)[:, :-1].copy(),
        )
