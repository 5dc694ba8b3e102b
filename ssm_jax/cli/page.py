"""One page of HTML of some runs, with figures to hover over and to zoom.

The page is a single file that opens from the disk without a network: the script of
Plotly is in it. Bokeh and Altair are as well kept and as free, and their pages have
1 MB in place of 5. But the colours of Bokeh are fixed when the page is written, where
Plotly changes them with the scheme of the reader in one call, and Altair needs a wheel
of 34 MB to write a page without a network, where that of Plotly has 10.
"""

import base64
import datetime
import html
import io
import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ssm_jax.cli import tables
from ssm_jax.cli.summary import (
    FALLING,
    Row,
    Summary,
    beside_baselines,
    describe_step,
    in_units,
    name_of,
)
from ssm_jax.config import build, flatten, packages_of
from ssm_jax.evaluation.forecast import MODEL, panels_of_arrays
from ssm_jax.evaluation.run import EVALUATIONS, FORECAST_FILE
from ssm_jax.files import write_text
from ssm_jax.tasks import SeriesTask, Split
from ssm_jax.tasks.fingerprint import describe, fingerprint_of, same
from ssm_jax.tasks.series import naming
from ssm_jax.training import WorkDir

_GREY = "#808080"
# Each is readable on white and on black; the first is that of the model.
_PALETTE = ("#e0701a", "#3987c9", "#1a9e77", "#b565a7", "#a88b1c", "#6f6fd0")
_HEIGHT = 320  # of a figure, pixels

DRAWN = ("curves", "forecast", "lengths")
"""The figures of `ssm_jax.plots` that the page has of its own."""


class Run(NamedTuple):
    """A run of the page.

    Attributes:
      folder: Its work dir.
      row: Its row, of `ssm_jax.cli.report`.
      figures: Further figures by name, as images.
    """

    folder: WorkDir
    row: Row
    figures: Mapping[str, Figure]


def check_plotly() -> None:
    """Checks that the library of the figures is installed.

    Raises:
      ValueError: It is not; the error names the extra.
    """
    try:
        import plotly.io  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            "`--page` must be left out without the package plotly, got a file; "
            "`pip install 'ssm_jax[page]'` installs it."
        ) from None


def write_page(path: Path, runs: Sequence[Run]) -> None:
    """Writes the page of some runs, whole or not at all.

    Args:
      path: The file.
      runs: The runs, side by side in the order given.
    """
    write_text(path, page(runs))


def page(runs: Sequence[Run]) -> str:
    """Returns the page of some runs; see `write_page`."""
    from plotly.offline import (  # pyright: ignore[reportMissingImports]
        get_plotlyjs,
    )

    labels = _labels(runs)
    sections = [
        ("Result", "", _result),
        ("Data", "", _data),
        ("Forecasts", "Drag to zoom, double-click to reset.", _forecasts),
        ("Errors by the step predicted", "In the units of the file.", _by_step),
        ("Errors by series", "In the units of the file.", _by_series),
        ("Loss by length", "With 95 % intervals over documents.", _by_length),
        ("Learning curves", "", _curves),
        ("Figures", "", _images),
        ("Run it again", "The same configuration, in another work dir.", _command),
    ]
    parts = [f"<h1>{_text(', '.join(labels))}</h1>"]
    if len(runs) > 1:
        parts.append(_overview(labels, runs))
    for title, caption, render in sections:
        cards = [render(run) for run in runs]
        if any(cards):
            shown = zip(labels, cards, strict=True)
            parts.append(_section(title, caption, shown, named=len(runs) > 1))
    parts.append(_configuration(labels, [run.folder for run in runs]))
    return _PAGE.format(
        title=_text(", ".join(labels)),
        style=_STYLE,
        body="\n".join(parts),
        plotly=get_plotlyjs(),
        script=_SCRIPT,
        date=datetime.date.today().isoformat(),
    )


