"""Forecasts by linear maps of the window, fitted in closed form.

A linear map from the window to the horizon, shrunk by ridge regression, is a strong
forecast of many series, and takes a second to fit. What it leaves open, whether the
level of the window is subtracted, how many lags are read, and how much is shrunk, is
chosen by the errors on windows that follow those that it is fitted to.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

Level = Literal["train", "last value", "window"]
_RIDGE_LEVELS: tuple[Level, ...] = ("train", "last value")

_ALPHAS = tuple(10.0**k for k in range(-3, 8))
FITTED, SCORED = 20_000, 5_000
"""Windows of the train and of the validation split; more would change little."""

_LAGS = 512  # Features of the target; of a longer window the older steps are averaged.
_MEMBERS = 3
_RECENT = 3  # Steps of the other columns.
_COLUMNS = 256  # Of other columns; more would take longer than a second.
_KNOWN = 512  # Values of known columns in all steps that are predicted, likewise.
# A walk has no better forecast than its last value, but a fitted map has errors.
_MARGIN = 0.02
_SMALLEST = 0.3


class Windows(NamedTuple):
    """What linear maps read, of ``n`` windows.

    Attributes:
      target: The target in each step, ``(n, window)``, with mean 0 and standard
        deviation 1 in the train split of its series.
      others: The other columns in the last steps, ``(n, c)``, normalised likewise.
      phases: Sines and cosines of the time of the last step, ``(n, p)``.
      known: Columns that are known in the steps that are predicted, ``(n, k)``.
    """

    target: np.ndarray
    others: np.ndarray
    phases: np.ndarray
    known: np.ndarray


# Compared by identity: arrays have no single truth value.
@dataclasses.dataclass(frozen=True, eq=False)
class LinearMap:
    """A linear map from a window to the values that follow it.

    Attributes:
      level: What is subtracted from the target of the window and added to the forecast:
        nothing, which is the mean of the train split; the last value; or the mean of
        the window, whose standard deviation then scales the rest, too.
      lags: Number of last steps of the target that are read.
      phases: Whether the time of the last step is read.
      others: Whether the other columns are read.
      known: Whether the columns are read that are known in the future.
      alpha: The penalty of ridge regression.
      coefficients: ``(p, horizon)``.
      intercept: ``(horizon,)``.
    """

    level: Level
    lags: int
    phases: bool
    others: bool
    known: bool = False
    alpha: float = 0.0
    coefficients: np.ndarray = dataclasses.field(
        default_factory=lambda: np.empty((0, 0)), repr=False
    )
    intercept: np.ndarray = dataclasses.field(
        default_factory=lambda: np.empty(0), repr=False
    )

    def __call__(self, windows: Windows) -> np.ndarray:
        """Returns the forecasts, ``(n, horizon)``, normalised as the target is."""
        level, scale, features = self._features(windows)
        return level + features @ self.coefficients + scale * self.intercept

    @property
    def horizon(self) -> int:
        """Number of values that are predicted."""
        return len(self.intercept)

    def fit(
        self, windows: Windows, targets: np.ndarray, alphas: Iterable[float]
    ) -> list["LinearMap"]:
        """Returns the maps that ridge regression fits.

        Args:
          windows: The windows.
          targets: The values that follow them, ``(n, horizon)``.
          alphas: The penalties.
        """
        level, scale, features = self._features(windows)
        targets = targets - level
        # The intercept is not penalised: the rest is fitted to what it leaves.
        square = np.sum(scale**2)
        means = (scale * features).sum(0) / square, (scale * targets).sum(0) / square
        features, targets = features - scale * means[0], targets - scale * means[1]
        values, vectors = np.linalg.eigh(features.T @ features)
        rotated = vectors.T @ (features.T @ targets)
        maps = []
        for alpha in alphas:
            # Rounding makes eigenvalues of zero negative.
            inverse = 1 / (np.maximum(values, 0) + alpha)
            coefficients = vectors @ (inverse[:, None] * rotated)
            intercept = means[1] - means[0] @ coefficients
            maps.append(
                dataclasses.replace(
                    self, alpha=alpha, coefficients=coefficients, intercept=intercept
                )
            )
        return maps

    def _features(self, windows):
        """The level and the scale of each window, ``(n, 1)``, and the features."""
        target = windows.target
        # Of the whole window, whatever the number of lags.
        level = scale = np.ones((len(target), 1))
        if self.level == "train":
            level = np.zeros((len(target), 1))
        elif self.level == "last value":
            level = target[:, -1:]
        else:
            level = target.mean(1, keepdims=True)
            scale = deviation(target)
        lags = _averaged(target[:, -self.lags :]) - level
        further = [windows.phases] * self.phases + [windows.others] * self.others
        further += [windows.known] * self.known
        return level, scale, np.hstack([lags, *(scale * x for x in further)])


@dataclasses.dataclass(frozen=True)
class LinearForecast:
    """The mean of linear maps, each fitted by ridge regression.

    Attributes:
      members: The maps. None of them means the last value of the window.
      horizon: Number of values to predict.
    """

    members: tuple[LinearMap, ...]
    horizon: int

    def __call__(self, windows: Windows) -> np.ndarray:
        """Returns the forecasts, ``(n, horizon)``, normalised as the target is."""
        if not self.members:
            return np.repeat(windows.target[:, -1:], self.horizon, 1)
        return np.mean([member(windows) for member in self.members], 0)

    def refit(self, examples: "Examples") -> "LinearForecast":
        """Returns the same maps with coefficients of other examples."""
        members = (m.fit(*examples, [m.alpha])[0] for m in self.members)
        return LinearForecast(tuple(members), self.horizon)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the maps as arrays by name."""
        arrays = {"horizon": np.array(self.horizon)}
        for index, member in enumerate(self.members):
            for field in dataclasses.fields(member):
                arrays[f"{index}/{field.name}"] = np.array(getattr(member, field.name))
        return arrays

    def to_json(self) -> list[dict[str, Any]]:
        """Describes the maps in values of JSON, for an export."""
        return [
            {
                key: value.tolist() if isinstance(value, np.ndarray) else value
                for key, value in vars(member).items()
            }
            for member in self.members
        ]

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> "LinearForecast":
        """Returns the maps that `arrays` describes."""
        members: list[LinearMap] = []
        while f"{(index := len(members))}/level" in arrays:
            values: dict[str, Any] = {}
            for field in dataclasses.fields(LinearMap):
                # Statistics of earlier versions have no `known`.
                if (value := arrays.get(f"{index}/{field.name}")) is not None:
                    values[field.name] = value if value.ndim else value.item()
            members.append(LinearMap(**values))
        return cls(tuple(members), int(arrays["horizon"]))


