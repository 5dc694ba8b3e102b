"""The experiment on Pathfinder-Segmentation: the published settings."""

import jax
import numpy as np
import pytest

from experiments.dlr import pathfinder_segmentation
from experiments.dlr.patches import PatchEncoder
from ssm_jax.config import build
from ssm_jax.recurrences import DLR, DSS

# Table 3 and the authors' repository: layers, channels, states, rates of DLR and DSS,
# images per step, epochs, warmup, and steps of the schedule.
PUBLISHED = {
    128: (5, 128, 1024, 1e-4, 1e-3, 16, 30, 3_000, 150_000),
    256: (6, 128, 1024, 5e-5, 5e-4, 18, 40, 1_000, 200_000),
    512: (12, 64, 2048, 1e-5, 5e-4, 14, 21, 200, 600_000),
}


@pytest.mark.parametrize("model", ["dlr", "dss"])
@pytest.mark.parametrize("pixels", PUBLISHED)
def test_setting_is_the_published_one(pixels, model):
    layers, width, states, dlr, dss, batch, epochs, warmup, end = PUBLISHED[pixels]
    choice = "" if model == "dlr" else ",model=dss"
    config = pathfinder_segmentation.get_config(f"pixels={pixels}{choice}")
    network, optimizer = config.model, config.optimizer
    assert (network.n_layers, network.encoder.d_model) == (layers, width)
    assert (network.block.prenorm, network.block.norm) == (True, "scalar")
    assert network.block.layer.mixing.kind == "glu"
    recurrence = build(network.block.layer.recurrence)
    kind, dt_max = (DLR, 1e-1) if model == "dlr" else (DSS, 1e-2)
    assert isinstance(recurrence, kind)
    assert (recurrence.d_state, recurrence.bidirectional) == (states, True)
    assert (recurrence.dt_min, recurrence.dt_max) == (1e-4, dt_max)
    assert optimizer.learning_rate == (dlr if model == "dlr" else dss)
    assert (optimizer.schedule, optimizer.weight_decay) == ("cosine", 0)
    assert (optimizer.warmup_steps, optimizer.schedule_steps) == (warmup, end)
    training, task = config.training, build(config.task)
    assert training.batch_size == batch and training.seed == 1112
    assert training.steps == epochs * (task.n_examples("train") // batch)
    assert task.spec.length == pixels**2


def test_patch_sees_a_square_of_pixels_and_no_more():
    config = pathfinder_segmentation.get_config("pixels=32,model=patch,size=small")
    model = build(config.model)
    x = jax.random.normal(jax.random.key(0), (1, 32 * 32, 1))
    variables = model.init(jax.random.key(1), x)

    def middle(x):
        y, _ = model.apply(variables, x)
        return y.reshape(32, 32, 3)[16, 12, 0]

    gradient = np.abs(np.asarray(jax.grad(middle)(x)).reshape(32, 32))
    seen = np.argwhere(gradient > 1e-5 * gradient.max())  # FFTs round.
    assert (seen.min(axis=0).tolist(), seen.max(axis=0).tolist()) == ([12, 8], [20, 16])


def test_patches_are_of_square_images():
    with pytest.raises(ValueError, match="pixels of square images, got 15 steps"):
        PatchEncoder(d_model=2).init(jax.random.key(0), np.ones((1, 15, 1)))