def _labels(runs):
    """Names of the work dirs, or their paths where two have one name."""
    names = [run.folder.path.name for run in runs]
    return [
        name if names.count(name) == 1 else str(run.folder.path)
        for name, run in zip(names, runs, strict=True)
    ]


def _text(value: object) -> str:
    """Escapes a text that is from a file, for HTML."""
    return html.escape(_one_line(value))


def _label(value: object) -> str:
    """Escapes a text for Plotly, which knows some tags and no quotation marks."""
    return html.escape(_one_line(value), quote=False)


def _one_line(value):
    return "".join(c if c.isprintable() else " " for c in str(value))


def _table(
    head: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    numbers: bool = False,
    marked: Collection[int] = (),
) -> str:
    """Returns a table, whose cells are escaped here.

    Args:
      head: Names of its columns; empty for none.
      lines: Its cells, the first of each line being the name of the line.
      numbers: Whether the cells are numbers, which are not broken into lines.
      marked: The lines that are marked.
    """

    def row(cells, tag, number):
        first, *others = map(_text, cells)
        cells = "".join(f"<{tag}>{cell}</{tag}>" for cell in others)
        kind = ' class="marked"' if number in marked else ""
        return f'<tr{kind}><th scope="row">{first}</th>{cells}</tr>'

    body = "".join(row(cells, "td", number) for number, cells in enumerate(lines))
    top = f"<thead>{row(head, 'th', None)}</thead>" if head else ""
    kind = ' class="numbers"' if numbers else ""
    return f'<div class="wide"><table{kind}>{top}<tbody>{body}</tbody></table></div>'


def _section(title, caption, cards, *, named):
    """A section with a card for each run that has something to show."""
    shown = "".join(
        "<article>" + f"<h3>{_text(label)}</h3>" * named + f"{card}</article>"
        for label, card in cards
        if card
    )
    caption = f"<p>{_text(caption)}</p>" if caption else ""
    return (
        f'<section><h2>{_text(title)}</h2>{caption}<div class="cards">{shown}</div>'
        "</section>"
    )


def _overview(labels, runs):
    """A table with a line for each run."""
    head = ("run", "experiment", "metric", "model", "best baseline", "steps", "minutes")
    lines = []
    for label, run in zip(labels, runs, strict=True):
        row = in_units(run.row)
        baseline = row.get("baseline") or {}
        value = baseline.get(row["metric"].split()[-1])
        lines.append(
            (
                label,
                name_of(row),
                _named(row["metric"]),
                _value_and_error(row),
                f"{tables.format_metric(value)} {baseline.get('name', '')}".strip(),
                str(row["steps"]),
                f"{row['seconds'] / 60:.1f}",
            )
        )
    return _table(head, lines, numbers=True)


def _named(metric):
    """A metric with its split, as it is read: ``"test MAE"``."""
    split, name = metric.split()
    return f"{split} {tables.metric_name(name)}"


def _value_and_error(row):
    """The value of a row, with its standard error where it has one."""
    value, error = tables.format_metric(row["value"]), Summary((row,)).error
    return value if error is None else f"{value} ± {error:.2g}"


def _result(run):
    """The headline, and the metrics beside those of the baselines."""
    row, evaluation = in_units(run.row), run.folder.read("evaluation.json") or {}
    measured = beside_baselines(evaluation)
    metrics = [*dict.fromkeys(key for values in measured.values() for key in values)]
    lines = [
        [name, *(tables.format_metric(values.get(metric)) for metric in metrics)]
        for name, values in measured.items()
    ]
    lines[0][1] = _value_and_error(row)
    head = ("", *(tables.metric_name(metric) for metric in metrics))
    unit = f" of {run.folder.config().task.target}" if "forecast" in row else ""
    headline = f"{_named(row['metric'])}{unit}: {_value_and_error(row)}"
    notes = [*Summary((row,)).notes([Summary((row,))])]
    about = f"at {describe_step(row)}; {row['date']}"
    return (
        f'<p class="headline">{_text(headline)}</p>'
        f"<p>{_text('; '.join([about, *notes]))}</p>"
        f"{_table(head, lines, numbers=True)}"
    )


