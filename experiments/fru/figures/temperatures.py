r"""Temperatures of Beijing approximated by few waves; figure 2.

    python -m experiments.fru.figures.temperatures --output=temperatures.png \
        --data=PRSA_data_2010.1.1-2014.12.31.csv

``--data`` is the file of that name in the UCI repository's set `Beijing PM2.5
<https://archive.ics.uci.edu/dataset/381>`_ (licence CC BY 4.0), hourly; the figure
uses its first three years. A term is a wave of the discrete Fourier transform with its
phase, and the ``n`` terms with the largest amplitudes are kept: those of 5 include the
mean, the year and the day.

Source: Zhang, Lin, Song and Dhillon, arXiv 1803.06585, 2018, section 4.
"""

import csv
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.figures import run
from ssm_jax.plots.style import BLUE, GREY, PAGE, figure, plain
from ssm_jax.types import Array, Float

TERMS = (5, 20, 60, 100)
YEARS = (2010, 2011, 2012)


def temperatures(path: str) -> Float[np.ndarray, " t"]:
    """Reads the hourly temperatures of three years in degrees Celsius.

    Args:
      path: The file.

    Returns:
      ``(26304,)`` if the file is complete.

    Raises:
      ValueError: A column is missing, or a value is not a number.
    """
    series = []
    with Path(path).open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                if int(row["year"]) in YEARS:
                    series.append(float(row["TEMP"]))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    "`--data` must have columns year and TEMP with a number in each "
                    f"line, got {row.get('year')!r} and {row.get('TEMP')!r} in line "
                    f"{number} of {path}; it is UCI's file as downloaded."
                ) from error
    if not series:
        raise ValueError(
            f"`--data` must hold hours of {YEARS[0]} to {YEARS[-1]}, got none in "
            f"{path}; it is UCI's file as downloaded."
        )
    return np.array(series)


def sparse(values: Float[Array, " t"], n: int) -> Float[np.ndarray, " t"]:
    """Returns the sum of the ``n`` waves of a series with the largest amplitudes.

    The mean counts as one wave.

    Example:
      >>> t = np.arange(8)
      >>> series = 3 + 2 * np.cos(np.pi * t / 2) + 0.5 * np.cos(np.pi * t)
      >>> print(sparse(series, 2))
      [5. 3. 1. 3. 5. 3. 1. 3.]
    """
    spectrum = np.fft.rfft(values)
    amplitude = np.abs(spectrum)
    amplitude[1:] *= 2  # each stands for a pair,
    if len(values) % 2 == 0:
        amplitude[-1] /= 2  # but for the last one
    spectrum[np.argsort(amplitude)[:-n]] = 0
    return np.fft.irfft(spectrum, len(values))


def draw(data: str) -> Figure:
    """Plots the series and its approximations."""
    values = temperatures(data)
    days = np.arange(len(values)) / 24
    drawing = figure(PAGE, 3.8)
    for axes, n in zip(drawing.subplots(2, 2, sharey=True).flat, TERMS, strict=True):
        approximation = sparse(values, n)
        error = np.sqrt(np.mean(np.square(approximation - values)))
        axes.plot(days, values, color=GREY, linewidth=0.3)
        axes.plot(days, approximation, color=BLUE, linewidth=0.8)
        plain(axes, title=f"{n} waves, error {error:.1f} °C", x="day", y="°C")
    return drawing


if __name__ == "__main__":
    run(draw)
