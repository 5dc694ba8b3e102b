"""Mixture: random mixtures of five fixed curves, sines or polynomials."""

import dataclasses
import functools
from typing import Literal

import numpy as np
from typing_extensions import override

from ssm_jax.tasks import base, generated
from ssm_jax.tasks.synthetic import sequence

N_COMPONENTS = 5
N_FREQUENCIES = 15

Target = Literal["curve", "next"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixture(generated.GeneratedTask):
    r"""Regression: a curve that is a random mixture of five fixed curves.

    .. math::
      x(s) = b + \sum_{i=1}^{5} \delta_i c_i(s), \qquad s = 2 t / L - 1

    where ``b`` and ``delta`` are drawn for each sample from a normal distribution with
    standard deviation ``std``, and the components ``c_i`` once for all samples: sums of
    15 sines of frequencies 0.1 to 2.9, or polynomials, with amplitudes (coefficients)
    and phases uniform in [-1, 1].

    What the task asks of a model: to represent a whole smooth curve in a small state
    until the last step, as Fourier features can and decaying states cannot.

    Attributes:
      degree: Degree of the polynomials, which have no constant term. None means sines.
      std: Standard deviation of ``b`` and ``delta``. 0.1 is that of the authors' code,
        which produced the paper's figures. The paper's algorithms state N(0, .1); read
        as a variance this is ``std = sqrt(0.1)``, with squared errors ten times as
        large.
      target: ``"curve"``: all values except the first, predicted after the last step,
        as in the authors' code. ``"next"``: the next value, at each step, as in the
        paper's text.
      length: Number of values of a sample, ``L``.
      n_train: Number of train samples.
      n_validation: Number of validation samples.
      n_test: Number of test samples.

    Batch:
      inputs: float32, ``(b, length, 1)``; for ``"next"`` ``(b, length - 1, 1)``,
        without the last value.
      targets: float32, ``(b, length - 1)``; for ``"next"`` ``(b, length - 1, 1)``.
      loss_mask: bool, ``(b,)``; for ``"next"`` ``(b, length - 1)``; false in the rows
        that pad the last batch.

    Splits: 3,200 train and 800 test samples, as published, and 400 validation samples,
    which the authors do not have. They are disjoint because each split has its own
    random stream; the components are the same. Nothing is downloaded.

    Raises:
      ValueError: ``length`` is less than 2, or ``degree``, ``std`` or a number of
        samples is not positive.

    Example:
      >>> batch = Mixture(length=6).batch("train", 0, batch_size=2, seed=0)
      >>> batch.inputs.shape, batch.targets.shape
      ((2, 6, 1), (2, 5))

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, section 6.1,
      algorithms 1 and 2. One phase per component and frequency and one offset per
      sample are as in the authors' code
    """

    degree: int | None = None
    std: float = 0.1
    target: Target = "curve"
    length: int = 176
    n_train: int = 3200
    n_validation: int = 400
    n_test: int = 800

    @override
    def __post_init__(self) -> None:
        sequence.check_length(self.length - 1)
        super().__post_init__()
        if self.degree is not None and self.degree < 1:
            raise ValueError(
                f"`degree` must be positive or None, got {self.degree}; the published "
                "values are 5, 10 and 15."
            )
        if not 0 < self.std < np.inf:
            raise ValueError(
                f"`std` must be positive and finite, got {self.std}; the authors' code "
                "uses 0.1."
            )

    @property
    def spec(self) -> base.TaskSpec:
        """One value per step; targets per sequence or per step."""
        whole = self.target == "curve"
        return base.TaskSpec(
            length=self.length if whole else self.length - 1,
            inputs="vector",
            d_input=1,
            targets="regression",
            d_output=self.length - 1 if whole else 1,
            l_output=None if whole else self.length - 1,
        )

    @override
    def select(
        self, split: base.Split, indices: np.ndarray, loss_mask: np.ndarray
    ) -> base.Batch:
        n = self.n_examples(split)
        # Indexing by an array copies: the caller may modify the batch, not the cache.
        x = _samples(self.degree, self.std, self.length, split, n)[indices]
        if self.target == "curve":
            return base.Batch(x[..., None], x[:, 1:], loss_mask)
        # `broadcast_to` returns a read-only view; the batch is the caller's to modify.
        loss_mask = np.broadcast_to(loss_mask[:, None], x[:, 1:].shape)
        return base.Batch(x[:, :-1, None], x[:, 1:, None], np.array(loss_mask))


@functools.cache
def _samples(degree, std, length, split, n):
    # Seed 0 for every run: the samples are a fixed set.
    rng = base.generator("mixture", split, 0, 0)
    offset = std * rng.normal(size=(n, 1))
    weights = std * rng.normal(size=(n, N_COMPONENTS))
    return (offset + weights @ _components(degree, length)).astype(np.float32)


def _components(degree, length):
    """Returns the five curves, ``(5, length)``, the same for every split."""
    # The seed of the authors' code; it is not that of a run.
    rng = np.random.default_rng(1000)
    # (t - L / 2) / (L / 2), as in the authors' code: 1 is excluded.
    s = 2 * np.arange(length) / length - 1
    if degree is not None:
        # No constant term, as the offset `b` is one.
        terms = s ** np.arange(1, degree + 1)[:, None]
        return rng.uniform(-1, 1, (N_COMPONENTS, degree)) @ terms
    # 0.1 to 2.9, as the upper bound is exclusive; shared by the five components.
    frequency = rng.integers(1, 30, N_FREQUENCIES) * 0.1
    # A phase per component and frequency, as in the code; the paper has one per
    # frequency.
    amplitude, phase = rng.uniform(-1, 1, (2, N_COMPONENTS, N_FREQUENCIES, 1))
    waves = np.sin(2 * np.pi * (frequency[:, None] * s + phase))
    return np.sum(amplitude * waves, 1)