def _data(run):
    """What the data are, and how their file was read."""
    config, row = run.folder.config().task, run.row
    facts: dict[str, Any] = {"task": config.cls.split(":")[-1]}
    names = ("dataset", "file", "data_dir")
    facts |= {name: config[name] for name in names if config.get(name)}
    if stored := run.folder.data()[-1:]:
        facts["trained on"] = describe(*stored)
    if baseline := row.get("baseline"):
        facts["targets in training"] = f"{baseline['n_train']:,}"
        facts[f"examples in {row['metric'].split()[0]}"] = f"{baseline['n_examples']:,}"
    if corpus := row.get("corpus"):
        files = f"{corpus['documents']} document{'s' * (corpus['documents'] != 1)}"
        facts["text"] = f"{corpus['tokens']:,} tokens of {files}"
    notes: list[str] = []
    # The config may be of anyone: no code of other packages is run.
    task = None if packages_of(config) else build(config)
    if isinstance(task, SeriesTask):
        try:
            found, notes = _describe_series(task, stored)
            facts |= found
        except (OSError, ValueError) as error:
            notes = [f"The file cannot be read now: {error}"]
    listed = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return _table((), facts.items()) + (f"<ul>{listed}</ul>" if listed else "")


def _describe_series(task, stored):
    """Facts of the file of a `SeriesTask`, and notes of how it was read."""
    values_of = {
        "target": [task.target],
        "inputs": task.inputs or [task.target],
        "time": [task.time] if isinstance(task.time, str) else task.time or [],
        "series by": naming.columns(task.group),
    }
    facts = {name: ", ".join(used) for name, used in values_of.items() if used}
    table = task.table
    used = {name for names in values_of.values() for name in names}
    unread = [name for name in (*table, *table.others) if name not in used]
    facts["columns not read"] = ", ".join(unread) or "none"
    values, times, n = task.values(), task.times(), len(task.series_names())
    facts["rows"] = f"{len(next(iter(table.values()))):,}"
    facts["steps"] = f"{len(values):,}" + (f" of {n:,} series" if task.group else "")
    facts["missing targets"] = f"{np.isnan(values).sum():,}"
    if times is not None:
        facts["span"] = " to ".join(map(_moment, (times.min(), times.max())))
    splits: list[Split] = ["train", "validation", "test"]
    windows = (f"{task.n_examples(split):,} in {split}" for split in splits)
    facts["windows"] = ", ".join(windows)
    notes = [*task.notes()]
    ours = fingerprint_of(task)
    if stored and ours and not same(stored[0], ours):
        notes.append("The file has changed since the training; this is of the new one.")
    return facts, notes


def _moment(time):
    """A date to the minute, or a number."""
    if isinstance(time, np.datetime64):
        return np.datetime_as_string(time, unit="m").replace("T", " ")
    return f"{time:g}"


def _plot(name, data, *, x="", y="", **layout):
    """A figure; the script of the page draws it in the colours of the scheme.

    Args:
      name: What it shows, for those who do not see it.
      data: Its traces.
      x: Label of the horizontal axis.
      y: Label of the vertical axis.
      **layout: Further options of the layout, those of an axis beside its own.
    """
    from plotly import io as plotly  # pyright: ignore[reportMissingImports]

    axis = {"zeroline": False, "automargin": True}
    options = {
        "height": _HEIGHT,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "x unified",
        "showlegend": True,
        "xaxis": axis | {"title": {"text": _label(x)}} | layout.pop("xaxis", {}),
        "yaxis": axis | {"title": {"text": _label(y)}} | layout.pop("yaxis", {}),
        "template": {},
    }
    # Validated: an option of another name would be ignored by the script.
    drawn = plotly.to_json({"data": data, "layout": options | layout}, validate=True)
    drawn = str(drawn).replace("<", "\\u003c")  # No name ends the script.
    return (
        f'<div class="plot" role="img" aria-label="{_text(name)}">'
        f'<script type="application/json">{drawn}</script></div>'
    )


