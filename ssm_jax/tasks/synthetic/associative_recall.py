"""AssociativeRecall: several keys of one row are asked for their values."""

import dataclasses
from typing import Annotated, Literal

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Interval, PositiveFloat, PositiveInt
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import tokens

Filler = Literal["zero", "random"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AssociativeRecall(tokens.TokenTask):
    r"""Classification: multi-query associative recall (MQAR).

    .. math::
      k_1 \; v_1 \; \dots \; k_D \; v_D \; \; 0 \; 0 \; k_3 \; 0 \; 0 \; 0 \; k_1 \; 0
      \; \dots, \qquad y_t = v_j \text{ where } x_t = k_j

    A row starts with ``D`` pairs of a key and a value, all of them different. Each key
    is asked once, in one of the ``M = (length - 2 D) // 2`` slots of two steps behind
    the pairs, a query and a filler. Keys draw their slots one after the other, each
    slot ``i`` that is free with a probability in proportion to ``i ** (power - 1)``.

    What the task asks of a model: to bind each key to its value, and to find the value
    by the content of the query; the state must hold all pairs.

    Attributes:
      length: Number of steps of a row.
      vocabulary: Number ``V`` of tokens: 0, the filler, keys from 1 to ``V // 2 - 1``,
        and values from there on.
      n_pairs: Number ``D`` of pairs.
      power: Power of the distribution of queries. Small ones have most queries close to
        the pairs; 1 is uniform.
      filler: Token of a step behind the pairs that asks for nothing: ``"zero"``, or
        ``"random"``, any of the ``V``. Random ones include keys, which then look like
        queries; with a small ``V`` there are many.

    Batch:
      inputs: int32, ``(b, length)``, in ``[0, V)``.
      targets: int32, ``(b, length)``: at a query its value, 0 elsewhere.
      loss_mask: bool, ``(b, length)``, true at the ``D`` queries of a row.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    The published settings have 8,192 tokens, ``power=0.01``, models of 2 layers and

    ==================  ====================================================  ========
    setting             ``(length, n_pairs)``                                 filler
    ==================  ====================================================  ========
    Zoology, figure 2   (64, 4), (128, 8), (256, 16), (512, 64), one per run  zero
    Based, trained on   (64, 4), (128, 8), (256, 16), (256, 32), (256, 64)    random
    Based, tested on    (64, 4), (64, 8), (64, 16), (128, 32), (256, 64),     random
                        (512, 128), (1024, 256)
    ==================  ====================================================  ========

    A reduced one is ``AssociativeRecall(length=48, vocabulary=128, n_pairs=8)``.

    Raises:
      ValueError: A number is not positive, there are fewer keys than pairs, or
        ``length`` is below ``4 n_pairs``.

    Example:
      >>> task = AssociativeRecall(length=12, vocabulary=16, n_pairs=2)
      >>> batch = task.batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0])
      [ 7  9  3 15  7  0  0  0  3  0  0  0]
      >>> print(batch.targets[0])
      [ 0  0  0  0  9  0  0  0 15  0  0  0]

    References:
      Arora et al., `Zoology: Measuring and Improving Recall in Efficient Language
      Models <https://arxiv.org/abs/2312.04927>`_, 2023, and the authors'
      code; Arora et al., `Simple Linear Attention Language Models Balance the
      Recall-Throughput Tradeoff <https://arxiv.org/abs/2402.18668>`_, 2024
    """

    stream = "associative_recall"

    length: PositiveInt = 64
    vocabulary: Annotated[int, Interval(ge=4, lt=2**31)] = 8192
    n_pairs: PositiveInt = 4
    power: PositiveFloat = 0.01
    filler: Filler = "zero"

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_pairs > (n_keys := self.vocabulary // 2 - 1):
            raise ValueError(
                f"`n_pairs` must be at most the number of keys, {n_keys}, got "
                f"{self.n_pairs}; a `vocabulary` of {2 * self.n_pairs + 2} has as many."
            )
        self._check_length(4 * self.n_pairs, "two steps for a pair and for a query")

    @property
    @override
    def spec(self) -> base.TaskSpec:
        """A class at each step, of which those at queries count."""
        return tokens.spec_of_tokens(
            length=self.length,
            vocabulary=self.vocabulary,
            n_classes=self.vocabulary,
            l_output=self.length,
        )

    @property
    @override
    def chance(self) -> float:
        """Accuracy of any value of the row, ``1 / n_pairs``.

        Models stay there before they bind keys to values; it is far above that of any
        value of the vocabulary. With a small ``power`` the first pairs are often asked
        first: the value of pair ``k`` at query ``k`` is right for .28 of the queries of
        4 pairs in 64 steps, and for .11 of those of 16 pairs, in place of .25 and .06.
        """
        return 1 / self.n_pairs

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        n, n_keys = self.n_pairs, self.vocabulary // 2 - 1
        n_values = self.vocabulary - n_keys - 1
        keys = 1 + _draw_distinct(rng, n_keys, (size, n))
        values = 1 + n_keys + _draw_distinct(rng, n_values, (size, n))
        # The slots of exponential times, the rates of which are the probabilities, in
        # the order of the times are draws without replacement. In logarithms, which do
        # not overflow.
        n_slots = (self.length - 2 * n) // 2
        times = np.log(rng.standard_exponential((size, n_slots)))
        times -= (self.power - 1) * np.log(np.arange(1, n_slots + 1))
        queries = 2 * n + 2 * _smallest(times, n)
        shape = size, self.length
        inputs = np.zeros(shape, np.int32)
        if self.filler == "random":
            inputs[:] = rng.integers(self.vocabulary, size=shape, dtype=np.int32)
        inputs[:, 0 : 2 * n : 2], inputs[:, 1 : 2 * n : 2] = keys, values
        np.put_along_axis(inputs, queries, keys, axis=1)
        targets, loss_mask = np.zeros(shape, np.int32), np.zeros(shape, bool)
        np.put_along_axis(targets, queries, values, axis=1)
        np.put_along_axis(loss_mask, queries, True, axis=1)
        return base.Batch(inputs, targets, loss_mask)


def _draw_distinct(
    rng: np.random.Generator, n: int, shape: tuple[int, int]
) -> np.ndarray:
    """Draws rows of different integers below ``n``, in a random order, int32."""
    size, n_drawn = shape
    drawn = np.full(shape, -1, np.int32)
    # Floyd's method: one number after the other, in all rows at once, without a
    # permutation of all n. If it is there already, the largest of its range is not.
    for i, largest in enumerate(range(n - n_drawn, n)):
        number = rng.integers(largest + 1, size=size, dtype=np.int32)
        is_there = (drawn[:, :i] == number[:, None]).any(axis=1)
        drawn[:, i] = np.where(is_there, largest, number)
    return rng.permuted(drawn, axis=1)


def _smallest(x: np.ndarray, n: int) -> np.ndarray:
    """Returns the places of the ``n`` smallest numbers of each row, from the least."""
    places = np.argpartition(x, n - 1, axis=1)[:, :n]
    order = np.argsort(np.take_along_axis(x, places, axis=1), axis=1)
    return np.take_along_axis(places, order, axis=1)
