"""Figures against the data that they show."""

import itertools

import numpy as np
import pytest
from matplotlib.text import Text

from experiments.etsmlp.figures import proposition_1
from ssm_jax import plots
from ssm_jax.plots.style import PAGE

LINES = [
    {"step": 10, "train/loss": 2.0, "train/accuracy": 0.2},
    {"step": 20, "train/loss": 0.5, "train/accuracy": 0.8, "validation/loss": 0.6,
     "validation/accuracy": 0.7},
    {"step": 30, "train/loss": 0.1, "train/accuracy": 0.9, "validation/loss": 0.2,
     "validation/accuracy": 0.85},
]  # fmt: skip


def drawn(axes):
    """Data of each line, by label."""
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def test_curves_are_the_metrics():
    loss, accuracy = plots.curves(LINES, "accuracy", "x").axes
    assert drawn(loss) == {
        "train": [[10, 2.0], [20, 0.5], [30, 0.1]],
        "validation": [[20, 0.6], [30, 0.2]],
    }
    assert drawn(accuracy)["validation"] == [[20, 0.7], [30, 0.85]]
    assert loss.get_yscale() == "log"


def test_memory_has_a_panel_for_distances_and_one_for_states():
    found = {
        "trained": 4,
        "length": 16,
        "starts": [0, 8, 15],
        "effective_remembrance": [0.0, 0.1, 0.9],
        "positions": [4, 8],
        "states": [
            {"name": "0", "norm": [1.0, 2.0], "deviation": [0.1, 0.2]},
            {"name": "1", "norm": [3.0, 3.0], "deviation": [0.1, 0.1]},
        ],
    }
    distances, sizes = (drawn(axes) for axes in plots.memory(found, "x").axes)
    assert [[0, 0.0], [8, 0.1], [15, 0.9]] in distances.values()
    assert sizes["state 0"] == [[4, 1.0], [8, 2.0]]
    assert sizes["state 1"] == [[4, 3.0], [8, 3.0]]