def _line(name, x, y, colour, **options):
    """A trace of lines."""
    trace = {"type": "scatter", "mode": "lines", "name": _label(name), "x": x, "y": y}
    return trace | {"line": {"color": colour, "width": 1.6}} | options


def _logarithmic(values):
    """The axis of positive values: logarithmic if they span more than one decade."""
    low, high = min(values), max(values)
    return {"type": "log", "dtick": "D2"} if 0 < 10 * low < high else {}


def _grid(plots):
    """Figures in one line where there is room."""
    return f'<div class="cards">{"".join(plots)}</div>' if plots else ""


def _colours(names):
    """Colours by name, the first that of the model."""
    ordered = sorted(names, key=lambda name: name != MODEL)
    return {name: _PALETTE[i % len(_PALETTE)] for i, name in enumerate(ordered)}


def _forecasts(run):
    """Values of each series, and forecasts of consecutive windows."""
    if "forecast" not in run.row:
        return ""
    panels = panels_of_arrays(run.folder.read_arrays(FORECAST_FILE))
    target, drawn = run.folder.config().task.target, []
    for name, panel in panels.items():
        about = f"<p>{_text(name)}</p>" if name else ""
        drawn.append(f"<div>{about}{_forecasts_of_series(panel, target)}</div>")
    return _grid(drawn) if len(drawn) > 1 else drawn[0]


def _forecasts_of_series(panel, target):
    """A panel of `ssm_jax.evaluation.forecast.forecast_panels`."""
    x = panel.get("times", np.arange(len(panel["series"])))
    at = panel["first"][:, None] + np.arange(panel[MODEL].shape[1])
    names = [
        name
        for name, array in panel.items()
        if array.shape == at.shape and name not in ("lower", "upper")
    ]
    colours = _colours(names)
    traces = [_line("values", x, panel["series"], _GREY)]
    if np.isfinite([panel.get(end, np.nan) for end in ("lower", "upper")]).all():
        # Around each window.
        around = x[np.concatenate([at, at[:, ::-1]], 1)]
        ends = np.concatenate([panel["lower"], panel["upper"][:, ::-1]], 1)
        style = {"fill": "toself", "fillcolor": f"{colours[MODEL]}38"}
        style |= {"line": {"width": 0}, "hoverinfo": "skip"}
        points = _one_by_one(around, ends)
        traces.append(_line("90 % of values", *points, colours[MODEL], **style))
    for name, colour in colours.items():
        shown = True if name == MODEL else "legendonly"
        points = _one_by_one(x[at], panel[name])
        traces.append(_line(name, *points, colour, visible=shown))
    unit = "" if "times" in panel else "step"
    return _plot(f"forecasts of {target}", traces, x=unit, y=target, height=420)


def _one_by_one(x, y):
    """Points of several lines with a gap after each, so that none leads to the next."""
    gaps = np.full((len(y), 1), np.nan)
    return np.hstack([x, x[:, -1:]]).ravel(), np.hstack([y, gaps]).ravel()


def _by_step(run):
    """The errors of the model and of each baseline over the step predicted."""
    measured = beside_baselines(run.row) if "forecast" in run.row else {}
    colours, plots = _colours(measured), []
    for metric in dict.fromkeys(key for values in measured.values() for key in values):
        traces = []
        for name in measured:
            values = run.row["forecast"][name].get(f"{metric}_by_step")
            if values is not None:
                x = np.arange(1, len(values) + 1)
                traces.append(_line(name, x, np.array(values, float), colours[name]))
        if traces:
            title = tables.metric_name(metric)
            name = f"{title} by the step predicted"
            axis = {"rangemode": "tozero"} if metric in FALLING else {}
            plots.append(_plot(name, traces, x="steps ahead", y=title, yaxis=axis))
    return _grid(plots)


