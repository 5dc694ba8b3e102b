"""Parity and ModularSums, and what tasks of state tracking share."""

import abc
import dataclasses
from typing import Annotated

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Interval, PositiveInt
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateTracking(tokens.TokenTask):
    """Classification: the state of a finite automaton that reads random symbols.

    Symbols are independent and uniform. Token 0 is no symbol: it is padding and the
    beginning; symbol ``i`` is token ``i + 1``.

    Attributes:
      length: Number of steps of a row.
      shortest: Number of symbols of the shortest words; the number of each row is
        uniform from there to the longest that fits. None: all words fill their row.
      last_only: Whether only the state after the last symbol counts in the loss.
        Otherwise that after each symbol does.
      bos: Whether a row begins with token 0, which changes no state and has no target.

    Batch:
      inputs: int32, ``(b, length)``.
      targets: int32, ``(b, length)``, the state after each symbol.
      loss_mask: bool, ``(b, length)``, true at each symbol, or at the last one.
      mask: bool, ``(b, length)``, false on padding, which is behind a word; None with
        ``shortest=None``.

    Raises:
      ValueError: A number is not positive, or the shortest word does not fit in
        ``length``.
    """

    shortest: PositiveInt | None = None
    last_only: bool = False
    bos: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        minimum = (self.shortest or 1) + self.bos
        self._check_length(minimum, "the steps of the shortest word")

    @property
    @abc.abstractmethod
    def n_symbols(self) -> int:
        """Number of different symbols."""

    @property
    @abc.abstractmethod
    def n_states(self) -> int:
        """Number of different states."""

    @abc.abstractmethod
    def states(self, words: np.ndarray) -> np.ndarray:
        """Returns the states after each symbol, int, from symbols, both ``(b, l)``."""

    @property
    @override
    def spec(self) -> base.TaskSpec:
        """A class at each step, of which those of the loss mask count."""
        return tokens.spec_of_tokens(
            length=self.length,
            vocabulary=self.n_symbols + 1,
            n_classes=self.n_states,
            l_output=self.length,
        )

    @property
    @override
    def chance(self) -> float:
        """Accuracy of a prediction that tracks nothing, ``1 / n_states``.

        That is of long words: after a few symbols some states are more likely.
        """
        return 1 / self.n_states

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        most = self.length - self.bos
        words = rng.integers(self.n_symbols, size=(size, most), dtype=np.int32)
        n = np.full((size, 1), most)
        if self.shortest is not None:
            n = rng.integers(self.shortest, most, size=(size, 1), endpoint=True)
        place = np.arange(most)
        # What is behind a word changes no state within it.
        inputs = np.where(place < n, words + 1, 0).astype(np.int32)
        targets = self.states(words).astype(np.int32)
        loss_mask = place == n - 1 if self.last_only else place < n
        first = ((0, 0), (int(self.bos), 0))
        inputs, targets, loss_mask = (
            np.pad(array, first) for array in (inputs, targets, loss_mask)
        )
        mask = None
        if self.shortest is not None:
            mask = np.arange(self.length) < n + self.bos
        return base.Batch(inputs, targets, loss_mask, mask=mask)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity(StateTracking):
    r"""Classification: whether the number of ones so far is odd.

    .. math::
      y_t = (x_0 + \dots + x_t) \bmod 2, \qquad x_t \in \{0, 1\}

    What the task asks of a model: a state that a one inverts and a zero keeps, without
    decay; a diagonal linear recurrence needs an eigenvalue of -1 at ones for it. Models
    that solve the training lengths by other means fail at several times these.

    Attributes:
      length: Number of steps of a row.
      shortest: Number of bits of the shortest words; the number of each row is uniform
        from there to the longest that fits. None: all words fill their row.
      last_only: Whether only the parity after the last bit counts in the loss.
        Otherwise that after each bit does.
      bos: Whether a row begins with token 0, which changes no state and has no target.

    Batch:
      inputs: int32, ``(b, length)``: 1 and 2 for the bits 0 and 1; 0 is padding and the
        beginning.
      targets: int32, ``(b, length)``, in {0, 1}.
      loss_mask: bool, ``(b, length)``, true at each bit, or at the last one.
      mask: bool, ``(b, length)``, false on padding, which is behind a word; None with
        ``shortest=None``.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    The published setting is words of 2 to 39 bits for training and of 39 to 255 for the
    test, which are 3 to 40 and 40 to 256 tokens with the answer, and the loss at the
    last bit. Its figure is a mean over the test words, scaled: ``2 * accuracy - 1``.

      >>> train = Parity(length=39, shortest=2, last_only=True)
      >>> test = dataclasses.replace(train, length=255, shortest=39)

    A reduced one is ``Parity(length=40)``.

    Raises:
      ValueError: A number is not positive, or the shortest word does not fit in
        ``length``.

    Example:
      >>> batch = Parity(length=8).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0], batch.targets[0])
      [1 2 1 1 2 1 2 2] [0 1 1 1 0 0 1 0]

    References:
      Grazzi et al., `Unlocking State-Tracking in Linear RNNs Through Negative
      Eigenvalues <https://arxiv.org/abs/2411.12537>`_, 2024; Beck et al.,
      `xLSTM: Extended Long Short-Term Memory <https://arxiv.org/abs/2405.04517>`_, 2024
    """

    stream = "parity"

    length: PositiveInt = 39

    @property
    @override
    def n_symbols(self) -> int:
        """Two, the bits."""
        return 2

    @property
    @override
    def n_states(self) -> int:
        """Two, even and odd."""
        return 2

    @override
    def states(self, words: np.ndarray) -> np.ndarray:
        return np.cumsum(words, axis=1) % 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModularSums(StateTracking):
    r"""Classification: the sum of the moves so far, modulo a number of states.

    .. math::
      y_t = (m_{x_0} + \dots + m_{x_t}) \bmod k

    with the ``modulus`` ``k`` and the ``moves`` ``m``: the position on a cycle.

    What the task asks of a model: a state that returns after ``k`` moves, without
    decay; a diagonal linear recurrence needs input-dependent eigenvalues ``exp(2 pi i m
    / k)`` for it, which for ``k > 2`` are not real. A sum is commutative: the order of
    the moves does not matter.

    Attributes:
      length: Number of steps of a row.
      shortest: Number of moves of the shortest words; the number of each row is uniform
        from there to the longest that fits. None: all words fill their row.
      last_only: Whether only the sum after the last move counts in the loss. Otherwise
        that after each move does.
      bos: Whether a row begins with token 0, which changes no state and has no target.
      modulus: Number of states, ``k``.
      moves: What each symbol adds; different numbers modulo ``k``.

    Batch:
      inputs: int32, ``(b, length)``: ``i + 1`` for move ``i``; 0 is padding and the
        beginning.
      targets: int32, ``(b, length)``, in ``[0, modulus)``.
      loss_mask: bool, ``(b, length)``, true at each move, or at the last one.
      mask: bool, ``(b, length)``, false on padding, which is behind a word; None with
        ``shortest=None``.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    The published setting, cycle navigation, has moves -1, 0 and 1 on 5 states, words of
    1 to 40 moves for training, of longer ones, to 500, for the test, and the loss at
    the last move. In that code the words of a batch have one length.

      >>> train = ModularSums(length=40, shortest=1, last_only=True)

    A reduced one is ``ModularSums(length=40, modulus=3, moves=(0, 1, 2))``.

    Raises:
      ValueError: A number is not positive, two moves are equal modulo ``modulus``, or
        the shortest word does not fit in ``length``.

    Example:
      >>> batch = ModularSums(length=8).batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0] - 2)
      [ 1  1 -1  1  1  1  0 -1]
      >>> print(batch.targets[0])
      [1 2 1 2 3 4 4 3]

    References:
      Delétang et al., `Neural Networks and the Chomsky Hierarchy
      <https://arxiv.org/abs/2207.02098>`_, 2022
    """

    stream = "modular_sums"

    length: PositiveInt = 40
    modulus: Annotated[int, Interval(ge=2, lt=2**31)] = 5
    moves: tuple[int, ...] = (-1, 0, 1)

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        found = {move % self.modulus for move in self.moves}
        if len(found) < max(2, len(self.moves)):
            raise ValueError(
                "`moves` must be two or more that differ modulo `modulus`, "
                f"{self.modulus}, got {self.moves}; (-1, 0, 1) is an example."
            )

    @property
    @override
    def n_symbols(self) -> int:
        """The number of moves."""
        return len(self.moves)

    @property
    @override
    def n_states(self) -> int:
        """The modulus."""
        return self.modulus

    @override
    def states(self, words: np.ndarray) -> np.ndarray:
        # Reduced first, so that sums of long words fit in int64.
        moves = np.array(self.moves) % self.modulus
        return np.cumsum(moves[words], axis=1) % self.modulus
