"""ListOps: evaluation of long nested expressions."""

import dataclasses
import functools
from typing import Any

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, generated
from ssm_jax.tasks.listops import expressions, shapes

_PER_BLOCK = 64  # Examples that are drawn at once.

PARTS: dict[base.Split, tuple[int, ...]] = {
    "train": tuple(range(2, expressions.PARTS)),
    "validation": (1,),
    "test": (0,),
}
"""The parts of all expressions, see `expressions.part_of`, that form each split."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListOps(generated.GeneratedTask):
    """Classification: the value of a nested list of operations on digits.

    An expression is a digit or an operator with two or more expressions in brackets:
    ``[MAX 2 9 [MIN 4 7 ] 0 ]`` is 9. The operators are ``MIN``, ``MAX``, ``MED`` (the
    median; with an even number of arguments the mean of the middle two, rounded down)
    and ``SM`` (the sum modulo 10).

    What the task asks of a model: to evaluate a hierarchy in one pass over up to 2,000
    tokens, storing the partial results of all open brackets.

    Attributes:
      n_train: Number of train examples.
      n_validation: Number of validation examples.
      n_test: Number of test examples.
      min_length: Minimum number of tokens of an expression.
      max_length: Maximum number of tokens of an expression, and length of a sequence.
      max_depth: Maximum number of levels of the tree, counting its root and its deepest
        digits; at most ``max_depth - 1`` brackets are open at once.
      max_arguments: Maximum number of arguments of an operator; the minimum is 2.

    Batch:
      inputs: int32, ``(b, max_length)``: 0 padding on the right; 1 to 10 the digits 0
        to 9; 11 to 14 the opening brackets with their operators, ``[MIN``, ``[MAX``,
        ``[MED``, ``[SM``; 15 the closing bracket ``]``.
      targets: int32, ``(b,)``, the value of the expression, 0 to 9.
      loss_mask: bool, ``(b,)``, false in the rows that pad the last batch.
      mask: bool, ``(b, max_length)``, false on padding.

    Splits: 96,000 train, 2,000 validation and 2,000 test examples, from one random
    stream per split: example i depends only on the bounds above, the split and i. The
    splits are disjoint at any size: for each expression without its last digit, one
    value of that digit belongs to test, one to validation and eight to train. Nothing
    is downloaded; drawn examples are cached, one byte per token (200 MB in total).

    Note:
      Trees are sampled as in the Long Range Arena: from the root down, each node is an
      operator with probability 0.25 (a digit at the maximum depth); the number of
      arguments, 2 to ``max_arguments``, the operator and the digit are uniform; a tree
      whose length is out of bounds is rejected. The arena's files have an additional
      pair of parentheses around every argument, which is not counted and is removed
      when they are read; here it does not exist. Here closing brackets are tokens; the
      arena's first reader removed them. The arena's length bounds are exclusive, and it
      rejects duplicates, which do not occur at these lengths; here two short trees of
      one split may be equal.

    Raises:
      ValueError: A size is not positive, ``max_depth`` or ``max_arguments`` is below 2,
        ``max_length`` is below ``min_length``, or none of 100,000 sampled trees has a
        length within the bounds.

    Example:
      >>> task = ListOps(min_length=7, max_length=15, max_depth=4, max_arguments=4)
      >>> batch = task.batch("test", 0, batch_size=4, seed=0)
      >>> for row, value in zip(batch.inputs, batch.targets):
      ...     print(decode(row), "=", value)
      [SM 6 0 [MAX 8 0 3 3 ] 2 ] = 6
      [MIN 4 7 [SM 4 8 ] ] = 2
      [SM 8 [MAX 6 [MIN 9 6 ] 1 6 ] 6 1 ] = 1
      [MED 0 5 [MED 1 1 5 9 ] 4 ] = 3

    References:
      Nangia and Bowman, `ListOps: A Diagnostic Dataset for Latent Tree Learning
      <https://arxiv.org/abs/1804.06028>`_, 2018, section 2; lengths and sizes of Tay et
      al., `Long Range Arena <https://arxiv.org/abs/2011.04006>`_, 2020, section 2.2.1
    """

    n_train: int = 96_000
    n_validation: int = 2_000
    n_test: int = 2_000
    min_length: int = 500
    max_length: int = 2_000
    max_depth: int = 10
    max_arguments: int = 10

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        shapes.check_bounds(
            expression_bounds(self), "the arena's bounds are 500 and 2000"
        )

    @property
    def spec(self) -> base.TaskSpec:
        """One of 16 tokens per step, one of ten digits per sequence."""
        return base.TaskSpec(
            length=self.max_length,
            inputs="token",
            d_input=16,
            targets="classification",
            d_output=10,
            l_output=None,
        )

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        # Token 0 is padding only.
        tokens, values = examples(self, split, "listops").take(indices)
        return base.Batch(tokens.astype(np.int32), values, loss_mask, mask=tokens > 0)


def decode(tokens: np.ndarray) -> str:
    """Returns an expression as text.

    Args:
      tokens: Tokens of `ListOps`, ``(l,)``; padding is skipped.

    Returns:
      The tokens as text, separated by spaces.

    Example:
      >>> decode(np.array([14, 9, 6, 15, 0, 0]))
      '[SM 8 5 ]'
    """
    words = ["", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]"]
    return " ".join(words[token] for token in tokens if token)


# Equal tasks share their examples: a task is hashable and has no state.
@functools.cache
def examples(
    task: Any, split: base.Split, stream: str, **options: Any
) -> generated.GeneratedExamples:
    """Returns the expressions of a split, which are drawn on first use.

    Args:
      task: A task with a number of examples and the bounds of `ListOps`.
      split: The split.
      stream: Name of the random streams. It determines the expressions, so it must
        never change.
      **options: As for `expressions.draw`.
    """

    def draw(block: int) -> tuple[np.ndarray, np.ndarray]:
        # Seed 0 for every run; keyed by block, so that their order does not matter.
        rng = base.generator(stream, split, 0, block)
        bounds = expression_bounds(task)
        return expressions.draw(rng, _PER_BLOCK, bounds, PARTS[split], **options)

    return generated.GeneratedExamples(
        n=task.n_examples(split), per_block=_PER_BLOCK, draw=draw
    )


def expression_bounds(task: Any) -> shapes.Bounds:
    """Returns the bounds of a task, which has fields of their names."""
    return shapes.Bounds(*(getattr(task, name) for name in shapes.Bounds._fields))