def _by_series(run):
    """The error of each series, the largest first."""
    measured = _mae_by_series(run)
    if not measured:
        return ""
    of_model = measured[MODEL]
    ordered = sorted(of_model, key=lambda name: -of_model[name])
    labels = [_label(name) for name in ordered]
    traces = [
        _line(
            forecaster,
            labels,
            [measured[forecaster].get(name) for name in ordered],
            colour,
            mode="markers",
            marker={"size": 9, "color": colour},
        )
        for forecaster, colour in _colours(measured).items()
    ]
    x = {"type": "category"}  # A name may look like a number or a date.
    errors = [error for of_one in measured.values() for error in of_one.values()]
    y = _logarithmic(errors)
    return _plot("MAE by series", traces, y="MAE", xaxis=x, yaxis=y)


def _mae_by_series(run):
    """The errors of the model and of baselines by series; none of a single series."""
    return (run.folder.read("evaluation.json") or {}).get("mae_by_series") or {}


def _by_length(run):
    """The perplexity by the length of a window."""
    traces = []
    for (start, order), colour in zip(EVALUATIONS, _PALETTE, strict=False):
        lines = [
            line
            for line in run.row["lengths"]
            if (line["window_state"], line["order"]) == (start, order)
        ]
        y = np.exp([line["loss"] for line in lines])
        ends = [line.get("interval") or [line["loss"]] * 2 for line in lines]
        low, high = np.exp(np.array(ends).reshape(-1, 2)).T
        bars = {"type": "data", "array": high - y, "arrayminus": y - low}
        name = tables.TITLES[start, order].split(", which")[0]
        lengths = [line["length"] for line in lines]
        if lines:
            traces.append(
                _line(name, lengths, y, colour, error_y=bars, mode="lines+markers")
            )
    if not traces:
        return ""
    lengths = sorted({line["length"] for line in run.row["lengths"]})
    x = {"type": "log", "tickvals": lengths, "ticktext": [f"{n:,}" for n in lengths]}
    return _plot(
        "perplexity by length", traces, x="length of a window", y="perplexity", xaxis=x
    )


def _curves(run):
    """The loss and the metric on the train and validation splits."""
    lines, metric = run.folder.metrics(), run.row["metric"].split()[-1]
    plots = []
    for name in dict.fromkeys(("loss", metric)):
        traces, values = [], []
        for split, colour in zip(("validation", "train"), _PALETTE, strict=False):
            points = [(line["step"], line.get(f"{split}/{name}")) for line in lines]
            points = [(step, value) for step, value in points if value is not None]
            if points:
                mode = "lines+markers" if split == "validation" else "lines"
                x, y = zip(*points, strict=True)
                values += y
                traces.append(_line(split, x, y, colour, mode=mode))
        if traces:
            title = tables.metric_name(name)
            about = f"{title} by step of the training"
            axis = _logarithmic(values) if name in FALLING else {}
            plots.append(_plot(about, traces, x="step", y=title, yaxis=axis))
    return _grid(plots)


def _images(run):
    """Figures without a counterpart among the others."""
    shown = []
    for name, figure in run.figures.items():
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150)
        data = base64.b64encode(file.getvalue()).decode()
        shown.append(f'<img alt="{_text(name)}" src="data:image/png;base64,{data}">')
    return "".join(shown)


def _command(run):
    """The commands that repeat a run, and what it was made with."""
    path, again = str(run.folder.path), f"{run.folder.path}-again"
    code = (
        "from ssm_jax.training import WorkDir, train; "
        f"train(WorkDir({_quoted(path)}).config(), {_quoted(again)})"
    )
    lines = [
        f"python -c {shlex.quote(code)}",
        f"ssm-jax evaluate --workdir={shlex.quote(again)}",
    ]
    # A path need not be UTF-8.
    commands = "\n".join(lines).encode(errors="backslashreplace").decode()
    row = run.row
    made = {name: row[name] for name in ("device", "n_devices", "python", "commit")
            if row.get(name)}  # fmt: skip
    made |= row.get("versions", {})
    about = ", ".join(f"{name} {value}" for name, value in made.items())
    return f"<pre>{html.escape(commands)}</pre><p>{_text(about)}</p>"


