"""Markdown tables of runs."""

import itertools
import re
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ssm_jax.cli.summary import (
    Footnotes,
    Row,
    beside_baselines,
    describe_step,
    format_result,
    gain_over_linear,
    name_of,
    number,
    sort_key,
    summaries,
)
from ssm_jax.evaluation import loss_interval
from ssm_jax.evaluation.forecast import MODEL
from ssm_jax.evaluation.run import CARRIED_STATES, EVALUATIONS
from ssm_jax.training import losses

COLUMNS = (
    "experiment", "metric", "ours", "error", "baseline", "seeds", "theirs", "steps",
    "seconds", "device", "commit", "date", "notes",
)  # fmt: skip

TITLES = {
    ("zero", "text"): "each window from a zero state",
    CARRIED_STATES: "states carried from window to window, "
    "which is the same at every length",
    ("carry", "shuffled"): "states carried, windows in shuffled order",
}

_NAMES = {
    "mae": "MAE",
    "rmse": "RMSE",
    "r2": "R2",
    "auc": "AUC",
    "macro_f1": "macro-F1",
}


def evaluation(result: Mapping[str, Any]) -> str:
    """Returns the headline of an evaluation, and a table of it beside its baselines.

    Args:
      result: The result of `ssm_jax.evaluation.evaluate_run`.

    Returns:
      Lines of text, and a Markdown table with a line for the model and for each
      baseline. The headline is the first of its columns.
    """
    measured = beside_baselines(result)
    metrics = [*dict.fromkeys(key for values in measured.values() for key in values)]
    names = [metric_name(metric) for metric in metrics]
    best = format_metric(measured[MODEL].get(metrics[0]))
    lines = [
        f"{result['split']} {names[0]} {best or 'undefined'}, {describe_step(result)}"
    ]
    if "forecast" in result:
        lines[0] += ", in the units of the file"
    if result.get("changed_data"):
        lines.append("evaluated on other data than those of the training")
    if sentence := gain_over_linear(result):
        lines.append(sentence)
    cells = [
        (name, *(format_metric(values.get(metric)) for metric in metrics))
        for name, values in measured.items()
    ]
    return "\n".join([*lines, "", markdown([("", *names), *cells])])


def metric_name(metric: str) -> str:
    """Returns what a metric is called; those without another name by their own."""
    return _NAMES.get(metric, metric.replace("_", " "))


def format_metric(value: float | None) -> str:
    """Formats a metric of any unit; empty for None."""
    return number(value, ",.5g")


def results(rows: Sequence[Row], *, paper: bool = True) -> str:
    """Returns a Markdown table with one line per experiment, followed by its notes.

    Args:
      rows: Rows of runs; those that differ only in their seed share a line.
      paper: Whether to include a column with the published results.
    """
    entries, footnotes = summaries(rows), Footnotes()
    lines = [_result(entry, footnotes.mark(entry.notes(entries))) for entry in entries]
    columns = zip(COLUMNS, *lines, strict=True)
    shown_columns = (column for column in columns if paper or column[0] != "theirs")
    cells = [*zip(*shown_columns, strict=True)]
    return "\n".join([markdown(cells), *footnotes.lines()])


def by_row_length(rows: Sequence[Row]) -> str:
    """Returns a Markdown table of accuracy by the length of rows.

    Args:
      rows: The rows of `ssm_jax.evaluation.accuracy_by_length`.

    Returns:
      The table, one line for each length, below the length of the training.
    """
    cells: list[tuple[str, ...]] = [
        ("length", "accuracy", "±", "last target", "whole row", "chance")
    ]
    names = ("accuracy", "error", "last_accuracy", "row_accuracy", "chance")
    for row in rows:
        numbers = (row[name] for name in names)
        shown = ("-" if number is None else f"{number:.4f}" for number in numbers)
        cells.append((f"{row['length']:,}", *shown))
    return f"Trained at {rows[0]['trained']}:\n\n{markdown(cells)}"


