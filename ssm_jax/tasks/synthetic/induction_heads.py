"""InductionHeads: the token behind a special one, when that comes again."""

import dataclasses
from typing import Annotated, Literal

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Interval, PositiveInt
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import tokens

Special = Literal["own", "inside"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InductionHeads(tokens.TokenTask):
    r"""Classification: the token that followed the special token the first time.

    .. math::
      x_p = x_{L-1} = s, \qquad y_{L-1} = x_{p+1}, \qquad 0 \le p \le L - 3

    All other tokens are uniform and none of them is the special one, ``s``. ``L`` is
    ``length``, and ``p`` is drawn for each row, uniformly: a fixed one would be a fixed
    lag, for which a convolution is enough.

    What the task asks of a model: to find the special token by its content, and to keep
    one token until the end, however long the row is.

    Attributes:
      length: Number of steps of a row.
      vocabulary: Number ``V`` of tokens.
      special: The special token: ``"own"``, one more, ``V``, so that the answer is one
        of ``V``; or ``"inside"``, ``V - 1``, so that it is one of ``V - 1``.
      last_only: Whether the target is that of the last step only. Otherwise each step
        has one, the next token, and all count; but for the last one, and the special
        token itself, they cannot be predicted better than by chance.

    Batch:
      inputs: int32, ``(b, length)``, in ``[0, V)``, or ``[0, V]`` with ``"own"``.
      targets: int32, ``(b, 1)``, for the last step; with ``last_only=False``
        ``(b, length)``. The classes are the tokens.
      loss_mask: bool, of the shape of the targets, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    The published setting is the default for training: 256 steps, 16 tokens, 204,800
    steps of 8 rows at constant learning rates of 2e-4 and 1e-3. It is evaluated at each
    power of 2 from 64 to 2^20 steps:

      >>> lengths = [2**k for k in range(6, 21)]
      >>> longest = dataclasses.replace(InductionHeads(), length=lengths[-1])
      >>> longest.batch("test", 0, batch_size=1, seed=0).inputs.shape
      (1, 1048576)

    A reduced one is ``InductionHeads(length=64)``.

    Raises:
      ValueError: ``length`` or ``vocabulary`` is below 3.

    Example:
      >>> task = InductionHeads(length=8)
      >>> batch = task.batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0], batch.targets[0])
      [ 8 16  8 15  7  3 14 16] [8]

    Note:
      The paper's code is not published; it leaves open whether the special token is one
      of the 16, and which targets count.

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023, tables 2 and 11, appendix E.1
    """

    stream = "induction_heads"

    length: PositiveInt = 256
    vocabulary: Annotated[int, Interval(ge=3, lt=2**30)] = 16
    special: Special = "own"
    last_only: bool = True

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_length(3, "the special token twice and the answer")

    @property
    def _special(self):
        """The special token, which is also the number of the others."""
        return self.vocabulary - (self.special == "inside")

    @property
    @override
    def spec(self) -> base.TaskSpec:
        """A class at the last step, or at each one."""
        return tokens.spec_of_tokens(
            length=self.length,
            vocabulary=self._special + 1,
            n_classes=self._special + 1,
            l_output=1 if self.last_only else self.length,
        )

    @property
    @override
    def chance(self) -> float:
        """Accuracy at the last step of any token but the special one."""
        return 1 / self._special

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        shape, row = (size, self.length), np.arange(size)
        inputs = rng.integers(self._special, size=shape, dtype=np.int32)
        first = rng.integers(self.length - 2, size=size)
        inputs[row, first] = inputs[:, -1] = self._special
        answer = inputs[row, first + 1][:, None]
        following = np.concatenate([inputs[:, 1:], answer], axis=1)
        targets = answer if self.last_only else following
        return base.Batch(inputs, targets, loss_mask=np.ones(targets.shape, bool))
