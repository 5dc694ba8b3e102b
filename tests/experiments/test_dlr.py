"""The experiments on DLR: the published sizes and settings."""

import jax
import numpy as np
import pytest
from flax.core import meta
from scipy import stats

from experiments.dlr import cumsum, shift
from ssm_jax.config import build, spec
from ssm_jax.recurrences import DSS

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


def test_baseline_dss_has_as_many_parameters_as_published(key):
    """DSS-exp with one output, and its initialization in the authors' repository."""
    dss = {"d_state": 4096, "eigenvalue_init": "lin", "dt_min": 1e-4, "dt_max": 1e-2}
    config = cumsum.get_config().model
    config.block.layer.recurrence = spec(DSS, kernel="exp", **dss)
    inputs = jax.ShapeDtypeStruct((1, 64, 3), "float32")
    variables = jax.eval_shape(build(config).init, jax.random.key(0), inputs)
    leaves = jax.tree.leaves(meta.unbox(variables))
    assert sum(leaf.size for leaf in leaves) == 1_074_179
    params = jax.tree.map(np.float64, DSS(**dss).init(key, 128))
    # Lambda = -1/2 + i pi n, dt log-uniform per channel, W standard normal.
    np.testing.assert_allclose(-np.exp(params["log_rate"]), -0.5, rtol=1e-6)
    np.testing.assert_allclose(params["frequency"], np.pi * np.arange(4096), rtol=1e-6)
    low, high = np.log([1e-4, 1e-2])
    step = stats.uniform(low, high - low).cdf
    assert stats.kstest(params["log_dt"], step).pvalue > 0.01
    for name in ("w_re", "w_im"):
        assert stats.kstest(params[name].ravel(), "norm").pvalue > 0.01


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
