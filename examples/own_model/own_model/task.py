"""LastMarked: the value at the last marked step."""

import dataclasses

import numpy as np

from ssm_jax.fields import Fraction, PositiveInt, check_fields
from ssm_jax.tasks import Batch, TaskSpec
from ssm_jax.tasks.base import Split, check_request, check_split, generator


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastMarked:
    """Regression: noise with marks; the target is the value at the last mark.

    Attributes:
      length: Number of steps.
      density: Probability of a mark.

    Batch:
      inputs: float32, ``(b, length, 2)``: the noise, and 1 at marks.
      targets: float32, ``(b, length, 1)``; 0 before the first mark.
    """

    length: PositiveInt = 64
    density: Fraction = 0.1

    def __post_init__(self):
        check_fields(self)

    @property
    def spec(self) -> TaskSpec:
        """Two features per step, and one target value at each."""
        return TaskSpec(
            length=self.length,
            inputs="vector",
            d_input=2,
            targets="regression",
            d_output=1,
            l_output=self.length,
        )

    def n_examples(self, split: Split) -> None:
        """Returns None: every split is endless."""
        check_split(split)

    def batch(self, split: Split, index: int, batch_size: int, seed: int) -> Batch:
        """Returns batch ``index``, a function of the arguments alone."""
        check_request(split, index, batch_size, seed)
        rng = generator("last_marked", split, seed, index)
        shape = (batch_size, self.length)
        noise = rng.standard_normal(shape).astype(np.float32)
        marked = rng.random(shape) < self.density
        # The step of the last mark so far; -1 before the first.
        last = np.maximum.accumulate(np.where(marked, np.arange(self.length), -1), 1)
        noise_at_mark = np.take_along_axis(noise, np.maximum(last, 0), 1)
        targets = np.where(last < 0, 0, noise_at_mark)[..., None]
        inputs = np.stack([noise, marked], -1).astype(np.float32)
        return Batch(inputs, targets.astype(np.float32), np.ones(shape, bool))
