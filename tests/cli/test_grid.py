"""The runs of a grid: the product of its axes, and axes that are refused."""

import pytest
from absl import flags

from ssm_jax.cli.grid import cells, parse_grid
from tests.bad_inputs import refuses

# ml_collections loads the experiment by a call that importlib wants replaced.
pytestmark = pytest.mark.filterwarnings("ignore:.*load_module:DeprecationWarning")
DIGITS_FILE = ["sweep", "--config=experiments/dlr/digits.py"]


def test_cells_are_the_product_of_the_axes_the_last_fastest(tmp_path):
    axes = ["optimizer.learning_rate=1e-3,3e-3", "training.seed=0,1"]
    runs = cells(DIGITS_FILE, axes, str(tmp_path))
    chosen = [
        (cell.config.optimizer.learning_rate, cell.config.training.seed)
        for cell in runs
    ]
    assert chosen == [(1e-3, 0), (1e-3, 1), (3e-3, 0), (3e-3, 1)]
    path = tmp_path / "optimizer.learning_rate=3e-3" / "training.seed=0"
    assert runs[2].workdir == path


def test_overrides_hold_for_all_cells_and_references_follow_the_grid(tmp_path):
    line = [*DIGITS_FILE, "--config.training.batch_size=7"]
    runs = cells(line, ["training.steps=10,20"], str(tmp_path))
    assert [cell.config.training.batch_size for cell in runs] == [7, 7]
    # The schedule ends with the training.
    assert [cell.config.optimizer.schedule_steps for cell in runs] == [10, 20]


def test_commas_in_brackets_and_quotes_do_not_separate():
    grid = parse_grid(["a=(0, 1),(0, 2)", "config.b='x,y',z"])
    assert [cell["a"] for cell in grid] == ["(0, 1)"] * 2 + ["(0, 2)"] * 2
    assert [cell["b"] for cell in grid] == ["'x,y'", "z"] * 2


@pytest.mark.parametrize(
    "axes", [["seed"], ["training.seed="], ["training.seed=0,,1"], ["=1"]]
)
def test_malformed_axes_are_refused(axes):
    with refuses("--grid", rule="FIELD=VALUE"):
        parse_grid(axes)


@pytest.mark.parametrize("axes", [["a=1,1"], ["a=1", "config.a=2"]])
def test_repeated_fields_and_values_are_refused(axes):
    with refuses("--grid", rule="once"):
        parse_grid(axes)


def test_values_with_one_name_are_refused(tmp_path):
    with refuses("--grid", rule="different names"):
        cells(DIGITS_FILE, ["model.block.norm=layer,layer /,layer_"], str(tmp_path))


def test_a_field_that_is_not_there_is_refused_with_the_nearest(tmp_path):
    with pytest.raises((ValueError, flags.Error), match="learning_rate"):
        cells(DIGITS_FILE, ["optimizer.learning_rat=1"], str(tmp_path))


def test_a_value_of_another_type_is_refused(tmp_path):
    with pytest.raises(flags.Error, match="much"):
        cells(DIGITS_FILE, ["training.steps=much"], str(tmp_path))
