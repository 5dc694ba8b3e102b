"""ListOps-SubTrees: evaluation of every subtree of long nested expressions."""

import dataclasses

import numpy as np
from typing_extensions import override

from ssm_jax.fields import check_fields
from ssm_jax.tasks import base, generated
from ssm_jax.tasks.listops import shapes
from ssm_jax.tasks.listops.listops import examples, expression_bounds

_OPERATOR, _CLOSE = 11, 15  # Tokens of the first operator and of the closing bracket.


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListOpsSubTrees(generated.GeneratedTask):
    """Classification at every closing bracket: the value of the subtree it closes.

    Expressions and tokens are those of `ListOps`, at eight times its length.

    What the task asks of a model: to evaluate a hierarchy, as in `ListOps`, with a
    target for each intermediate result, so that errors can be counted by the height of
    the subtree.

    Attributes:
      n_train: Number of train examples.
      n_validation: Number of validation examples.
      n_test: Number of test examples.
      min_length: Minimum number of tokens of an expression.
      max_length: Maximum number of tokens of an expression.
      length: Length of a sequence, at least ``max_length``.
      max_depth: Maximum number of levels of the tree, counting its root and its deepest
        digits.
      max_arguments: Maximum number of arguments of an operator; the minimum is 2.

    Batch:
      inputs: int32, ``(b, length)``, the tokens of `ListOps`: 0 padding on the right, 1
        to 10 digits, 11 to 14 operators, 15 the closing bracket.
      targets: int32, ``(b, length)``, at each closing bracket the value of its subtree,
        0 to 9; 0 at other steps.
      loss_mask: bool, ``(b, length)``, true at closing brackets, and false everywhere
        in the rows that pad the last batch.
      mask: bool, ``(b, length)``, false on padding.

    Splits: 96,000 train, 2,000 validation and 2,000 test examples, disjoint as those of
    `ListOps`: for each expression without its last digit, one value of that digit
    belongs to test, one to validation and eight to train. Nothing is downloaded; drawn
    examples are cached, one byte per token (820 MB in total).

    Note:
      The distribution is that of `ListOps` given the length; the published generator
      also rejects an expression that equals an earlier one in all but its digits. At
      thousands of tokens none does; short expressions of one split may be equal.

    Raises:
      ValueError: A size is not positive, ``max_depth`` or ``max_arguments`` is below 2,
        ``min_length`` is below 4, ``max_length`` below ``min_length`` or ``length``
        below ``max_length``, or none of 100,000 sampled trees has a length within the
        bounds.

    Example:
      >>> from ssm_jax.tasks.listops.listops import decode
      >>> task = ListOpsSubTrees(min_length=12, max_length=15, length=16, max_depth=4)
      >>> batch = task.batch("test", 1, batch_size=1, seed=0)
      >>> print(decode(batch.inputs[0]))
      [MED 8 0 9 [SM 3 8 8 ] 8 2 ]
      >>> print(batch.targets[batch.loss_mask])
      [9 8]

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 3.2;
      sizes and bounds from the authors' code
    """

    n_train: int = 96_000
    n_validation: int = 2_000
    n_test: int = 2_000
    min_length: int = 7_001
    max_length: int = 8_179
    length: int = 8_192
    max_depth: int = 15
    max_arguments: int = 9

    @override
    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()
        if self.min_length < 4:
            raise ValueError(
                f"`min_length` must be at least 4, got {self.min_length}; a digit "
                "alone has no closing bracket, and other expressions have four tokens."
            )
        shapes.check_bounds(
            expression_bounds(self), "the published bounds are 7001 and 8179"
        )
        if self.length < self.max_length:
            raise ValueError(
                f"`length` must be at least `max_length`, {self.max_length}, got "
                f"{self.length}; sequences are padded to it."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """One of 16 tokens and one of ten digits per step."""
        return base.TaskSpec(
            length=self.length,
            inputs="token",
            d_input=16,
            targets="classification",
            d_output=10,
            l_output=self.length,
        )

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        labelled = np.zeros((len(indices), self.length), np.int32)
        drawn = examples(
            self,
            split,
            "listops subtrees",
            shapes=shapes.draw_long_shapes,
            labelled=True,
        )
        labelled[:, : self.max_length] = drawn.take(indices)[0]
        # The values are stored in the bytes of the closing brackets.
        is_closing = labelled >= _CLOSE
        tokens = np.minimum(labelled, _CLOSE)
        targets = np.where(is_closing, labelled - _CLOSE, 0)
        loss_mask = is_closing & loss_mask[:, None]
        return base.Batch(tokens, targets, loss_mask, mask=tokens > 0)


def heights(tokens: np.ndarray) -> np.ndarray:
    """Returns the height of the subtree that each closing bracket closes.

    The height of a subtree with digits alone as arguments is 1, that of another one
    more than the maximum height of its arguments.

    Args:
      tokens: Tokens of complete expressions, ``(*b, l)``; padding is allowed.

    Returns:
      Heights, int32, ``(*b, l)``; 0 at other tokens.

    Raises:
      ValueError: The brackets of a row are not balanced.

    Example:
      >>> heights(np.array([11, 1, 12, 5, 3, 15, 13, 2, 2, 15, 15, 0]))
      array([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2, 0], dtype=int32)
    """
    openings, closings, level = _brackets(tokens)
    # From the deepest level up: the deepest level within each bracket of a level.
    deepest = level.copy()
    for depth in range(level.max(initial=0), 1, -1):
        children, parents = level == depth, np.flatnonzero(level == depth - 1)
        # The parent of a bracket is the last of the level above that opens before it.
        last_parents = np.searchsorted(openings[parents], openings[children]) - 1
        np.maximum.at(deepest, parents[last_parents], deepest[children])
    result = np.zeros(tokens.shape, np.int32)
    result.reshape(-1)[closings] = deepest - level + 1
    return result


def operators(tokens: np.ndarray) -> np.ndarray:
    """Returns the operator of the subtree that each closing bracket closes.

    Args:
      tokens: Tokens of complete expressions, ``(*b, l)``; padding is allowed.

    Returns:
      Tokens of the operators, int32, ``(*b, l)``: 11 to 14 for ``MIN``, ``MAX``,
      ``MED`` and ``SM``; 0 at other tokens.

    Raises:
      ValueError: The brackets of a row are not balanced.

    Example:
      >>> operators(np.array([11, 1, 12, 5, 3, 15, 4, 15, 0]))
      array([ 0,  0,  0,  0,  0, 12,  0, 11,  0], dtype=int32)
    """
    openings, closings, _ = _brackets(tokens)
    result = np.zeros(tokens.shape, np.int32)
    result.reshape(-1)[closings] = tokens.reshape(-1)[openings]
    return result


def _brackets(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the positions of matching brackets in all rows, and their level from 1.

    The brackets of a level are in the order of the tokens.
    """
    is_opening = (_OPERATOR <= tokens) & (tokens < _CLOSE)
    is_closing = tokens == _CLOSE
    # Brackets that are open after each token.
    n_open = np.cumsum(is_opening.astype(np.int64) - is_closing, axis=-1)
    if (n_open < 0).any() or n_open[..., -1:].any():
        row = np.argmax((n_open.min(-1) < 0) | (n_open[..., -1] != 0))
        raise ValueError(
            f"`tokens` must have balanced brackets in each row, got row {row} with "
            "others; give complete expressions."
        )
    flat = n_open.reshape(-1)
    openings, closings = np.flatnonzero(is_opening), np.flatnonzero(is_closing)
    # On one level, brackets open and close in turn: the k-th closing one belongs to the
    # k-th opening one. A stable sort keeps the order on each level.
    openings = openings[np.argsort(flat[openings], kind="stable")]
    closings = closings[np.argsort(flat[closings], kind="stable")]
    return openings, closings, flat[openings]
