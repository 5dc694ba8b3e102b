"""Pages of ``experiments/results``: what a paper consists of, rendered from records.

A `Paper` is a list of parts, kept as data in ``experiments/PAPER/tables.py``: `Table`,
`Grid`, `Lengths`, `Curves`, `Gradients`, `Forecast` and `Benchmark` say which records
they show, and their method ``markdown`` shows them. Conclusions are prose: the section
of that name of ``docs/papers/PAPER.md``, with which the page begins.
"""

import itertools
import json
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from experiments.records import BENCHMARKS, experiment_config, machine
from ssm_jax.cli import tables
from ssm_jax.cli.summary import (
    ERRORS,
    Difference,
    Footnotes,
    Row,
    Summary,
    common_choices,
    distinct_choices,
    format_result,
    name_of,
    number,
    paired_difference,
    sort_key,
    summaries,
)
from ssm_jax.config import differences

_VERDICTS = {"unknown": "no standard error"}


class Part(Protocol):
    """A part of a page."""

    @property
    def title(self) -> str:
        """The title of its section."""
        ...

    def shows(self, name: str) -> bool:
        """Returns whether results of an experiment are among what it shows."""
        ...

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns what it shows of the records of a paper; empty without any."""
        ...


class PartWithoutRuns:
    """A part that shows no results of experiments."""

    def shows(self, name: str) -> bool:
        """Returns False: no results of experiments are shown."""
        del name
        return False


class _PartOfRuns:
    experiments: str

    def shows(self, name: str) -> bool:
        """Returns whether the expression matches the name of an experiment."""
        return _matches([self.experiments], name)

    def _values(self, rows: Sequence[Row], field: str) -> Iterator[tuple[str, list]]:
        """Yields experiments that are shown, with a field of the runs that have it."""
        for result in summaries(rows):
            values = [row[field] for row in result.rows if field in row]
            if self.shows(result.name) and values:
                yield result.name, values


class Paper(NamedTuple):
    """A paper and what is shown of it.

    Attributes:
      title: Authors, year and title.
      url: URL of the paper; empty if the page is of none.
      parts: The sections of the page.
    """

    title: str
    url: str
    parts: tuple[Part, ...]

    @property
    def tables(self) -> tuple["Table", ...]:
        """The tables and figures of the paper that runs answer."""
        return tuple(part for part in self.parts if isinstance(part, Table))


def cells(experiment: str, **choices: tuple[str, ...]) -> tuple[str, ...]:
    """Returns all combinations of choices as names of experiments.

    Args:
      experiment: The experiment, ``PAPER/TASK``.
      **choices: Values by the name of the choice; "" leaves a name out.

    Example:
      >>> cells("fru/imdb", model=("fru", "sru"), size=("", "small"))[:2]
      ('fru/imdb:model=fru', 'fru/imdb:model=fru,size=small')
    """
    pairs = [
        [f"{name}={value}" if value else "" for value in values]
        for name, values in choices.items()
    ]
    variants = (
        ",".join(filter(None, combination)) for combination in itertools.product(*pairs)
    )
    return tuple(f"{experiment}:{variant}".rstrip(":") for variant in variants)


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper: its runs beside the published results.

    Attributes:
      name: Its name in the paper, as ``"Table 1"`` or ``"Figures 3 and 4"``.
      subject: What it is about.
      cells: Experiments at the published setting, as in ``--config`` without
        ``experiments/`` and ``.py``.
      reduced: Regular expressions of experiments of other sizes with the same question.
      references: Regular expressions of those of them that others are compared with.
      note: What a reader of the results must know; shown below them.
    """

    name: str
    subject: str
    cells: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    note: str = ""

    @property
    def title(self) -> str:
        """The title of its section."""
        return f"{self.name}: {self.subject}"

    def shows(self, name: str) -> bool:
        """Returns whether an experiment is a cell, or a reduced one."""
        return name in self.cells or _matches(self.reduced, name)

    def published_results(self, results: Sequence[Summary]) -> list[Summary]:
        """The results at the published setting."""
        return [result for result in results if result.name in self.cells]

    def reduced_results(self, results: Sequence[Summary]) -> list[Summary]:
        """The results of other sizes."""
        return [result for result in results if _matches(self.reduced, result.name)]

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns tables of the published and of reduced settings, and comparisons."""
        results = summaries(rows)
        published, reduced = (
            self.published_results(results),
            self.reduced_results(results),
        )
        parts = []
        if published:
            parts.append(_result_table(published, results, theirs=True))
        if missing := [cell for cell in self.cells if cell not in _names(published)]:
            parts.append(_missing_table(missing))
        if reduced:
            parts += [
                _REDUCED + self._reductions(reduced),
                _result_table(reduced, results),
            ]
        if self.note and (published or reduced):
            parts.append(textwrap.fill(self.note, 88) + "\n")
        if pairs := self.pairs([*published, *reduced]):
            parts.append(_comparison_table(pairs))
        return "\n".join(parts)

    def pairs(self, results: Sequence[Summary]) -> list[tuple[Summary, Summary]]:
        """Pairs of a result and its reference.

        If a result has several references of its kind, it is compared with those that
        differ from it in the fewest choices of the variant.
        """
        references = [
            candidate
            for candidate in results
            if _matches(self.references, candidate.name)
        ]
        pairs = []
        for result in results:
            candidates = [
                candidate for candidate in references if candidate.kind == result.kind
            ]
            n_changes = [
                len({*candidate.choices} ^ {*result.choices})
                for candidate in candidates
            ]
            if result not in references:
                pairs += [
                    (result, reference)
                    for reference, n in zip(candidates, n_changes, strict=True)
                    if n == min(n_changes)
                ]
        return sorted(pairs, key=lambda pair: references.index(pair[1]))

    def _reductions(self, reduced: Sequence[Summary]) -> str:
        """What the reduced settings change of published ones, read from the configs."""
        changes: dict[str, dict[str, list[tuple[str, str]]]] = {}
        for name in _names(reduced):
            published = _SIZES.sub("", name).rstrip(",:")
            if published not in self.cells:
                continue
            sizes = ",".join(size[0].rstrip(",") for size in _SIZES.finditer(name))
            of_setting = changes.setdefault(f"{name.partition(':')[0]}:{sizes}", {})
            for line in differences(
                experiment_config(published), experiment_config(name)
            ):
                path, values = line.split(": ", 1)
                old, _, new = values.partition(" -> ")
                if new and _rank(path) < len(_FIELDS) and len(values) < _LONGEST:
                    of_setting.setdefault(path, []).append((old, new))
        sentences = {
            setting: "; ".join(
                f"`{path}` {_format_alternatives(new for _, new in pairs)} "
                f"(at full size {_format_alternatives(old for old, _ in pairs)})"
                for path, pairs in sorted(
                    fields.items(), key=lambda item: _rank(item[0])
                )
            )
            for setting, fields in changes.items()
            if fields
        }
        if not sentences:
            return ""
        if len(sentences) == 1:
            return _fill(f"They have {next(iter(sentences.values()))}.")
        lines = (
            _fill(f"- `{setting}` has {sentence}.", indent="  ")
            for setting, sentence in sentences.items()
        )
        return "\n" + "".join(lines)


_REDUCED = """\
Reduced settings, with smaller models, less data, fewer steps or values of ours for what
the paper does not state: the results are not comparable with those of the paper.
"""
_SIZES = re.compile(
    r"(?<=[:,])((size|rows|learning_rate|state_penalty)=[^,]+|pixels=(32|64)),?"
)
# Fields that say how much is trained and evaluated, in the order of the sentence.
_FIELDS = (
    "task", "model.encoder.d_model", "model.n_layers",
    "d_state", "n_frequencies", "frequencies", "horizon", "d_hidden",
    "training.batch_size", "training.steps",
)  # fmt: skip
_LONGEST = 80  # Characters of both values.


def _fill(text: str, indent: str = "") -> str:
    """Text in lines of a page, of which those after the first are indented."""
    lines = textwrap.fill(text, 88, break_on_hyphens=False, subsequent_indent=indent)
    return lines + "\n"


def _rank(path: str) -> int:
    ranks = (
        rank
        for rank, field in enumerate(_FIELDS)
        if path.startswith(f"{field}.") or f".{path}".endswith(f".{field}")
    )
    return next(ranks, len(_FIELDS))


def _format_alternatives(values: Iterable[str]) -> str:
    return " or ".join(sorted(dict.fromkeys(values), key=lambda v: (len(v), v)))


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _names(results: Iterable[Summary]) -> list[str]:
    return [result.name for result in results]


def _result_table(
    results: Sequence[Summary], others: Sequence[Summary], *, theirs=False
):
    """A table of results, with notes."""
    footnotes = Footnotes()
    head = ["experiment", "metric", "ours", "theirs", "error", "baseline", "seeds"]
    lines = []
    for result in results:
        marks = footnotes.mark(result.notes(others))
        published = (
            number(experiment_config(result.name).paper, ".4g") if theirs else ""
        )
        lines.append(
            [
                result.name,
                result.metric,
                f"{format_result(result)} {marks}".rstrip(),
                published,
                number(result.error),
                number(result.baseline),
                str(len(result.rows)),
            ]
        )
    columns = [i for i, name in enumerate(head) if theirs or name != "theirs"]
    head, *lines = [[line[i] for i in columns] for line in [head, *lines]]
    return "\n".join([_experiment_table(head, lines), *footnotes.lines()])


def _missing_table(names: Sequence[str]) -> str:
    """The published settings that were not run, which a click shows."""
    lines = [(name, number(experiment_config(name).paper, ".4g")) for name in names]
    head: tuple[str, ...] = ("experiment", "theirs")
    if not any(theirs for _, theirs in lines):
        head, lines = head[:1], [line[:1] for line in lines]
    table = _experiment_table(head, lines)
    return _details(f"Not run: {len(names)}", table)


def _experiment_table(
    head: Sequence[str], lines: Sequence[Sequence[str]], columns: Sequence[int] = (0,)
) -> str:
    """A table of experiments, which says once what their names have in common.

    Args:
      head: The head of each column.
      lines: The cells.
      columns: Those that are names of experiments.

    Returns:
      What the names have in common, and the table with the rest of each.
    """
    names = [line[column] for line in lines for column in columns]
    common = common_choices(names)
    cells = [
        [
            distinct_choices(cell, common) if i in columns else cell
            for i, cell in enumerate(line)
        ]
        for line in lines
    ]
    table = tables.markdown([head, *cells])
    return f"Experiments are `{common}` with:\n\n{table}" if common else table


def _details(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n</details>\n"


def _comparison_table(pairs: Sequence[tuple[Summary, Summary]]) -> str:
    head = ("experiment", "ours", "reference", "difference", "error", "seeds", "is")
    lines = [
        (
            result.name,
            format_result(result),
            reference.name,
            *_difference(result.difference(reference)),
        )
        for result, reference in pairs
    ]
    return _experiment_table(head, lines, columns=(0, 2))


def _difference(difference: Difference) -> tuple[str, ...]:
    """Cells: the mean, its error, the seeds and the verdict."""
    verdict = difference.verdict
    return (
        number(difference.mean, "+.4f"),
        number(difference.error),
        str(difference.n_seeds),
        _VERDICTS.get(verdict, verdict),
    )


@dataclass(frozen=True)
class Grid:
    """Results of models, a column each, on tasks, a row each.

    Attributes:
      title: The title of the section.
      text: What it shows.
      experiment: Name of an experiment, with ``{row}`` and ``{column}``.
      rows: What a name contains, by label.
      columns: The same.
      one_minus: Whether 1 less the result is shown, as the part of a variance.
      pictures: Paths of pictures below ``experiments/results``, by their text.
    """

    title: str
    text: str
    experiment: str
    rows: Mapping[str, Any]
    columns: Mapping[str, Any]
    one_minus: bool = False
    pictures: Mapping[str, str] | None = None

    def shows(self, name: str) -> bool:
        """Returns whether an experiment is in a row and a column."""
        return any(
            name == self.experiment.format(row=row, column=column)
            for row in self.rows.values()
            for column in self.columns.values()
        )

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns the table, with empty cells; empty without any record."""
        results = {result.name: result for result in summaries(rows)}
        if not any(map(self.shows, results)):
            return ""

        def cell(row, column):
            name = self.experiment.format(row=row, column=column)
            if name not in results:
                return ""
            if self.one_minus:
                return f"{1 - results[name].mean:.1e}"
            return format_result(results[name])

        lines = [
            (label, *(cell(row, column) for column in self.columns.values()))
            for label, row in self.rows.items()
        ]
        table = tables.markdown([("", *self.columns), *lines])
        return "\n".join([self.text, table, *_pictures(self.pictures or {})])


