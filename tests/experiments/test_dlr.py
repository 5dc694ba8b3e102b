"""The experiments on DLR: the published sizes and settings."""

import jax
import pytest
from flax.core import meta

from experiments.dlr import cumsum, listops_subtrees, shift
from ssm_jax.config import build

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


def test_number_of_shifts_reaches_the_head():
    config = shift.get_config()
    config.task.n_shifts = 3
    assert build(config.model).head.d_output == 3


@pytest.mark.parametrize(
    ("variant", "rate", "dt_max"), [("", 8e-4, 1e-1), ("model=dss", 1e-3, 1e-2)]
)
def test_setting_of_listops_subtrees_is_that_of_the_authors(variant, rate, dt_max):
    """Table 3, completed from the authors' repository."""
    config = listops_subtrees.get_config(variant)
    model, optimizer, training = config.model, config.optimizer, config.training
    recurrence = model.block.layer.recurrence
    assert (model.n_layers, model.encoder.d_model) == (6, 128)
    assert (recurrence.d_state, recurrence.get("bidirectional", False)) == (1024, False)
    built = build(recurrence)
    assert (built.dt_min, built.dt_max) == (1e-4, dt_max)
    assert (model.block.norm, model.block.get("prenorm", False)) == ("scalar", False)
    assert model.block.layer.mixing.kind == "glu"
    assert (optimizer.learning_rate, optimizer.weight_decay) == (rate, 0.01)
    assert (optimizer.schedule, optimizer.warmup_steps) == ("cosine", 5_000)
    assert optimizer.schedule_steps == training.steps == 300_000
    assert build(config.task).n_examples("train") * 100 == 300_000 * training.batch_size
