"""The page of runs holds what their work dirs hold, and nothing in them is code."""

import base64
import html.parser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from ssm_jax.cli import page, report
from ssm_jax.cli.config_file import load
from ssm_jax.config import spec
from ssm_jax.evaluation.run import FORECAST_FILE, LENGTHS_FILE
from ssm_jax.files import write_arrays
from ssm_jax.tasks import SeriesTask
from ssm_jax.training import WorkDir
from tests.cli import programs

pytest.importorskip("plotly")
ROOT = Path(__file__).parents[2]
CODE = "document.body.dataset.run='yes'"
TAGS = f"</script><script>{CODE}</script><img src=x onerror={CODE}>"
QUOTES = '"it\'s" <b>&amp; $$x^2$$ %{y} \U0001f600'
N, HORIZON = 80, 3


def classification(path, **training):
    """A run of classes, evaluated, of which nothing was trained."""
    config = load(str(ROOT / "experiments/dlr/digits.py"))
    config.training.update(steps=4, **training)
    return _run(path, config, {"loss": 0.1, "accuracy": 0.9}, "accuracy")


def _run(path, config, measured, metric, **further):
    folder = WorkDir(path)
    with folder.claim(config):
        for step in (2, 4):
            folder.log(
                step,
                **{"train/loss": 1 / step, f"validation/{metric}": step / 5},
                elapsed_s=1.0,
            )
    baseline = {"name": "trivial", **{name: 0.5 for name in measured}}
    baseline |= {"n_train": 1000, "n_examples": 100}
    measured = {**measured, "baseline": baseline, **further}
    evaluation = {"split": "test", "step": 4, "logged_step": 4, **measured}
    folder.write("evaluation.json", evaluation)
    return folder


def forecast(path, target=TAGS, other=QUOTES):
    """A run of a forecast, whose file, columns, series and baselines have odd names."""
    file = f"a {other}.npz"
    days = np.datetime64("2024-01-01") + np.arange(N).astype("timedelta64[D]")
    values = np.sin(np.arange(N))
    values[3] = np.nan
    data = {target: values, "day": days, "unread": np.ones((N, 2))}
    path.parent.mkdir(exist_ok=True)
    write_arrays(path.parent / file, data)
    config = load(str(ROOT / "experiments/dlr/digits.py"))
    options = {"window": 4, "horizon": HORIZON, "time": "day", "missing": "last"}
    with config.unlocked():
        config.experiment = other
        config.task = spec(
            SeriesTask, file=file, data_dir=str(path.parent), target=target, **options
        )
        config.training.steps = 4
    errors = {
        name: {
            "mae": mae,
            "r2": 0.5,
            "mae_by_step": [mae] * 3,
            "r2_by_step": [None] * 3,
        }
        for name, mae in (("model", 1.0), (other, 2.0))
    }
    by_series = {name: {target: 1.0, "12": 0.5} for name in errors}
    measured = {"loss": 0.1, "r2": 0.9}
    folder = _run(
        path, config, measured, "r2", forecast=errors, mae_by_series=by_series
    )
    first = np.array([4, 7])
    panel = {
        "series": values[:10],
        "times": days[:10],
        "first": first,
        "model": np.zeros((2, HORIZON)),
        other: np.ones((2, HORIZON)),
        "lower": np.full((2, HORIZON), -1.0),
        "upper": np.full((2, HORIZON), 3.0),
    }
    write_arrays(folder.path / FORECAST_FILE, panel)
    return folder


