"""Every experiment on DLR: it builds, has the published size and, shrunk, it trains."""

import math

import jax
import pytest
from flax.core import meta
from ml_collections import ConfigDict

from experiments.dlr import cumsum, digits, pixel_mnist, shift
from launch import cli
from ssm_jax.config import build, differences, from_json, to_json
from ssm_jax.training import train

VARIANTS = {
    shift: ("", "demo"),
    cumsum: ("", "demo"),
    digits: ("",),
    pixel_mnist: ("", "permuted", "small"),
}
TABLE = [
    pytest.param(file, variant, id=f"{file.__name__.split('.')[-1]}-{variant}")
    for file, variants in VARIANTS.items()
    for variant in variants
]
each_experiment = pytest.mark.parametrize(("file", "variant"), TABLE)


@pytest.fixture
def data(mnist_dir):
    """What a task must be told of the data that the tests have."""
    return {"data_dir": mnist_dir, "n_validation": 10}


@each_experiment
def test_config_is_named_as_its_file_and_goes_through_json(file, variant):
    config = file.get_config(variant)
    path = file.__name__.removeprefix("experiments.").replace(".", "/")
    assert config.experiment == path
    assert differences(from_json(to_json(config)), config) == []


@each_experiment
def test_config_builds_and_its_parts_fit(file, variant):
    config = file.get_config(variant)
    task = build(config.task, "config.task")
    model = build(config.model, "config.model", axis_name="data")
    optimizer = build(config.optimizer, "config.optimizer")
    training = build(config.training, "config.training")
    assert model.head.d_output == task.spec.d_output
    assert optimizer.schedule_steps in (None, training.steps)
    assert training.evaluate_every <= training.steps


# Of table 1; the heads of Shift have 8 outputs of 128 weights and a bias, that of
# CumSum has one.
PUBLISHED = {shift: 1_074_051 + (8 - 1) * 129, cumsum: 1_074_051}


@pytest.mark.parametrize(("file", "size"), PUBLISHED.items(), ids=["shift", "cumsum"])
def test_model_has_as_many_parameters_as_published(file, size):
    config = file.get_config()
    task = build(config.task)
    inputs = jax.ShapeDtypeStruct((1, 64, task.spec.d_input), "float32")
    init = build(config.model).init
    variables = meta.unbox(jax.eval_shape(init, jax.random.key(0), inputs))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == size


@pytest.mark.parametrize("file", [shift, cumsum], ids=["shift", "cumsum"])
def test_published_setting_is_that_of_the_paper(file):
    """Table 1 and the authors' repository."""
    config = file.get_config()
    recurrence = config.model.block.layer.recurrence
    assert config.task.length == 4096
    assert (config.model.n_layers, config.model.encoder.d_model) == (1, 128)
    assert (recurrence.d_state, recurrence.dt_min, recurrence.dt_max) == (
        4096,
        1e-5,
        1e-5,
    )
    assert (config.model.block.norm, config.model.block.prenorm) == ("scalar", False)
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (1e-4, 0)
    assert (config.training.steps, config.training.batch_size) == (43_200, 16)


def shrunk(config: ConfigDict, data: dict) -> ConfigDict:
    """The same experiment at a size that trains in seconds."""
    task, training = config.task, config.training
    task.update({name: value for name, value in data.items() if name in task})
    if "length" in task:
        task.length = 32
    config.model.update(n_layers=1)
    config.model.encoder.d_model = 4
    config.model.block.layer.recurrence.d_state = 4
    config.optimizer.warmup_steps = 0
    training.update(steps=2, batch_size=8, evaluation_batches=1)
    return config


@each_experiment
def test_shrunk_experiment_trains(file, variant, data, tmp_path):
    config = shrunk(file.get_config(variant), data)
    measured = train(config, str(tmp_path))
    assert measured["step"] == 2
    assert all(math.isfinite(value) for value in measured.values())


def test_number_of_shifts_reaches_the_head():
    config = shift.get_config()
    config.task.n_shifts = 3
    assert build(config.model).head.d_output == 3


@pytest.mark.parametrize("file", VARIANTS, ids=lambda file: file.__name__)
def test_unknown_variant_is_one_line_to_the_caller(file, capsys):
    with pytest.raises(SystemExit) as exit, cli.one_line_errors():
        file.get_config("tiny")
    assert exit.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the variant must be one of ")
    assert "got 'tiny'" in line