class Examples(NamedTuple):
    """Windows and the values that follow them.

    Attributes:
      windows: ``n`` windows.
      targets: ``(n, horizon)``, normalised as the target of the windows is.
    """

    windows: Windows
    targets: np.ndarray


class Fold(NamedTuple):
    """Examples that maps are fitted to, and later ones that they are chosen by."""

    fitted: Examples
    held_out: Examples


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A choice of level, lags and columns, with its best penalty.

    Attributes:
      maps: The map that is fitted in each fold.
      error: The sum of absolute errors on what is held out in all folds.
    """

    maps: tuple[LinearMap, ...]
    error: float

    @property
    def map(self) -> LinearMap:
        """The map of the last fold, which has the most windows."""
        return self.maps[-1]


def candidates(
    folds: Sequence[Fold], lags: Iterable[int], *, ridge_alone: bool = False
) -> list[Candidate]:
    """Fits linear maps and measures their errors on later windows.

    Args:
      folds: Choices are made by the errors of all together, which depend less on the
        weeks that happen to be held out than those of one.
      lags: Numbers of lags that are tried.
      ridge_alone: Whether only those are tried that `ridge` chooses among.

    Returns:
      The candidates, the best first.
    """
    windows = folds[-1].fitted.windows

    def reads(columns):
        """Whether columns are read: both are tried, if there are any."""
        return (False, True) if columns.shape[1] and not ridge_alone else (False,)

    choices = itertools.product(
        _RIDGE_LEVELS if ridge_alone else get_args(Level),
        sorted(set(lags)),
        reads(windows.phases),
        (False,),
        reads(windows.known),
    )
    found = [_candidate(folds, LinearMap(*choice)) for choice in choices]
    found.sort(key=lambda candidate: candidate.error)
    if True in reads(windows.others):
        # Only for the best, as further columns cost the most.
        for best in found[:_MEMBERS]:
            mixed = dataclasses.replace(best.map, others=True)
            found.append(_candidate(folds, mixed))
        found.sort(key=lambda candidate: candidate.error)
    return found


def ridge(ordered: Sequence[Candidate]) -> LinearForecast:
    """Returns the best map that reads nothing but lags, as a baseline.

    Its level is that of the train split or the last value.

    Args:
      ordered: The result of `candidates`.
    """
    best = next(
        candidate.map
        for candidate in ordered
        if candidate.map.level in _RIDGE_LEVELS
        and not (candidate.map.phases or candidate.map.others or candidate.map.known)
    )
    return LinearForecast((best,), best.horizon)


def mean_of_best(ordered: Sequence[Candidate], folds: Sequence[Fold]) -> LinearForecast:
    """Returns the mean of the three best maps, or the last value of the window.

    It is the last value if its error is at most 2 % larger.

    Args:
      ordered: The result of `candidates`.
      folds: The folds that they were measured on.
    """
    best = [candidate.maps for candidate in ordered[:_MEMBERS]]
    horizon = ordered[0].map.horizon
    last_value = LinearForecast((), horizon)
    forecasts = [LinearForecast(maps, horizon) for maps in zip(*best, strict=True)]
    if _error(folds, [last_value] * len(folds)) <= (1 + _MARGIN) * _error(
        folds, forecasts
    ):
        return last_value
    return forecasts[-1]


def _candidate(folds, choice):
    """A choice with the penalty whose error is the least."""
    maps = [choice.fit(*fold.fitted, _ALPHAS) for fold in folds]
    errors = [_error(folds, of_alpha) for of_alpha in zip(*maps, strict=True)]
    best = int(np.argmin(errors))
    return Candidate(tuple(of_fold[best] for of_fold in maps), errors[best])


def _error(folds, forecasts):
    """The sum of absolute errors of a forecast for each fold on what it holds out."""
    return sum(
        float(np.abs(forecast(held_out.windows) - held_out.targets).sum())
        for (_, held_out), forecast in zip(folds, forecasts, strict=True)
    )


def recent(others: np.ndarray) -> np.ndarray:
    """Returns the last steps of the other columns, as `Windows` has them.

    Args:
      others: ``(n, window, c)``.
    """
    last = others[:, -_RECENT:, :_COLUMNS]
    return last.reshape(len(others), -1)


def ahead(known: np.ndarray, horizon: int) -> np.ndarray:
    """Returns the columns that are known in the future, as `Windows` has them.

    Args:
      known: In each step the values ``horizon`` steps later, ``(n, window, c)``.
      horizon: Number of values to predict.
    """
    last = known[:, -horizon:, : max(1, _KNOWN // horizon)]
    return last.reshape(len(known), -1)


def _averaged(target):
    """Steps of the target, of which the older ones are averaged if they are many."""
    n_steps = target.shape[1]
    if n_steps <= _LAGS:
        return target
    half = _LAGS // 2
    edges = np.linspace(0, n_steps - half, half + 1).astype(int)
    means = np.add.reduceat(target[:, : n_steps - half], edges[:-1], 1)
    return np.hstack([means / np.diff(edges), target[:, -half:]])


def deviation(windows: np.ndarray) -> np.ndarray:
    """Returns the standard deviation of windows, by which they may be divided.

    Args:
      windows: Values of standard deviation 1 in the train split, ``(n, window, ...)``.

    Returns:
      ``(n, 1, ...)``, at least 0.3: a window that is nearly constant shows rounding.
    """
    return np.maximum(windows.std(1, keepdims=True), _SMALLEST)


def sample(rows: np.ndarray, limit: int) -> np.ndarray:
    """Returns at most ``limit`` of some rows, the same at each call."""
    # Not evenly spaced, which might be the same hour of each day.
    chosen = np.random.default_rng(0).permutation(len(rows))[:limit]
    return rows[np.sort(chosen)]
