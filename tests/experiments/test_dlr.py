"""The experiments on DLR: the published sizes and settings."""

import jax
import numpy as np
import pytest
from flax.core import meta
from scipy import stats

from experiments.dlr import atomic, listops_subtrees
from ssm_jax.config import build
from ssm_jax.recurrences import DSS
from tests.bad_inputs import refuses
from tests.tiers import tiered

# Of table 1; the heads of Shift have 8 outputs of 128 weights and a bias, those of MIPS
# 4 and encoders of 14 features, those of others one and encoders of 3.
PUBLISHED = {
    "task=cumsum": 1_074_051,
    "task=shift": 1_074_051 + (8 - 1) * 129,
    "task=select": 1_074_051 + 128,
    "task=mips": 1_074_051 + (4 - 1) * 129 + (14 - 3) * 128,
    "task=cumsum,n_layers=6": 6_441_101,
    "task=solve,model=dss": 1_074_179,
}


@pytest.mark.parametrize(
    ("variant", "size"),
    tiered({variant: (variant, n) for variant, n in PUBLISHED.items()}, 2, unpack=True),
)
def test_model_has_as_many_parameters_as_published(variant, size):
    config = atomic.get_config(variant)
    task = build(config.task)
    inputs = jax.ShapeDtypeStruct((1, 64, task.spec.d_input), "float32")
    init = build(config.model).init
    variables = meta.unbox(jax.eval_shape(init, jax.random.key(0), inputs))
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == size


def test_dss_starts_as_in_the_code_of_the_authors(key):
    config = atomic.get_config("task=cumsum,model=dss").model
    dss = build(config.block.layer.recurrence)
    assert (type(dss), dss.kernel, dss.d_state) == (DSS, "exp", 4096)
    params = jax.tree.map(np.float64, dss.init(key, 128))
    # Lambda = -1/2 + i pi n, dt log-uniform per channel, W standard normal.
    np.testing.assert_allclose(-np.exp(params["log_rate"]), -0.5, rtol=1e-6)
    np.testing.assert_allclose(params["frequency"], np.pi * np.arange(4096), rtol=1e-6)
    low, high = np.log([1e-4, 1e-2])
    step = stats.uniform(low, high - low).cdf
    assert stats.kstest(params["log_dt"], step).pvalue > 0.01
    for name in ("w_re", "w_im"):
        assert stats.kstest(params[name].ravel(), "norm").pvalue > 0.01


@pytest.mark.parametrize("task", ["shift", "cumsum"])
def test_published_setting_is_that_of_the_paper(task):
    """Table 1 and the authors' repository."""
    config = atomic.get_config(f"task={task}")
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
    training = config.training
    assert (training.steps, training.batch_size, training.seed) == (43_200, 16, 1112)
    assert (training.evaluate_every, training.evaluation_batches) == (3600, 400)


OTHERS = {
    "task=mips": (1e-4, 4, 172_800, 1600),
    "task=mips,model=dss": (1e-3, 4, 172_800, 1600),
    "task=sort,n_layers=6": (1e-4, 16, 43_200, 400),
    "task=sort,n_layers=6,length=512": (5e-5, 64, 10_800, 100),
    "task=sort,model=dss": (1e-3, 16, 43_200, 400),
}


@pytest.mark.parametrize(("variant", "numbers"), OTHERS.items(), ids=OTHERS)
def test_settings_that_differ_by_row_and_column(variant, numbers):
    config = atomic.get_config(variant)
    training = config.training
    assert numbers == (
        config.optimizer.learning_rate,
        training.batch_size,
        training.steps,
        training.evaluation_batches,
    )
    assert training.evaluate_every * 12 == training.steps


@pytest.mark.parametrize("task", atomic.TASKS)
def test_head_predicts_at_the_last_steps_of_the_task(task):
    config = atomic.get_config(f"task={task}")
    spec, head = build(config.task).spec, build(config.model).head
    assert (head.l_output or spec.length) == spec.l_output
    assert head.d_output == spec.d_output


def test_number_of_shifts_reaches_the_head():
    config = atomic.get_config("task=shift")
    config.task.n_shifts = 3
    assert build(config.model).head.d_output == 3


def test_number_of_states_is_that_of_the_variant():
    config = atomic.get_config("task=shift,model=dlr_real,size=small,d_state=8")
    recurrence = build(config.model.block.layer.recurrence)
    assert (recurrence.d_state, recurrence.eigenvalues) == (8, "real")


def test_length_of_reverse_reaches_the_head():
    config = atomic.get_config("task=reverse")
    config.task.length = 20
    assert build(config.model).head.l_output == 20


def test_states_of_the_reduced_table_decay_as_much_over_a_sequence():
    for model in ("dlr", "dss"):
        full, small = (
            atomic.get_config(f"task=sort,model={model},size={size}")
            for size in ("full", "small")
        )
        for bound in ("dt_min", "dt_max"):
            decays = [
                config.model.block.layer.recurrence[bound] * config.task.length
                for config in (full, small)
            ]
            assert decays[0] == pytest.approx(decays[1])


REFUSED = {
    "size": ("task=sort,size=demo", "sort"),
    "length": ("task=sort,length=512,size=small", 512),
    "task": ("task=sort,size=short", "sort"),
    "d_state": ("task=sort,model=attention,d_state=8", 8),
}


@pytest.mark.parametrize("name", REFUSED)
def test_size_that_does_not_exist_is_refused(name):
    variant, value = REFUSED[name]
    with refuses(f"variant: {name}", value):
        atomic.get_config(variant)


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
