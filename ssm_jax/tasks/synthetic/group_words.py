"""GroupWords: the running product of random elements of a finite group."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.fields import PositiveInt
from ssm_jax.tasks.synthetic import groups, state_tracking


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupWords(state_tracking.StateTracking):
    r"""Classification: the running product of random elements of a finite group.

    .. math::
      p_t = p_{t-1} \, x_t, \qquad p_0 = x_0, \qquad y_t = p_t

    New elements multiply from the right. Of permutations the right factor acts first:
    ``p_t[i] = p_{t-1}[x_t[i]]``; `ssm_jax.tasks.synthetic.groups.product_table` has all
    products.

    What the task asks of a model: to track a state. In a group that is not commutative,
    as S3, the order of the elements matters, and of one that is not solvable, as A5 and
    S5, no fixed number of layers of diagonal or time-invariant linear recurrences
    computes the products of words of all lengths, unless TC0 equals NC1.

    Attributes:
      length: Number of steps of a row.
      shortest: Number of elements of the shortest words; the number of each row is
        uniform from there to the longest that fits. None: all words fill their row.
      last_only: Whether only the product of all elements counts in the loss. Otherwise
        that after each element does.
      bos: Whether a row begins with token 0, which changes no state and has no target.
      group: Name of the group: ``"S5"``, ``"A5"``, ``"Z60"``, ``"C2"``, or with an
        ``x``, such as ``"A4xZ5"``, a direct product.
      elements: Numbers of the elements that words are made of, by the order of
        `ssm_jax.tasks.synthetic.groups.product_table`; they generate the group. None:
        all elements. Two generate A5, as (15, 16), of which 15 is a cycle of three and
        16 one of five; there is far less to learn than with all 60.

    Batch:
      inputs: int32, ``(b, length)``: ``i + 1`` for element ``i``, or element
        ``elements[i]``; 0 is padding and the beginning.
      targets: int32, ``(b, length)``: the number of an element, in ``[0, n)``.
      loss_mask: bool, ``(b, length)``, true at each element, or at the last one.
      mask: bool, ``(b, length)``, false on padding, which is behind a word; None with
        ``shortest=None``.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream, but words of a few elements are in all. Nothing is downloaded.

    The published settings have targets at every step:

    =====================  =================  =======================================
    setting                groups             words
    =====================  =================  =======================================
    Merrill et al.         Z60, A4xZ5, A5     up to 20 elements after a beginning:
                                              ``length=21, bos=True``; up to 1,000,000
                                              different ones, of lengths 2 and 20
    Grazzi et al.          S5                 32 elements, 500 for the test
    =====================  =================  =======================================

    Their training loss counts the beginning and padding too, as targets of their own;
    here these have none. Grazzi et al. have words of S5 of its swaps alone, too, which
    are ``elements=(1, 2, 5, 6, 14, 21, 24, 54, 80, 105)``. A reduced setting is
    ``GroupWords(group="S3", length=40)``.

    Raises:
      ValueError: A number is not positive, there is no such group or it has more than
        1,000 elements, ``elements`` are fewer than two, not different, out of range, or
        generate a smaller group, or the shortest word does not fit in ``length``.

    Example:
      >>> task = GroupWords(group="S3", length=6)
      >>> batch = task.batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0] - 1, batch.targets[0])
      [1 1 2 0 4 2] [1 0 2 2 5 3]

    References:
      Merrill, Petty and Sabharwal, `The Illusion of State in State-Space Models
      <https://arxiv.org/abs/2404.08819>`_, 2024; Grazzi et al., `Unlocking
      State-Tracking in Linear RNNs Through Negative Eigenvalues
      <https://arxiv.org/abs/2411.12537>`_, 2024
    """

    stream = "group_words"

    length: PositiveInt = 20
    group: str = "A5"
    elements: tuple[int, ...] | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        order = groups.order(self.group)
        if self.elements is None:
            return
        n_different = len(set(self.elements) & set(range(order)))
        if n_different < max(2, len(self.elements)):
            raise ValueError(
                f"`elements` must be two or more different numbers in [0, {order}), "
                f"got {self.elements}; None is all elements of {self.group}."
            )
        n_generated = len(groups.subgroup(self.group, self.elements))
        if n_generated < order:
            raise ValueError(
                f"`elements` must generate all {order} elements of {self.group}, got "
                f"{self.elements}, which generate {n_generated}; None is all elements."
            )

    @property
    @override
    def n_symbols(self) -> int:
        """The number of elements that words are made of."""
        return self.n_states if self.elements is None else len(self.elements)

    @property
    @override
    def n_states(self) -> int:
        """The number of elements of the group."""
        return groups.order(self.group)

    @property
    @override
    def chance(self) -> float:
        """Accuracy of a prediction that tracks nothing, as 1/60 for A5.

        It knows the number of elements, and so the sign of a product of swaps. That is
        of long words: after a few elements some products are more likely.
        """
        if self.elements is None:
            return super().chance
        return 1 / groups.coset_order(self.group, self.elements)

    @property
    def commutative_level(self) -> float:
        """Accuracy at long words of a prediction that knows no order of elements.

        It knows how often each element occurred, and so the product up to the
        commutator subgroup: 1 for Z60, 1/4 for A4xZ5, 1/60 for A5, and for S5, by the
        sign of the permutation, 1/60 in place of 1/120, the `chance` with all elements.
        A model above it uses the order.
        """
        return 1 / groups.commutator_order(self.group)

    @override
    def states(self, words: np.ndarray) -> np.ndarray:
        if self.elements is not None:
            words = np.array(self.elements)[words]
        return groups.running_products(groups.product_table(self.group), words)
