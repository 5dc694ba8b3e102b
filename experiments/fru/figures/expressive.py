"""Approximation by few waves and by few decays; section 4 and figure 9.

    python -m experiments.fru.figures.expressive --output=expressive.png

The figure shows, and the tests check:

- Lemma 4.2: ``d + 1`` multiples of one low frequency, each with two coefficients,
  interpolate a polynomial of degree ``2 d + 1`` with arbitrarily small error. The
  coefficients grow without bound as the frequency decreases.
- Theorem 4.4: the sum of three decays with real weights changes its sign at most twice,
  and its mean error on the polynomial of figure 9 is at least `LEAST_MISSED` of the
  mean size of the polynomial.
- The theorem states this for any number of decays, which does not hold: the sum of
  ``k`` decays changes its sign up to ``k - 1`` times, sums of decays are dense in the
  continuous functions, and the error of fourteen of them is much smaller than that of
  three, with large weights. The error of fourteen waves is smaller still, with small
  weights.

Source: Zhang, Lin, Song and Dhillon, arXiv 1803.06585, 2018, section 4, appendix B.
"""

import math

import numpy as np
from matplotlib.figure import Figure

from experiments.figures import run
from ssm_jax.plots.style import BLUE, GREY, ORANGE, PAGE, PALETTE, SMALL, figure, plain
from ssm_jax.types import Array, Float

BETA = 9.9263
"""Length of the stretch of figure 9's polynomial, between two of its zeros."""

LEAST_MISSED = 0.0847 / 0.5727
"""Part of figure 9's polynomial that three decays miss at least, in the mean."""


def polynomial(part: Float[Array, " t"]) -> Float[np.ndarray, " t"]:
    """Figure 9: the Taylor polynomial of degree 9 of a sine, over its five zeros.

    Args:
      part: Time as a fraction of the interval, in [0, 1], ``(t,)``.
    """
    x = BETA * (np.asarray(part) - 0.5)
    power = 2 * np.arange(5) + 1
    factorial = np.array([math.factorial(p) for p in power], float)
    return x[:, None] ** power @ ((-1.0) ** np.arange(5) / factorial)


def interpolation(
    coefficients: Float[Array, " n"], frequency: float
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Weights of waves whose Taylor terms are those of a polynomial; claim 4.3.

    Args:
      coefficients: Of ``t**0, t**1, ...``, ``(2 m,)``.
      frequency: ``f``, periods per unit of time.

    Returns:
      ``(alpha, beta)``: weights of ``cos(2 pi f i t)`` and ``sin(2 pi f i t)``, ``i``
      from 1 to ``m``.

    Example:
      >>> alpha, beta = interpolation(np.array([1.0, 0.0]), frequency=0.1)
      >>> print(alpha, beta)
      [1.] [0.]
    """
    m = len(coefficients) // 2
    i, j = np.arange(1.0, m + 1), np.arange(m)
    sign = (-1.0) ** j
    weights = []
    for odd in (0, 1):
        power = 2 * j + odd
        factorial = np.array([math.factorial(p) for p in power], float)
        gamma = coefficients[odd::2] * sign * factorial
        gamma = gamma / (2 * np.pi * frequency) ** power
        weights.append(np.linalg.solve(i ** power[:, None], gamma))
    return weights[0], weights[1]


def waves(
    alpha: Float[Array, " m"],
    beta: Float[Array, " m"],
    frequency: float,
    t: Float[Array, " t"],
) -> Float[np.ndarray, " t"]:
    """The sum of the waves with the weights of `interpolation`, ``(t,)``."""
    angle = 2 * np.pi * frequency * np.outer(t, np.arange(1, len(alpha) + 1))
    return np.cos(angle) @ alpha + np.sin(angle) @ beta


def decays(n: int, part: Float[Array, " t"]) -> Float[np.ndarray, "t n"]:
    """Decays ``a**t`` over an interval, ``a`` in (0, 1): rates 1/4, 1, 9/4, 4, ...

    Args:
      n: Number of decays.
      part: Time as a fraction of the interval, ``(t,)``.
    """
    return np.exp(-np.outer(part, 0.25 * np.arange(1, n + 1) ** 2))


def harmonics(n: int, part: Float[Array, " t"]) -> Float[np.ndarray, "t n"]:
    """``n`` cosines and sines with multiples of half a period per interval."""
    angle = np.pi * np.outer(part - 0.5, np.arange(1, n // 2 + 1))
    return np.concatenate([np.cos(angle), np.sin(angle)], 1)


def fit(terms: Float[Array, "t n"], values: Float[Array, " t"]) -> tuple[float, float]:
    """Fits weights by least squares.

    Returns:
      ``(missed, largest)``: the mean absolute error divided by the mean absolute value,
      and the maximum absolute weight.
    """
    weights = np.linalg.lstsq(terms, values, rcond=1e-15)[0]
    missed = np.mean(np.abs(terms @ weights - values)) / np.mean(np.abs(values))
    return float(missed), float(np.abs(weights).max())


def draw() -> Figure:
    """Plots the interpolation, the fits and the magnitudes of their weights."""
    drawing = figure(PAGE, 2.3)
    left, middle, right = drawing.subplots(1, 3)
    t = np.linspace(0, 1, 400)
    frequencies = np.geomspace(2e-3, 0.2, 20)
    for degree, colour in zip((1, 3, 5), PALETTE, strict=False):
        coefficients = np.ones(degree + 1)
        exact = np.polyval(coefficients, t)
        errors = [
            np.max(np.abs(waves(*interpolation(coefficients, f), f, t) - exact))
            for f in frequencies
        ]
        left.loglog(frequencies, errors, color=colour, label=f"degree {degree}")
    plain(left, title="interpolated polynomials", x="f", y="maximum error")
    counts = np.arange(2, 15, 2)
    exact = polynomial(t)
    for name, terms, colour in (("decays", decays, ORANGE), ("waves", harmonics, BLUE)):
        missed, largest = zip(
            *(fit(terms(int(n), t), exact) for n in counts), strict=True
        )
        line = {"color": colour, "marker": "o", "markersize": 4, "label": name}
        middle.semilogy(counts, missed, **line)
        right.semilogy(counts, largest, **line)
    middle.axhline(LEAST_MISSED, color=GREY, linestyle="--", linewidth=1)
    middle.text(counts[-1], LEAST_MISSED * 1.1, "14.8 %", ha="right", fontsize=SMALL)
    plain(middle, title="figure 9's polynomial, part missed", x="terms")
    plain(right, title="largest weight", x="terms")
    for axes in (left, middle):
        axes.legend(fontsize=SMALL, frameon=False)
    return drawing


if __name__ == "__main__":
    run(draw)