def _pictures(pictures: Mapping[str, str]) -> Iterator[str]:
    return (f"![{text}]({path})\n" for text, path in pictures.items())


@dataclass(frozen=True)
class Pictures(PartWithoutRuns):
    """Pictures that are drawn from records or runs.

    Attributes:
      title: The title of the section.
      text: What they show, and what draws them.
      pictures: As of `Grid`.
    """

    title: str
    text: str
    pictures: Mapping[str, str]

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns the pictures; no record is read."""
        del rows
        return "\n".join([self.text, *_pictures(self.pictures)])


@dataclass(frozen=True)
class Benchmark(PartWithoutRuns):
    """Rows of the record of a suite of ``benchmarks``.

    Attributes:
      title: The title of the section.
      text: What it shows; ``{machine}`` is where it was measured, and other fields are
        options of the record.
      record: Name of the file in ``experiments/benchmarks``.
      columns: What each column shows of a row, by its head.
      pictures: As of `Grid`.
    """

    title: str
    text: str
    record: str
    columns: Mapping[str, Callable[[Mapping[str, Any]], str]]
    pictures: Mapping[str, str] | None = None

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns the table; the records of runs are not read."""
        del rows
        record = json.loads((BENCHMARKS / self.record).read_text())
        lines = [
            [show(row) for show in self.columns.values()] for row in record["rows"]
        ]
        text = self.text.format(machine=machine(record), **record.get("options", {}))
        table = tables.markdown([[*self.columns], *lines])
        return "\n".join([text, table, *_pictures(self.pictures or {})])


