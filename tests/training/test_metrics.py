"""A number that a layer sows reaches metrics.jsonl under its name, reduced rightly."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.config import build
from ssm_jax.metrics import METRICS_COLLECTION, R2, Max, Mean, sown_metrics
from ssm_jax.models import VectorEncoder
from ssm_jax.training import WorkDir, loop, setup
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.step import _with_sown
from tests.bad_inputs import refuses
from tests.tiers import tiered
from tests.training import tiny


class Sowing(VectorEncoder):
    """An encoder that measures its input, one line for each number."""

    def __call__(self, inputs, *args, **kwargs):
        self.sow(METRICS_COLLECTION, "input_mean", Mean(jnp.sum(inputs), inputs.size))
        self.sow(METRICS_COLLECTION, "input_max", Max(inputs))
        return super().__call__(inputs, *args, **kwargs)


@pytest.mark.parametrize("n_devices", tiered([1, 8]))
def test_sown_numbers_reach_the_log(tmp_path, monkeypatch, n_devices):
    def with_sowing(config, path, **runtime):
        built = build(config, path, **runtime)
        return built.clone(encoder=Sowing(d_model=4)) if "model" in path else built

    parallel = partial(DataParallel, devices=jax.devices()[:n_devices])
    monkeypatch.setattr(setup, "build", with_sowing)
    monkeypatch.setattr(setup, "DataParallel", parallel)
    config = tiny.shift(steps=2, log_every=2)
    loop.train(config, str(tmp_path))
    (line,) = WorkDir(tmp_path).metrics()
    task = build(config.task, "config.task")
    inputs = np.stack([task.batch("train", i, 16, 0).inputs for i in range(2)])
    np.testing.assert_allclose(line["train/input_mean"], inputs.mean(), atol=1e-6)
    assert line["train/input_max"] == inputs.max()
    validation = [task.batch("validation", i, 16, 0).inputs for i in range(2)]
    assert line["validation/input_max"] == np.max(validation)


class Layers(nn.Module):
    """Two layers that sow under one name, and a plain number."""

    def setup(self):
        self.layers = [Sowing(d_model=2), Sowing(d_model=2)]

    def __call__(self, x):
        for scale, layer in zip((1, 3), self.layers, strict=True):
            layer(scale * x)
        self.sow(METRICS_COLLECTION, "plain", 5.0)


def test_numbers_of_several_layers_are_reduced():
    x = jnp.arange(6.0).reshape(1, 3, 2)
    _, sown = Layers().init_with_output(jax.random.key(0), x)
    found = sown_metrics(sown[METRICS_COLLECTION])
    values = {name: reduction.compute() for name, reduction in found.items()}
    assert values == {"input_mean": 5.0, "input_max": 15.0, "plain": 5.0}


def test_a_name_with_two_reductions_is_refused():
    sown = {"a": {"x": (Mean(1.0),)}, "b": {"x": (Max(1.0),)}}
    with pytest.raises(ValueError, match="`x` must be sown as one reduction"):
        sown_metrics(sown)


@pytest.mark.parametrize("name", ["loss", "r2", "r2_batch"])
def test_name_of_a_metric_of_the_loss_may_not_be_sown(name):
    sums = {"loss": Mean(1.0), "r2": R2(1.0, 1.0, 1.0, 1.0)}
    with refuses(name, rule="sown"):
        _with_sown(sums, {"layer": {name: (1.0,)}})