def test_accuracy_is_drawn_by_length_and_by_position():
    rows = [
        {
            "length": length,
            "accuracy": 1.0,
            "last_accuracy": last,
            "chance": 0.5,
            "trained": 4,
            "accuracy_by_position": [
                {"until": length // 2, "accuracy": 1.0, "n_targets": 9},
                {"until": length, "accuracy": last, "n_targets": 9},
            ],
        }
        for length, last in ((4, 0.9), (16, 0.6))
    ]
    lengths, positions = (
        drawn(axes) for axes in plots.accuracy_by_length(rows, "x").axes
    )
    assert lengths["all targets"] == [[4, 1.0], [16, 1.0]]
    assert lengths["last target"] == [[4, 0.9], [16, 0.6]]
    assert positions["16 steps"] == [[8, 1.0], [16, 0.6]]


def test_masks_are_drawn_below_their_images():
    inputs, targets = np.arange(18.0).reshape(2, 9, 1), np.arange(18).reshape(2, 9) % 3
    panels = plots.masks(inputs, targets, {"a": targets[:, ::-1]}, "x").axes
    shown = [axes.images[0].get_array().reshape(-1).tolist() for axes in panels]
    rows = inputs[..., 0], targets, targets[:, ::-1]
    assert shown == [image.tolist() for row in rows for image in row]


def test_perplexity_is_drawn_on_a_logarithmic_scale():
    lines = [{"step": 1, "train/loss": 2.0, "train/perplexity": 7.4}]
    _, perplexity = plots.curves(lines, "perplexity", "x").axes
    assert drawn(perplexity) == {"train": [[1, 7.4]]}
    assert perplexity.get_yscale() == "log"


def test_gradients_have_a_curve_per_measured_step():
    def line(step, *values):
        """At positions 4 and 16, in the three norms, of steps and of outputs."""
        kinds = (("gradient", 1.0), ("gradient_outputs", 8.0))
        return {"step": step} | {
            f"{kind}/{norm}/{place}": value * by * factor
            for kind, by in kinds
            for norm, factor in (("l1", 2.0), ("l2", 1.0), ("linf", 0.5))
            for place, value in zip((16, 4), values, strict=True)
        }

    lines = [line(0, 0.5, 0.25), {"step": 10, "train/loss": 2.0}, line(20, 1.0, 2.0)]
    figure = plots.gradients(lines, "x")
    assert figure is not None
    for axes, factor in zip(figure.axes, (2, 1, 0.5, 16, 8, 4), strict=True):
        assert drawn(axes) == {
            "step 0": [[4, 0.25 * factor], [16, 0.5 * factor]],
            "step 20": [[4, 2.0 * factor], [16, 1.0 * factor]],
        }
    assert plots.gradients(lines[1:2], "x") is None


def length_rows(*values, trained=16):
    return [
        {
            "window_state": s,
            "order": "text",
            "length": n,
            "perplexity": p,
            "trained": trained,
        }
        for s, n, p in values
    ]


def test_lengths_of_runs_have_a_line_per_run_and_a_name_per_experiment():
    zero = length_rows(("zero", 16, 3.0), ("zero", 64, 4.0))
    carried = length_rows(
        ("zero", 32, 3.5), ("zero", 64, 2.0), ("carry", 64, 1.0), trained=32
    )
    runs = [("a", zero), ("a", zero), ("b", carried)]
    (axes,) = plots.lengths_of_runs(runs, "x").axes
    curves = [line for line in axes.lines if len({*line.get_xdata()}) > 1]
    assert [line.get_label() for line in curves][::2] == ["a", "b"]
    first, second, third = (line.get_color() for line in curves)
    assert first == second != third
    assert [*curves[-1].get_ydata()] == [3.5, 2.0]
    assert sorted(line.get_xdata()[0] for line in axes.lines[-2:]) == [16, 32]


def test_lengths_have_a_line_per_evaluation():
    rows = length_rows(("zero", 16, 3.0), ("zero", 64, 4.0), ("carry", 16, 2.0))
    shown = drawn(plots.lengths(rows, "x").axes[0])
    assert shown["zero state, text"] == [[16, 3.0], [64, 4.0]]
    # A horizontal line across the panel.
    assert shown["carried state, text"] == [[0, 2.0], [1, 2.0]]
    # What is null in the file is left out.
    shown = drawn(
        plots.lengths([row | {"perplexity": None} for row in rows], "x").axes[0]
    )
    assert np.isnan(np.array(shown["zero state, text"])[:, 1]).all()
    assert "carried state, text" not in shown


def test_kernels_have_a_panel_per_channel_and_layer():
    kernels = np.random.default_rng(0).normal(size=(2, 3, 16))
    panels = plots.convolution_kernels(kernels, np.arange(-8, 8), "x").axes
    shown = np.array([panel.lines[0].get_ydata() for panel in panels])
    by_layer = shown.reshape(3, 2, 16).transpose(1, 0, 2)
    energies = np.square(by_layer).sum(-1)
    assert np.all(np.diff(energies) <= 0)
    np.testing.assert_array_equal(np.sort(by_layer, 1), np.sort(kernels, 1))


def test_kernels_are_labelled_with_their_share_of_the_energy():
    kernels, energies = np.ones((1, 2, 4)), np.array([[0.1, 0.4]])
    channels = np.array([[7, 3]])
    panels = plots.convolution_kernels(
        kernels, np.arange(4), "x", channels=channels, energies=energies
    ).axes
    labels = [panel.get_title("left") for panel in panels]
    assert labels == ["layer 0, channel 3: 40%", "layer 0, channel 7: 10%"]


def test_eigenvalues_are_drawn_at_their_positions():
    log_abs, phase = np.log([[0.5, 1.0]]), np.array([[0.0, np.pi / 2]])
    figure = plots.eigenvalues(log_abs, phase, log_abs - 1, phase, "x")
    disc, memory = figure.axes
    before, after = (points.get_offsets().data for points in disc.collections)
    np.testing.assert_allclose(after, [[0.5, 0], [0, 1]], atol=1e-12)
    np.testing.assert_allclose(before, after / np.e, atol=1e-12)
    steps = memory.collections[1].get_offsets().data[:, 1]
    assert steps[0] == pytest.approx(1 / np.log(2)) and np.isfinite(steps[1])


def test_images_show_the_predicted_class():
    inputs = np.arange(8.0).reshape(2, 4, 1)
    probabilities = np.array([[0.1, 0.9], [0.7, 0.3]])
    panels = plots.images(inputs, np.array([1, 1]), probabilities, "x").axes
    titles = [panel.get_title() for panel in panels if panel.get_title()]
    assert titles == ["1", "0, is 1"]
    image = panels[0].images[0].get_array()
    np.testing.assert_array_equal(image, [[0.0, 1.0], [2.0, 3.0]])


def test_sequences_show_target_and_prediction():
    targets = np.random.default_rng(0).normal(size=(2, 16, 5))
    panels = plots.sequences(targets, targets + 1, "x", names=["a", "b"]).axes
    assert len(panels) == 8  # Of each the first and the last output, two panels each.
    for example, (left, right) in enumerate([panels[2:4], panels[6:]]):
        assert left.get_title("left") == f"{'ab'[example]}, output 4"
        expected = {"target": 0.0, "prediction": 1.0}
        for line, (name, more) in zip(left.lines, expected.items(), strict=True):
            assert line.get_label() == name
            wanted = targets[example, :, 4] + more
            np.testing.assert_array_equal(line.get_ydata(), wanted)
        np.testing.assert_array_equal(
            right.lines[0].get_xdata(), targets[example, :, 4]
        )


@pytest.mark.full
def test_figures_are_saved_for_the_screen_and_for_print(tmp_path):
    drawing = plots.curves(LINES, "accuracy", "x")
    png, pdf = plots.save(drawing, tmp_path / "curves.png")
    assert png.read_bytes().startswith(b"\x89PNG")
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF") and b"/FontFile2" in content  # TrueType
    assert plots.save(drawing, tmp_path / "b.pdf") == [tmp_path / "b.pdf"]
    assert (tmp_path / "b.pdf").read_bytes() == content  # There is no date in it.


def test_names_with_dollar_signs_are_text(tmp_path):
    figure = plots.curves(LINES, "accuracy", r"$\evil$ in $")
    plots.save(figure, tmp_path / "a.svg")
    loss, _ = figure.axes
    assert not loss.title.get_parse_math()
    # Ticks of a logarithmic axis are formulas.
    assert all(text.get_parse_math() for text in loss.get_yticklabels())


def test_figure_replaces_a_link_and_not_what_it_leads_to(tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "a.png").symlink_to(tmp_path / "mine")
    plots.save(plots.curves(LINES, "accuracy", "x"), tmp_path / "a.png")
    assert (tmp_path / "mine").read_text() == "kept"
    assert not (tmp_path / "a.png").is_symlink()


def test_figures_are_as_wide_as_a_page_at_most():
    probabilities = np.full((10, 10), 0.1)
    images = np.zeros((10, 64, 1))
    figures = [
        plots.curves(LINES, "accuracy", "x"),
        plots.convolution_kernels(np.zeros((6, 4, 8)), np.arange(8), "x"),
        plots.eigenvalues(*np.zeros((4, 6, 3)), "x"),
        plots.images(images, np.zeros(10, int), probabilities, "x"),
        plots.masks(images, np.zeros((10, 64), int), {}, "x"),
    ]
    for drawing in figures:
        assert drawing.get_figwidth() <= PAGE


def test_throughput_has_a_line_per_model():
    rows = [
        {"what": what, "length": n, "tokens_a_second": n * k, "step_bytes": n * 2**20}
        for what, k in (("a", 1), ("b", 2))
        for n in (512, 256)
    ]
    speed, memory = plots.throughput(rows, "cpu").axes
    assert drawn(speed) == {
        "a": [[256, 256], [512, 512]],
        "b": [[256, 512], [512, 1024]],
    }
    assert drawn(memory)["a"] == [[256, 256], [512, 512]]


@pytest.mark.full
def test_gradients_of_proposition_1_are_drawn():
    panels = proposition_1.draw().axes
    assert len(panels) == 6
    (by_lambda, by_real, _) = (drawn(axes)["real λ"] for axes in panels[:3])
    assert by_lambda[0][1] > 1000 > 1 > by_real[0][1]


def test_forecasts_are_drawn_from_their_first_steps():
    series = np.array([1.0, 2.0, np.nan, 4.0, 5.0, 6.0])
    found = {"first": np.array([2, 4]), "model": np.array([[7.0, 8.0], [9.0, 3.0]])}
    errors = {
        "model": {"mae_by_step": [1.0, 2.0], "r2_by_step": [0.5, None]},
        "seasonal": {"mae_by_step": [3.0, 4.0], "r2_by_step": [0.1, 0.2]},
    }
    figure = plots.forecasts(series, found, errors, name="level", title="x")
    (above,), (mae, r2) = (part.axes for part in figure.subfigs)
    shown = [line.get_xydata().tolist() for line in above.lines]
    assert shown[1] == [[2, 7], [3, 8]] and shown[3] == [[4, 9], [5, 3]]
    np.testing.assert_array_equal(above.lines[0].get_ydata(), series)
    assert drawn(mae)["seasonal"] == [[1, 3.0], [2, 4.0]]
    assert np.isnan(drawn(r2)["model"][1][1])
    assert above.get_ylabel() == "level"


def test_forecasts_have_dates_where_they_are_known():
    series, times = np.arange(4.0), np.datetime64("2024-05-01") + np.arange(4)
    found = {"first": np.array([2]), "model": np.array([[2.5, 3.5]])}
    errors = {"model": {"mae_by_step": [0.5, 0.5], "r2_by_step": [None, None]}}
    words = {"name": "level", "title": "x"}
    figure = plots.forecasts(series, found, errors, **words, times=times)
    values, predicted, _ = figure.axes[0].lines
    np.testing.assert_array_equal(values.get_xdata(), times)
    np.testing.assert_array_equal(predicted.get_xdata(), times[2:])
    figure.draw_without_rendering()
    assert "May" in figure.axes[0].xaxis.get_major_formatter().get_offset()


@pytest.mark.parametrize(
    ("first", "step", "n"),
    [
        ("2023-10-20", "D", 150),
        ("2024-02-27T05", "h", 9 * 24),
        ("2024-03-01T21:17", "m", 30 * 60),
    ],
)
def test_dates_neither_overlap_nor_repeat_the_year(first, step, n):
    times = (np.datetime64(first, step) + np.arange(n)).astype("M8[us]")
    found = {"first": np.array([n // 2]), "model": np.zeros((1, 9))}
    errors = {"model": {"mae_by_step": [0.5] * 9, "r2_by_step": [None] * 9}}
    words = {"name": "level", "title": "x"}
    figure = plots.forecasts(np.arange(n), found, errors, **words, times=times)
    figure.draw_without_rendering()
    axis = figure.axes[0].xaxis
    low, high = axis.get_view_interval()
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [tick.label1.get_window_extent() for tick in ticks]
    assert len(boxes) >= 4
    for one, other in itertools.pairwise(boxes):
        assert one.x1 + 2 < other.x0
    offset = axis.get_major_formatter().get_offset()
    shown = [tick.label1.get_text() for tick in ticks] + [offset]
    assert sum("202" in text for text in shown) == 1


LONG = "electricity_transformer.py:model=s4d,size=large,window=336,horizon=96,seed=12"


@pytest.mark.parametrize(
    "drawing",
    [
        lambda: plots.curves(LINES, "accuracy", LONG * 2),
        lambda: plots.convolution_kernels(np.ones((5, 1, 8)), np.arange(8), LONG),
        lambda: plots.sweep(
            {f"{LONG}{i}": {"a" * 20: [0.5], "b" * 20: [0.6]} for i in range(20)},
            **{"field": "x", "metric": LONG, "baseline": 0.1, "title": LONG},
        ),
    ],
)
def test_long_names_are_within_the_figure(drawing):
    figure = drawing()
    figure.draw_without_rendering()
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text() and LONG[:6] in text.get_text():
            box, whole = text.get_window_extent(), figure.bbox
            assert whole.x0 <= box.x0 and box.x1 <= whole.x1, text
            assert whole.y0 <= box.y0 and box.y1 <= whole.y1, text


@pytest.mark.parametrize(
    ("losses", "ticks"),
    [
        ((2.2, 0.4), ["0.5", "1", "2"]),
        ((2.31, 2.29), ["2.29", "2.3", "2.31"]),
        ((900.0, 1.0), ["1", "10", "100"]),
    ],
)
def test_ticks_of_few_decades_are_plain_numbers(losses, ticks):
    lines = [{"step": i, "train/loss": loss} for i, loss in enumerate(losses)]
    loss, _ = plots.curves(lines, "accuracy", "x").axes
    loss.figure.draw_without_rendering()
    assert {*ticks} <= {text.get_text() for text in loss.get_yticklabels()}
    assert not any(text.get_text() for text in loss.get_yticklabels(minor=True))


def test_points_without_neighbours_are_marked():
    loss, _ = plots.curves(LINES[:1], "accuracy", "x").axes
    assert loss.lines[0].get_marker() == "o"
    series = np.array([[1.0, np.nan, 2.0, 3.0, np.nan, 4.0]])[..., None]
    axes = plots.batch(series, np.zeros((1, 1)), None, "x").axes[0]
    assert list(axes.lines[0].get_markevery()) == [0, 5]


def test_axes_of_the_disc_fit_eigenvalues_near_its_edge():
    log_abs, phase = np.array([[-1e-3, -4e-3]]), np.array([[0.0, 0.003]])
    disc, memory = plots.eigenvalues(log_abs, phase, log_abs, phase, "x").axes
    assert np.ptp(disc.get_xlim()) < 0.01 and disc.get_xlim()[1] > 1
    assert np.ptp(memory.get_xlim()) < 0.01