@dataclass(frozen=True)
class Lengths(_PartOfRuns):
    """Losses of language models by the length of their windows.

    Attributes:
      title: The title of the section.
      experiments: Regular expression of the names of the runs.
      picture: Path of the picture below ``experiments/results``.
    """

    title: str
    experiments: str
    picture: str

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns the changes of the loss by length and by states, and perplexities."""
        rows = [row for row in rows if self.shows(name_of(row))]
        runs_by_name = {name_of(runs[0]): runs for runs in _measured_by_length(rows)}
        if not runs_by_name:
            return ""
        changes = [
            (
                name,
                *_difference(change_by_length(runs)),
                ", ".join(extensions(runs)),
            )
            for name, runs in runs_by_name.items()
        ]
        gains = []
        for name, runs in runs_by_name.items():
            zero = runs_by_name.get(name.replace("=carry", "=zero"), runs)
            if zero is not runs and _pairs(runs, zero):
                longest, trained = gain(runs, zero), cost(runs, zero)
                gains.append((name, *_difference(longest), *_difference(trained)[:2]))
        parts = [
            _LENGTHS,
            _experiment_table((*_CHANGE, "extends"), changes),
            *([_GAINS, _experiment_table(_GAINED, gains)] if gains else []),
            _PERPLEXITIES,
            tables.by_length(rows, most=3),
            f"![Perplexity by length: columns are models, rows evaluations]"
            f"({self.picture})\n",
        ]
        return "\n".join(parts)


_CHANGE = ("experiment", "nats", "error", "seeds", "is")
_GAINED = (*_CHANGE, "at trained length", "error")
_LENGTHS = """\
The change of the loss on the test split from windows of the trained length to the
longest ones, each from a zero state; `extends` is the classification of each seed:
beyond the trained length the loss decreases with each longer window (strong), never
increases (weak), or increases (none); a change counts if its 95 % interval over
documents excludes 0. Errors are over documents or over seeds, whichever is larger, and
of one seed over documents only: where seeds differ more than documents, each can be
strong and their mean change still `within`. Stale runs are excluded.
"""
_GAINS = """\
Runs trained and evaluated with carried states beside those trained and evaluated from
zero states: the loss of zero states at the longest windows less that of carried states;
then the loss after training with carried states less that after zero states, both on
windows of the trained length from zero states.
"""
_PERPLEXITIES = """\
Perplexity on windows of each length, measured by
`ssm-jax evaluate --mode=length_extension` on an equal share of each document of a
split; `docs/papers/data.md` has where the texts, `novels`, are from. Column `95 %` is
the confidence interval of the perplexity at the maximum length over documents
(Student's t). States are carried within spans of at least the maximum length and reset
between spans. Perplexities are those of the mean loss over seeds, per byte for
`size=small` and `size=tiny`.
"""


def change_by_length(runs: Sequence[Row]) -> Difference:
    """The loss at the longest windows less that at the trained length, in nats."""
    measured = [_losses(row, "zero") for row in runs]
    trained, longest = runs[0]["lengths"][0]["trained"], max(measured[0])
    return paired_difference(
        [_loss_differences(at[longest], at[trained]) for at in measured]
    )


def gain(carried: Sequence[Row], zero: Sequence[Row]) -> Difference:
    """The loss from zero states at the longest windows less that of carried states."""
    values = []
    for row, other in _pairs(carried, zero):
        # With carried states the loss is the same at every length.
        with_carry, from_zero = _losses(row, "carry"), _losses(other, "zero")
        values.append(
            _loss_differences(from_zero[max(from_zero)], with_carry[max(with_carry)])
        )
    return paired_difference(values)


def cost(carried: Sequence[Row], zero: Sequence[Row]) -> Difference:
    """The loss after training with carried states less that after zero states.

    Both are of windows of the trained length, from zero states.
    """
    values = []
    for row, other in _pairs(carried, zero):
        trained = row["lengths"][0]["trained"]
        values.append(
            _loss_differences(
                _losses(row, "zero")[trained], _losses(other, "zero")[trained]
            )
        )
    return paired_difference(values)


def extensions(runs: Sequence[Row]) -> list[str]:
    """How each seed extends, with windows from zero states: strong, weak or none."""
    # A split of one document has no interval that could classify it.
    longest = (max(_losses(row, "zero").items())[1] for row in runs)
    return [line["extends"] or "unknown" for line in longest]


def _measured_by_length(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The runs of each experiment, without stale ones and other lengths."""
    measured = [
        row
        for row in rows
        if not row.get("stale") and row["lengths"]
        if row["lengths"][0]["trained"] in _losses(row, "zero")
    ]
    ordered = sorted(measured, key=lambda row: (sort_key(row), row["seed"]))
    for _, runs in itertools.groupby(ordered, name_of):
        yield [*runs]


def _losses(row: Row, window_state: str) -> dict[int, Any]:
    """The line of each length, with windows in the order of the text."""
    return {
        line["length"]: line
        for line in row["lengths"]
        if (line["split"], line["window_state"], line["order"])
        == ("test", window_state, "text")
    }


def _pairs(carried: Sequence[Row], zero: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The runs of equal seeds."""
    rows_by_seed = {row["seed"]: row for row in zero}
    return [
        (row, rows_by_seed[row["seed"]])
        for row in carried
        if row["seed"] in rows_by_seed
    ]


def _loss_differences(line, other) -> list[float]:
    """The losses of the documents of a line less those of another."""
    pairs = zip(line["loss_by_document"], other["loss_by_document"], strict=True)
    return [a - b for a, b in pairs]


@dataclass(frozen=True)
class Curves(_PartOfRuns):
    """The validation metric of runs while they were trained.

    Attributes:
      title: The title of the section.
      text: What it shows.
      experiments: Regular expression of the names of the runs.
    """

    title: str
    text: str
    experiments: str

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns the last and the worst perplexity of each seed."""
        lines = []
        for name, recorded in self._values(rows, "curve"):
            curves = [*map(_curve, recorded)]
            lines.append(
                (
                    name,
                    ", ".join(f"{curve[-1]:.2f}" for curve in curves),
                    ", ".join(f"{max(curve[1:]):.2f}" for curve in curves),
                    f"{sum(map(_is_rising, curves))} of {len(curves)}",
                )
            )
        if not lines:
            return ""
        head = ("experiment", "last", "worst", "rises")
        return f"{self.text}\n{_experiment_table(head, lines)}"


@dataclass(frozen=True)
class Gradients(_PartOfRuns):
    """Norms of the gradient by the initial state after training.

    Attributes:
      title: The title of the section.
      text: What it shows.
      experiments: Regular expression of the names of the runs.
      steps: Numbers of steps after which a prediction is shown.
      pictures: As of `Grid`.
    """

    title: str
    text: str
    experiments: str
    steps: tuple[int, ...]
    pictures: Mapping[str, str] | None = None

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns the median over seeds by step; empty without a record."""
        lines = []
        for name, norms in self._values(rows, "gradients"):
            medians = (
                statistics.median(seed[str(step)] for seed in norms)
                for step in self.steps
            )
            cells = (f"{median:.1e}" for median in medians)
            lines.append((name, *cells, str(len(norms))))
        if not lines:
            return ""
        head = ("experiment", *(f"t = {step}" for step in self.steps), "seeds")
        table = _experiment_table(head, lines)
        return "\n".join([self.text, table, *_pictures(self.pictures or {})])


def _curve(recorded: Mapping[str, float | None]) -> list[float]:
    """The validation metric by step; infinite where it was not finite."""
    return [math.inf if value is None else value for value in recorded.values()]


def _is_rising(curve: Sequence[float]) -> bool:
    return any(after > before for before, after in itertools.pairwise(curve))


@dataclass(frozen=True)
class Forecast(_PartOfRuns):
    """Errors of forecasts by the step ahead, beside baselines.

    Attributes:
      title: The title of the section.
      text: What it shows.
      experiments: Regular expression of the names of the runs.
      metric: ``"mae"`` or ``"r2"``.
      steps: Steps ahead of which the errors are shown.
      pictures: As of `Grid`.
    """

    title: str
    text: str
    experiments: str
    metric: str
    steps: tuple[int, ...]
    pictures: Mapping[str, str] | None = None

    def markdown(self, rows: Sequence[Row]) -> str:
        """Returns a line for each experiment and each baseline."""
        rows = [row for row in rows if self.shows(name_of(row))]
        if not rows:
            return ""
        lines = [
            (
                result.name,
                *self._cells([row["forecast"]["model"] for row in result.rows]),
                str(len(result.rows)),
            )
            for result in summaries(rows)
        ]
        # The baselines have no seed: those of all runs are equal.
        lines += [
            (name, *self._cells([errors]), "")
            for name, errors in rows[0]["forecast"].items()
            if name != "model"
        ]
        steps = [f"{step} ahead" for step in self.steps]
        table = tables.markdown([("forecast", "all steps", *steps, "seeds"), *lines])
        return "\n".join([self.text, table, *_pictures(self.pictures or {})])

    def _cells(self, errors: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        yield self._cell([seed[self.metric] for seed in errors])
        for step in self.steps:
            by_step = [seed[f"{self.metric}_by_step"] for seed in errors]
            yield self._cell([values[step - 1] for values in by_step])

    def _cell(self, values: Sequence[float]) -> str:
        digits = ".3f" if self.metric == "r2" else ".2f"
        mean = f"{statistics.mean(values):{digits}}"
        std = f" ± {statistics.stdev(values):{digits}}" if len(values) > 1 else ""
        return f"{mean}{std}"


class Numbers:
    """The numbers of records that prose names, as ``mean fru/imdb:model=sru``."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Summarizes records.

        Args:
          rows: All records.
        """
        self._results = {result.name: result for result in summaries(rows)}

    def __getitem__(self, field: str) -> str:
        """Returns what a field stands for.

        Args:
          field: A word and the names of experiments: ``mean``, ``seeds``, ``less``, a
            result less another; ``errors``, that in standard errors; ``missed``, the
            variance that one misses divided by that of another; ``change``,
            ``extends``, ``gain`` and ``cost`` of windows of other lengths.

        Raises:
          ValueError: There is no such word, or no record of an experiment.
        """
        word, *names = field.split()
        if missing := [name for name in names if name not in self._results]:
            raise ValueError(
                "every experiment that prose names must have a record, got "
                f"{missing[0]} without one; train and record it, or correct the name."
            )
        results = [self._results[name] for name in names]
        rows = [result.rows for result in results]
        match word:
            case "mean":
                return number(results[0].mean)
            case "seeds":
                return str(len(rows[0]))
            case "less":
                return _format_difference(results[0].difference(results[1]))
            case "errors":
                difference = results[0].difference(results[1])
                return number(difference.mean / (difference.error or math.nan), ".1f")
            case "missed":
                return number((1 - results[0].mean) / (1 - results[1].mean), ".2g")
            case "change":
                return _format_difference(change_by_length(rows[0]))
            case "extends":
                return ", ".join(extensions(rows[0]))
            case "gain":
                return _format_difference(gain(*rows), "")
            case "cost":
                return _format_difference(cost(*rows), "")
        raise ValueError(
            f"a field of prose must begin with `mean`, `seeds`, `less`, `errors`, "
            f"`missed`, `change`, `extends`, `gain` or `cost`, got {word!r}."
        )


def _format_difference(difference: Difference, sign: str = "+") -> str:
    return f"{difference.mean:{sign}.4f} ± {number(difference.error)}"


_HEAD = """\
# {title}

{conclusions}
<!-- results -->
"""
_ABOUT = """\
`ours` is the mean over seeds, followed by the sample standard deviation over seeds
after ±; `theirs` is the result of the paper for the same model and training
(`docs/papers` has what differs); `baseline` is the majority class, the
mean or the unigram model on the same split; `error` is a standard error: for accuracies
the larger one of that over examples and that over seeds, for other metrics that over
seeds; that of one seed does not contain how much seeds differ. Results differ at
{errors:g} standard errors. Stale results were measured before a correction that is
named in the notes. The last section has the commands, and of each run steps, hours,
device, commit and date."""
_RUNS = """\
## Runs

An experiment is trained, evaluated and recorded by the commands below, where `RUN` is a
new directory and `DATA` that of the data sets of `docs/papers/data.md`, or of texts.
`--config.training.seed=1` selects another seed. `hours` are those of training one seed,
beside other processes on the machine; `commit` is the code that trained all seeds, or
that of each in turn; + after it marks changes that were not committed.

    ssm-jax train --config=experiments/PAPER/TASK.py:VARIANT --workdir=RUN \\
        --data_dir=DATA
    ssm-jax evaluate --workdir=RUN
    python -m experiments.ledger --record=RUN

{table}"""


def page(paper: Paper, rows: Sequence[Row], prose: str) -> str:
    """Returns a page of results.

    Args:
      paper: What it shows.
      rows: All records.
      prose: The page of ``docs/papers``, which has the conclusions.

    Returns:
      Markdown: the conclusions, each part that has records, and a list of the runs.
    """
    texts = {part.title: part.markdown(rows) for part in paper.parts}
    sections = [f"## {title}\n\n{text}" for title, text in texts.items() if text]
    results = [
        result
        for result in summaries(rows)
        if any(part.shows(result.name) for part in paper.parts)
    ]
    head = _HEAD.format(title=paper.title, conclusions=conclusions(prose))
    if not results:  # Benchmarks and claims say themselves what they show.
        return "\n".join([head, *sections])
    about = " ".join(_ABOUT.format(errors=ERRORS).split())
    if paper.url:
        about = f"[The paper]({paper.url}). {about}"
    return "\n".join([head, _fill(about), *sections, _runs(results)])


def conclusions(text: str) -> str:
    """Returns the conclusions of a page of ``docs/papers``, without its markers."""
    match = re.search(
        r"^<!-- conclusions -->\n(.*?)^<!-- /conclusions -->$", text, re.M | re.S
    )
    return re.sub(r"<!--.*?-->", "", match[1]).strip() + "\n" if match else ""


def _runs(results: Sequence[Summary]) -> str:
    head = ("experiment", "steps", "hours", "device", "commit", "date")
    lines = [
        (
            result.name,
            str(result.last["steps"]),
            f"{statistics.mean(row['seconds'] for row in result.rows) / 3600:.2g}",
            result.device,
            _commits(result),
            result.last["date"],
        )
        for result in results
    ]
    table = tables.markdown([head, *lines])
    return _RUNS.format(table=_details(f"{len(lines)} experiments", table))


def _commits(result: Summary) -> str:
    """The commit of all runs, or that of each seed if they differ."""
    rows = sorted(result.rows, key=lambda row: row["seed"])
    commits = [row["commit"] or "unknown" for row in rows]
    return ", ".join(commits if len(set(commits)) > 1 else commits[:1])