class Parsed(html.parser.HTMLParser):
    """The elements of a page, its texts, and the scripts that have an attribute."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.sources = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.sources += [v for k, v in attrs if k in ("src", "href", "action")]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def figures(self):
        """What the script of the page draws."""
        held = [text for text in self.texts if text.startswith('{"data"')]
        return [json.loads(text) for text in held]


def render(*folders, figures=None):
    """The page of some runs, parsed."""
    runs = [
        page.Run(folder, report.row_of(folder), figures or {}) for folder in folders
    ]
    return Parsed(page.page(runs))


def test_names_from_files_are_no_code(tmp_path):
    found = render(forecast(tmp_path / f"run\n<i>{QUOTES}"))
    figures = found.figures
    # One script for each figure, that of Plotly and that of the page.
    assert found.tags.count("script") == len(figures) + 2
    assert not {"i", "b", "img"} & {*found.tags} and found.sources == []
    texts = "".join(found.texts)
    assert TAGS in texts and QUOTES in texts and "unread" in texts
    assert "80" in found.texts and "2024-01-01 00:00 to 2024-03-20 00:00" in found.texts
    labels = [trace["name"] for figure in figures for trace in figure["data"]]
    labels += [figure["layout"]["yaxis"]["title"]["text"] for figure in figures]
    assert "model" in labels and not any("<" in label for label in labels)
    assert html.unescape(labels[3]) == QUOTES


def test_forecasts_have_a_gap_after_each_window(tmp_path):
    found = render(forecast(tmp_path / "run")).figures[0]["data"]
    series, band, model, other = found
    assert len(series["x"]) == 10 and len(model["x"]) == 2 * (HORIZON + 1)
    assert model["x"][:4] == [*series["x"][4:7], series["x"][6]]
    assert other["visible"] == "legendonly" and model["visible"] is True
    # The lower end there and the upper one back.
    y = np.frombuffer(base64.b64decode(band["y"]["bdata"]))
    there_and_back = [-1.0] * HORIZON + [3.0] * HORIZON + [np.nan]
    np.testing.assert_array_equal(y, 2 * there_and_back)
    assert band["fill"] == "toself"
    assert band["x"][: 2 * HORIZON] == [*series["x"][4:7], *series["x"][6:3:-1]]


def test_page_shows_the_files_of_a_pattern(tmp_path):
    folder = forecast(tmp_path / "run", "level", "other")
    config = folder.config()
    for name in ("north", "south"):
        shutil.copy(tmp_path / "a other.npz", tmp_path / f"{name}.npz")
    task = config.task.to_dict() | {"file": "*th.npz", "group": "file"}
    folder.write("config.json", config.to_dict() | {"task": task})
    texts = "".join(render(folder).texts)
    assert "2 series" in texts and "cannot be read" not in texts


def test_page_names_the_columns_that_name_a_series_together(tmp_path):
    folder = forecast(tmp_path / "run", "level", "other")
    data = dict(np.load(tmp_path / "a other.npz"))
    names = {"store": np.repeat("N", N), "goods": np.repeat("7", N)}
    write_arrays(tmp_path / "a other.npz", data | names)
    config = folder.config()
    task = config.task.to_dict() | {"group": ["store", "goods"]}
    folder.write("config.json", config.to_dict() | {"task": task})
    texts = render(folder).texts
    assert "store, goods" in texts and "cannot be read" not in "".join(texts)


def test_runs_are_side_by_side_with_the_fields_that_differ_first(tmp_path):
    folders = [classification(tmp_path / "a"), classification(tmp_path / "b", seed=7)]
    found = render(*folders)
    texts = [text for text in found.texts if text.strip()]
    assert {"a", "b", "0.9 ± 0.03", "test accuracy", "0.5 trivial"} <= {*texts}
    place = texts.index("field")
    differing = ["field", "a", "b", "training.seed", "0", "7"]
    assert texts[place : place + 6] == differing
    assert sum("1 differ" in text for text in texts) == 1
    # Two curves of each run; other kinds have no figures of forecasts.
    assert len(found.figures) == 4


def test_page_of_a_language_model_has_intervals_by_length(tmp_path):
    folder = classification(tmp_path / "a")
    row = {"window_state": "zero", "order": "text", "loss": 1.0, "split": "test"}
    lines = [
        {**row, "length": 16, "interval": [0.9, 1.2]},
        {**row, "length": 32, "interval": None},
    ]
    path = folder.path / LENGTHS_FILE
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = render(folder).figures[0]
    assert shown["layout"]["xaxis"]["ticktext"] == ["16", "32"]


def test_further_figures_are_in_the_page(tmp_path):
    found = render(classification(tmp_path / "a"), figures={"kernels": Figure()})
    (source,) = found.sources
    assert source.startswith("data:image/png;base64,")


def test_file_that_is_gone_is_said(tmp_path):
    folder = forecast(tmp_path / "run", "level", "other")
    shutil.move(tmp_path / "a other.npz", tmp_path / "moved.npz")
    assert "The file cannot be read now" in "".join(render(folder).texts)


def test_command_repeats_the_run(tmp_path):
    folder = classification(tmp_path / "it's <one>")
    texts = render(folder).texts
    (command,) = [text for text in texts if text.startswith("python -c")]
    words = subprocess.run(
        ["bash", "-c", f'python() {{ echo "$2"; }}\n{command.splitlines()[0]}'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.dumps(str(folder.path)) in words and "train(" in words


def test_program_writes_the_page_whole_or_not_at_all(tmp_path, monkeypatch, capsys):
    folder = classification(tmp_path / "a")
    file = tmp_path / "page.html"
    words = f"--workdirs={folder.path}", f"--page={file}", "--nofigures"
    assert programs.run(monkeypatch, "report", *words) in (0, None)
    assert capsys.readouterr().out == f"page of 1 run written to {file}\n"
    written = file.read_text()
    (folder.path / "evaluation.json").write_text("{")
    assert programs.run(monkeypatch, "report", *words) == 2
    assert file.read_text() == written
    assert [path.name for path in tmp_path.iterdir()] == ["a", "page.html"]


def test_missing_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.io", None)
    with pytest.raises(ValueError, match=r"--page.*plotly.*ssm_jax\[page\]"):
        page.check_plotly()


PROBE = """<script>addEventListener("load", () => setTimeout(() => {
  const all = [...document.querySelectorAll(".plot")];
  const title = all[0].querySelector(".ytitle");
  parent.postMessage(JSON.stringify({
    run: document.body.dataset.run ?? "no", label: title.textContent,
    width: innerWidth, page: document.documentElement.scrollWidth,
    ink: getComputedStyle(document.body).color, fill: getComputedStyle(title).fill,
    drawn: all.map((plot) => plot.querySelector("svg").clientWidth),
    cards: all.map((plot) => plot.parentElement.clientWidth)}), "*");
}, 500));</script></body>"""
# A window has 500 pixels or more; a frame need not have.
FRAME = """<body><iframe src="page.html" width="{width}" height="900"></iframe><script>
addEventListener("message", (event) => {{
  document.body.textContent = "SEEN" + event.data + "END"; }});
