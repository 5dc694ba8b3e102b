"""SelectiveCopying: data tokens among noise, repeated in their order."""

import dataclasses
from typing import Annotated

import numpy as np
from typing_extensions import override

from ssm_jax.fields import Interval, PositiveInt
from ssm_jax.tasks import base
from ssm_jax.tasks.synthetic import sequence, tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectiveCopying(tokens.TokenTask):
    r"""Classification: data tokens among noise, repeated in their order at the end.

    .. math::
      y_k = x_{p_k} - 1, \qquad 0 \le p_0 < \dots < p_{M-1} < L - M

    A row of ``L = length`` steps has ``M = n_data`` data tokens at positions ``p_k``,
    drawn for each row uniformly among all sets of ``M`` positions, noise between them,
    and ``M`` markers at the end; ``y_k`` is the target at marker ``k``.

    What the task asks of a model: to skip the noise by its content, as no convolution
    does, whose kernel knows positions only, and to keep the data in order.

    Attributes:
      length: Number of steps of a row: noise, data and markers.
      vocabulary: Number ``V`` of tokens: 0 is noise, ``V - 1`` the marker, and the
        others are data.
      n_data: Number ``M`` of data tokens.

    Batch:
      inputs: int32, ``(b, length)``, in ``[0, V)``.
      targets: int32, ``(b, n_data)``, in ``[0, V - 2)``, for the last steps: the data
        tokens from 0, so that noise is no class.
      loss_mask: bool, ``(b, n_data)``, true everywhere.

    Splits: endless, and disjoint because each split, seed and index has its own random
    stream. Nothing is downloaded.

    The published setting is the default: 4,096 steps, 16 tokens and 16 data tokens, for
    2 layers of 64 channels, 400,000 steps of 64 rows at the learning rate 1e-4. A
    reduced one is ``SelectiveCopying(length=36, n_data=4)``; test it at longer rows
    too, where there is more noise.

    Raises:
      ValueError: A number is not positive, ``vocabulary`` is below 4, or ``length``
        below ``2 n_data``.

    Example:
      >>> task = SelectiveCopying(length=9, n_data=2)
      >>> batch = task.batch("train", 0, batch_size=1, seed=0)
      >>> print(batch.inputs[0], batch.targets[0])
      [ 0  0 11  0  0 12  0 15 15] [10 11]

    Note:
      The paper's code is not published. Noise and marker among the 16 tokens, so that
      there are 14 classes, are as in the generator of S4's repository; that 4,096 steps
      include the markers is a choice.

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023, table 1 and appendix E.1
    """

    stream = "selective_copying"

    length: PositiveInt = 4096
    vocabulary: Annotated[int, Interval(ge=4, lt=2**31)] = 16
    n_data: PositiveInt = 16

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_length(2 * self.n_data, "a step for each data token and marker")

    @property
    @override
    def spec(self) -> base.TaskSpec:
        """A class at each marker."""
        return tokens.spec_of_tokens(
            length=self.length,
            vocabulary=self.vocabulary,
            n_classes=self.vocabulary - 2,
            l_output=self.n_data,
        )

    @property
    @override
    def chance(self) -> float:
        """Accuracy of any data token, ``1 / (vocabulary - 2)``."""
        return 1 / (self.vocabulary - 2)

    @override
    def draw(self, rng: np.random.Generator, size: int) -> base.Batch:
        n = self.n_data
        shape = size, n
        positions = sequence.draw_positions(rng, (size, self.length - n), n)
        targets = rng.integers(self.vocabulary - 2, size=shape, dtype=np.int32)
        inputs = np.zeros((size, self.length), np.int32)
        np.put_along_axis(inputs, positions, targets + 1, axis=1)
        inputs[:, -n:] = self.vocabulary - 1
        return base.Batch(inputs, targets, loss_mask=np.ones(shape, bool))
