"""ListOps: the value of a long nested expression."""

import dataclasses
import functools

import numpy as np

from ssm_jax.tasks import base, generated
from ssm_jax.tasks.listops import expressions

_PER_BLOCK = 64  # Examples that are drawn together.

PARTS: dict[base.Split, tuple[int, ...]] = {
    "train": tuple(range(2, expressions.PARTS)),
    "validation": (1,),
    "test": (0,),
}
"""Of which parts of all expressions, as `expressions.part_of` has them, a split is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListOps:
    """Classification: the value of a nested list of operations on digits.

    An expression is a digit or an operator with two or more expressions in brackets:
    ``[MAX 2 9 [MIN 4 7 ] 0 ]`` is 9. The operators are ``MIN``, ``MAX``, ``MED`` (the
    median; with an even number of arguments the mean of the middle two, rounded down)
    and ``SM`` (the sum modulo 10).

    What it asks of a model: to follow a hierarchy through one pass over up to 2,000
    tokens, keeping what the open brackets have gathered so far.

    Attributes:
      n_train: Examples to train on.
      n_validation: Examples of the validation split.
      n_test: Examples of the test split.
      min_length: Fewest tokens of an expression.
      max_length: Most tokens of an expression, and steps of a sequence.
      max_depth: Levels of the tree, its root and its deepest digits included; so at
        most ``max_depth - 1`` brackets are open at once.
      max_arguments: Most arguments of an operator; the fewest are 2.

    Batch:
      inputs: int32, ``(b, max_length)``: 0 padding at the right; 1 to 10 the digits 0
        to 9; 11 to 14 the opening brackets with their operators, ``[MIN``, ``[MAX``,
        ``[MED``, ``[SM``; 15 the closing bracket ``]``.
      targets: int32, ``(b,)``, the value, 0 to 9.
      loss_mask: bool, ``(b,)``, false for rows that fill up the last batch.
      mask: bool, ``(b, max_length)``, false on padding.

    Splits: 96,000 train, 2,000 validation and 2,000 test examples, drawn from streams
    of their own: example i of a split depends on the bounds above, on the split and on
    i alone, in every process. No expression is in two splits, at any size: given
    all but its last digit, one digit is for tests, one for validation and eight are to
    train on. Nothing is downloaded; what was asked for once is kept, one byte a token
    (200 MB in all).

    Note:
      Trees are drawn as the Long Range Arena draws them: from the root downwards each
      node is an operator with probability 0.25 (a digit at the greatest depth), an
      operator has 2 to ``max_arguments`` arguments and is any of the four, a digit any
      of the ten, all equally likely; a tree of another length than wanted is drawn
      anew. The arena writes an extra pair of parentheses around every argument, does
      not count it as length, and drops it when it reads; here it never exists, and the
      brackets are tokens, which the arena's first reader dropped too. Its bounds on the
      length exclude the bounds themselves, and it draws no tree twice, which at these
      lengths never happens; two short trees of one split may be equal.

    Raises:
      ValueError: A size is not positive, ``max_depth`` or ``max_arguments`` is below 2,
        ``max_length`` below ``min_length``, or none of 100,000 trees has such a
        length.

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

    def __post_init__(self) -> None:
        """Checks the sizes, and that trees of such a length are there to be found."""
        generated.check_sizes(self.n_train, self.n_validation, self.n_test)
        for name in ("max_depth", "max_arguments"):
            if (value := getattr(self, name)) < 2:
                raise ValueError(
                    f"`{name}` must be at least 2, got {value}; an operator has two "
                    "arguments or more, one level below it."
                )
        if not 1 <= self.min_length <= self.max_length:
            raise ValueError(
                f"`min_length` must be from 1 to `max_length`, {self.max_length}, got "
                f"{self.min_length}; the arena's bounds are 500 and 2000."
            )
        if not expressions.has_expressions(_bounds(self)):
            raise ValueError(
                "`min_length` and `max_length` must be lengths that trees have, got "
                f"{self.min_length} and {self.max_length} and none such among "
                f"{expressions.RAREST:,} trees; move them apart, or raise `max_depth` "
                "or `max_arguments`."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """What a model must know: one of 16 tokens a step in, one of ten digits out."""
        return base.TaskSpec(
            length=self.max_length,
            inputs="token",
            d_input=16,
            targets="classification",
            d_output=10,
            l_output=None,
        )

    def n_examples(self, split: base.Split) -> int:
        """Counts the expressions of a split."""
        return generated.split_size(split, self.n_train, self.n_validation, self.n_test)

    def batch(
        self, split: base.Split, index: int, batch_size: int, seed: int
    ) -> base.Batch:
        """Gives batch number ``index``; see `ssm_jax.tasks.Task.batch`."""
        n = self.n_examples(split)
        rows, mask = base.shuffled_indices(n, split, index, batch_size, seed)
        tokens, values = _examples(self, split).take(rows)
        return base.Batch(tokens.astype(np.int32), values, mask, mask=tokens > 0)


def decode(tokens: np.ndarray) -> str:
    """Writes an expression out.

    Args:
      tokens: As in `ListOps`, ``(l,)``; padding is left out.

    Returns:
      The words of the expression with blanks between them.

    Example:
      >>> decode(np.array([14, 9, 6, 15, 0, 0]))
      '[SM 8 5 ]'
    """
    words = ["", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]"]
    return " ".join(words[token] for token in tokens if token)


@functools.cache
def _examples(task: ListOps, split: base.Split) -> generated.GeneratedExamples:
    def draw(block: int) -> tuple[np.ndarray, np.ndarray]:
        rng = base.generator("listops", split, 0, block)
        return expressions.draw(rng, _PER_BLOCK, _bounds(task), PARTS[split])

    return generated.GeneratedExamples(
        n=task.n_examples(split),
        length=task.max_length,
        per_block=_PER_BLOCK,
        draw=draw,
    )


def _bounds(task: ListOps) -> expressions.Bounds:
    return expressions.Bounds(
        task.min_length, task.max_length, task.max_depth, task.max_arguments
    )