def _quoted(path):
    """A string of Python in double quotes, as single ones are those of the shell."""
    return json.dumps(path, ensure_ascii=False)


def _configuration(labels, folders):
    """All fields of the configs, those that differ first and marked."""
    configs = [flatten(folder.config()) for folder in folders]
    fields = dict.fromkeys(field for config in configs for field in config)
    cells = {
        field: [str(config.get(field, "")) for config in configs] for field in fields
    }
    differing = [field for field in fields if len(set(cells[field])) > 1]
    ordered = [*differing, *(field for field in fields if field not in differing)]
    table = _table(
        ("field", *labels),
        [(field, *cells[field]) for field in ordered],
        marked=range(len(differing)),
    )
    about = f"{len(fields)} fields" + f", {len(differing)} differ" * (len(folders) > 1)
    return (
        f"<section><h2>Configuration</h2><details><summary>{about}</summary>{table}"
        "</details></section>"
    )


_STYLE = """
:root { color-scheme: light dark; --ink: #1c1f24; --dim: #5b6470; --page: #fff;
  --card: #f6f7f9; --rule: #dcdfe4; --mark: #fff3d6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --dim: #a0a8b3; --page: #14171b; --card: #1d2127;
    --rule: #343a43; --mark: #46391a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 100rem; color: var(--ink);
  background: var(--page); font: 16px/1.5 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.25; overflow-wrap: anywhere; }
h1 { margin: 0 0 1rem; font-size: 1.7rem; }
h2 { margin: 2.2rem 0 .4rem; font-size: 1.25rem; }
h3 { margin: 0 0 .5rem; font-size: 1rem; }
p { margin: .3rem 0; color: var(--dim); overflow-wrap: anywhere; }
.headline { color: var(--ink); font-size: 1.3rem; font-weight: 600; }
.cards { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); }
.plot { min-width: 0; }
.cards .cards {
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
article { min-width: 0; padding: 1rem; border-radius: .5rem; background: var(--card); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--rule);
  text-align: left; vertical-align: top; overflow-wrap: anywhere; }
.numbers td, thead th { white-space: nowrap; }
.numbers tbody th { min-width: 6rem; }
th { font-weight: 500; } thead th, tbody th { color: var(--dim); }
.marked { background: var(--mark); }
ul { margin: .6rem 0 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
pre { margin: 0; padding: .8rem; overflow-x: auto; border: 1px solid var(--rule);
  border-radius: .4rem; white-space: pre-wrap; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; margin: 0 auto 1rem; background: #fff;
  border-radius: .3rem; }
summary { cursor: pointer; }
footer { margin-top: 2rem; color: var(--dim); font-size: .85rem; }
"""

_SCRIPT = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const template = () => {
  const style = getComputedStyle(document.documentElement);
  const [ink, dim, rule, card] = ["ink", "dim", "rule", "card"].map(
    (name) => style.getPropertyValue("--" + name).trim());
  const axis = {gridcolor: rule, linecolor: rule, tickcolor: rule};
  return {layout: {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: {color: ink, family: "system-ui, sans-serif", size: 13},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: dim, activecolor: ink},
    hoverlabel: {bgcolor: card, font: {color: ink}}, xaxis: axis, yaxis: axis}};
};
const plots = [...document.querySelectorAll(".plot")];
for (const plot of plots) {
  const {data, layout} = JSON.parse(plot.firstElementChild.textContent);
  layout.template = template();
  Plotly.newPlot(plot, data, layout, {responsive: true, displaylogo: false,
    displayModeBar: innerWidth < 600 ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]]});
}
dark.addEventListener("change", () => {
  for (const plot of plots) Plotly.relayout(plot, {template: template()});
});
"""

# Nothing is loaded: the browser is told to refuse it, too.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none';
 img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<footer>Written by ssm-jax report on {date}. The figures need JavaScript.</footer>
<script>{plotly}</script>
<script>{script}</script>
</body>
</html>
"""
