"""The experiment on PG-19: the published sizes and settings."""

import jax
import pytest
from flax.core import meta

from experiments.dlr import pg19
from ssm_jax.config import build
from ssm_jax.recurrences import DLR
from tests.tiers import tiered

# Table 5, with its unit in the last digit that is printed.
PUBLISHED = {
    "model=transformer,experts=1": (36e6, 1e6),
    "model=transformer": (318e6, 1e6),
    "model=transformer,experts=64": (1.2e9, 1e8),
    "": (312e6, 1e6),
    "experts=64": (1.2e9, 1e8),
}


def shapes(variant):
    model = build(pg19.get_config(variant).model)
    tokens = jax.ShapeDtypeStruct((1, 16), "int32")
    return jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]


@pytest.mark.parametrize(
    ("variant", "size", "unit"),
    tiered({key: (key, *size) for key, size in PUBLISHED.items()}, 0, unpack=True),
)
def test_model_has_about_as_many_parameters_as_published(variant, size, unit):
    leaves = jax.tree.leaves(meta.unbox(shapes(variant)))
    n_parameters = sum(leaf.size for leaf in leaves)
    # The widths are inferred from these numbers.
    assert abs(n_parameters - size) <= max(unit / 2, 0.015 * size)


def test_setting_is_the_published_one():
    config = pg19.get_config()
    dlr = build(config.model.block.layer.recurrence)
    assert isinstance(dlr, DLR) and (dlr.dt_min, dlr.dt_max) == (1e-3, 1e-1)
    assert dlr.lr_multiplier * config.optimizer.learning_rate == pytest.approx(2e-4)
    assert config.optimizer.weight_decay == 0.1
    assert (config.model.n_layers, config.model.encoder.d_embedding) == (16, 128)
    assert (config.task.length, config.training.batch_size) == (4096, 120)
    experts = config.model.block.feedforward
    assert (experts.capacity_factor, experts.eval_capacity_factor) == (1.0, 2.0)
    assert config.model.head is None
    attention = pg19.get_config("model=transformer").model.block.layer
    assert (attention.n_heads, attention.d_head) == (8, 64)
    assert config.model.block.prenorm
    assert not pg19.get_config("norm=post").model.block.prenorm