def memory(found: Mapping[str, Any]) -> str:
    """Returns Markdown tables of what a language model remembers.

    Args:
      found: The result of `ssm_jax.evaluation.evaluate_memory`.

    Returns:
      A table of the distance by the number of tokens that were left out, and one of the
      norms of the states by position.
    """
    left_out = [("tokens left out", "distance")]
    pairs = zip(found["starts"], found["effective_remembrance"], strict=True)
    left_out += [(f"{start:,}", f"{distance:.4f}") for start, distance in pairs]
    states = found["states"]
    norms = [("tokens read", *(f"state {state['name']}" for state in states))]
    for i, position in enumerate(found["positions"]):
        norms.append((f"{position:,}", *(f"{s['norm'][i]:.4g}" for s in states)))
    return (
        f"Trained at {found['trained']}. Change of the prediction after "
        f"{found['length']:,} tokens, in total variation, without the first ones:\n\n"
        f"{markdown(left_out)}\nNorms of the states:\n\n{markdown(norms)}"
    )


def by_length(rows: Sequence[Row], *, most: int | None = None) -> str:
    """Returns Markdown tables of perplexity by length, one per kind of evaluation.

    Args:
      rows: Rows of runs; their ``lengths`` are the rows of ``length_extension.jsonl``.
      most: Number of lengths that a table shows: the shortest and the longest one, and
        those between in even steps. None: all.

    Returns:
      The tables, each with a title and one line per experiment. Runs that differ only
      in their seed are averaged, stale runs separately; the last column has all
      classifications of the averaged runs. The reasons of stale runs follow.
    """
    measured = [{**row, **line} for row in rows for line in row["lengths"]]
    sections = []
    for split, evaluation in itertools.product(
        ("train", "validation", "test"), EVALUATIONS
    ):
        evaluated = [
            row
            for row in measured
            if (row["split"], row["window_state"], row["order"]) == (split, *evaluation)
            # With carried states the loss is the same at every length: one is shown.
            and (
                evaluation != CARRIED_STATES
                or row["length"] == row["lengths"][-1]["length"]
            )
        ]
        if not evaluated:
            continue
        # Sorted for `groupby`, which joins adjacent rows only.
        evaluated.sort(key=lambda row: (sort_key(row), _stale(row), row["length"]))
        lengths = (
            sorted({row["length"] for row in evaluated})
            if evaluation != CARRIED_STATES
            else []
        )
        if most is not None and len(lengths) > most:
            step = (len(lengths) - 1) / (most - 1)
            lengths = [lengths[round(n * step)] for n in range(most)]
        lines = [
            _lengths(list(group), lengths)
            for _, group in itertools.groupby(
                evaluated, lambda r: (name_of(r), _stale(r))
            )
        ]
        columns = [f"{n:,}" for n in lengths] or ["any length"]
        head = ("experiment", "trained", *columns, "95 %", "extends")
        cells = [head, *lines]
        # Whether a model extends is defined for windows with zero states only.
        if evaluation[0] != "zero":
            cells = [line[:-1] for line in cells]
        texts = "; ".join(dict.fromkeys(filter(None, map(_describe_text, evaluated))))
        title = f"Split {split}, {TITLES[evaluation]}{f' ({texts})' * bool(texts)}"
        sections.append(f"{textwrap.fill(f'{title}:', 88)}\n\n{markdown(cells)}")
    # A dict keeps each reason once, in the order of the rows.
    reasons = dict.fromkeys(_stale(row) for row in measured if _stale(row))
    sections += [f"Stale: {reason}\n" for reason in reasons]
    return "\n".join(sections)