</script></body>"""
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--virtual-time-budget=9000", "--window-size=1600,1000",
    "--dump-dom",
)  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_browser_draws_in_the_scheme_of_the_reader_and_runs_no_name(
    tmp_path, width, scheme
):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium")
    folders = [forecast(tmp_path / "runs" / "a"), forecast(tmp_path / "runs" / "b")]
    runs = [page.Run(folder, report.row_of(folder), {}) for folder in folders]
    text = page.page(runs)
    (tmp_path / "page.html").write_text(text.replace("</body>\n</html>", PROBE))
    (tmp_path / "frame.html").write_text(FRAME.format(width=width))
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    colours = f"--blink-settings=preferredColorScheme={int(scheme == 'light')}"
    shown = subprocess.run(
        [browser, *OPTIONS, profile, colours, f"file://{tmp_path}/frame.html"],
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    match = re.search(r"SEEN(\{.*\})END", html.unescape(shown))
    assert match, shown[-2000:]
    seen = json.loads(match[1])
    assert seen["run"] == "no" and seen["label"] == TAGS
    assert seen["width"] == width and seen["page"] <= width
    widths = zip(seen["drawn"], seen["cards"], strict=True)
    assert len(seen["drawn"]) == 12
    assert all(300 < drawn <= card for drawn, card in widths)
    is_bright = int(re.findall(r"\d+", seen["ink"])[0]) > 128
    assert is_bright == (scheme == "dark") and seen["fill"] == seen["ink"]