def markdown(cells: Sequence[Sequence[str]]) -> str:
    r"""Returns a Markdown table; the first row is the header.

    Cells may hold names from files, so that nothing in them ends a cell, is HTML, or is
    a control sequence of the terminal.

    Example:
      >>> print(markdown([["a", "b"], ["1|2", "<script>"]]).strip())
      | a    | b           |
      |------|-------------|
      | 1\|2 | &lt;script> |
    """
    cells = [[*map(plain_text, line)] for line in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(f"{c:{w}}" for c, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def plain_text(cell: str) -> str:
    """Escapes what means more than its text in Markdown or on a terminal."""
    cell = "".join(c if c.isprintable() else " " for c in cell)
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", cell).replace("|", "\\|")


def _result(summary, notes):
    """The cells of an experiment; date and device are those of its last run."""
    row = summary.last
    return (
        summary.name,
        summary.metric,
        format_result(summary),
        number(summary.error),
        number(summary.baseline),
        str(len(summary.rows)),
        number(row["paper"], ".4g"),
        str(row["steps"]),
        f"{statistics.mean(row['seconds'] for row in summary.rows):.0f}",
        summary.device,
        str(row["commit"] or ""),
        row["date"],
        notes,
    )


def _lengths(rows, lengths):
    """The cells of an experiment by length, from the runs of all its seeds."""
    rows_by_length = {
        length: [*group]
        for length, group in itertools.groupby(rows, lambda row: row["length"])
    }
    longest = max(rows_by_length)
    verdicts = dict.fromkeys(
        row["extends"] for row in rows if row["extends"] and not _stale(row)
    )
    return (
        name_of(rows[0]) + (" (stale)" if _stale(rows[0]) else ""),
        str(rows[0]["trained"] or ""),
        *(perplexity(rows_by_length.get(n, [])) for n in lengths or [longest]),
        _interval(rows_by_length[longest]),
        ", ".join(verdicts),
    )


def _stale(row):
    """The reason why a run is stale; empty if it is not."""
    return row.get("stale") or ""


def perplexity(rows: Sequence[Row]) -> str:
    """Returns the perplexity of the mean loss over seeds, as intervals are of it.

    Args:
      rows: Rows of one length, a seed each; "" for none.
    """
    if not rows:
        return ""
    return f"{losses.perplexity(statistics.mean(r['loss'] for r in rows)):.4g}"


def _interval(rows):
    """Confidence interval of the perplexity over documents, from seed means."""
    if not all(row.get("loss_by_document") for row in rows):
        return ""
    by_document = zip(*(row["loss_by_document"] for row in rows), strict=True)
    # Seeds are averaged per document first: the interval is over documents, whose
    # losses are independent.
    ends = loss_interval([statistics.mean(seeds) for seeds in by_document])
    if ends is None:
        return ""
    return " to ".join(f"{losses.perplexity(end):.4g}" for end in ends)


def _describe_text(row):
    """Describes the text that was evaluated."""
    corpus = row.get("corpus")
    if corpus is None:
        return ""
    return (
        f"{corpus['folder']}: {corpus['tokens_read']:,} of {corpus['tokens']:,} "
        f"tokens, {corpus['documents_read']} documents"
    )


def forecast_table(rows: Sequence[Row]) -> str:
    """Returns a Markdown table of errors over all steps and at some of them.

    Args:
      rows: Rows of runs; those without a forecast are left out.

    Returns:
      The table, with a line for each metric of the model of an experiment and of each
      baseline, and columns for the first step, that after a quarter of the horizon and
      the last; empty if there is no forecast. Runs that differ only in their seed are
      averaged, with the sample standard deviation after ±.
    """
    forecast_rows = sorted((row for row in rows if "forecast" in row), key=sort_key)
    parts = []
    for experiment, group in itertools.groupby(forecast_rows, key=name_of):
        of_seeds = [*group]
        forecasts = [row["forecast"] for row in of_seeds]
        horizon = len(forecasts[0]["model"]["mae_by_step"])
        steps = sorted({1, max(1, horizon // 4), horizon})
        header = ("forecast", "metric", "all steps", *(f"step {n}" for n in steps))
        cells: list[tuple[str, ...]] = [header]
        measured = beside_baselines({"forecast": forecasts[0]})
        metrics = dict.fromkeys(key for values in measured.values() for key in values)
        for metric, forecaster in itertools.product(metrics, measured):
            if metric not in measured[forecaster]:
                continue
            seed_errors = [errors[forecaster] for errors in forecasts]
            by_step = f"{metric}_by_step"
            columns = [[errors[metric] for errors in seed_errors]]
            columns += [
                [errors.get(by_step, {n - 1: None})[n - 1] for errors in seed_errors]
                for n in steps
            ]
            cells.append(
                (forecaster, metric_name(metric), *map(_mean_and_std, columns))
            )
        parts.append(
            f"{plain_text(experiment)}, on the {horizon} steps after a window:\n"
        )
        parts.append(markdown(cells))
        for row in of_seeds:
            if sentence := gain_over_linear(row):
                seed = f"Seed {row['seed']}: " if len(of_seeds) > 1 else ""
                parts.append(f"{seed}{sentence}\n")
    return "\n".join(["", *parts]) if parts else ""


def _mean_and_std(values):
    """The mean over seeds, with the standard deviation of several."""
    if None in values:
        return ""  # R2 of equal targets
    mean = f"{statistics.mean(values):.4g}"
    # Baselines are equal for all seeds.
    if len(set(values)) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.2g}"
