"""The experiments on ETSMLP: the published settings, and what a variant changes."""

import jax
import numpy as np
import pytest
from flax.core import meta

from experiments.etsmlp import (
    baselines,
    image,
    language,
    listops,
    pathfinder,
    pathx,
    retrieval,
    text,
)
from experiments.etsmlp.figures import proposition_1
from ssm_jax.config import build, differences

# Table 5: D, L, H, norm, learning rate, weight decay, dropout.
TABLE_5 = [
    (listops, "", (160, 12, 160, "layer", 0.01, 0.01, 0.0)),
    (text, "", (160, 4, 160, "layer", 0.005, 0.01, 0.1)),
    (retrieval, "", (160, 6, 160, "layer", 0.005, 0.01, 0.1)),
    (image, "", (160, 12, 320, "batch", 0.01, 0.01, 0.0)),
    (pathfinder, "", (128, 6, 256, "batch", 0.01, 0.01, 0.0)),
    (pathx, "", (128, 6, 256, "batch", 0.05, 0.01, 0.0)),
    (language, "dataset=cola", (512, 3, 512, "layer", 1e-5, 0.1, 0.1)),
    (language, "dataset=sst2", (512, 12, 512, "layer", 1e-5, 0.1, 0.1)),
    (language, "dataset=imdb", (512, 4, 512, "layer", 1e-5, 0.1, 0.3)),
    (language, "dataset=mnli", (512, 6, 512, "layer", 1e-5, 0.1, 0.1)),
]


@pytest.mark.parametrize(("file", "variant", "published"), TABLE_5)
def test_setting_is_that_of_table_5(file, variant, published):
    config = file.get_config(variant)
    block, optimizer = config.model.block, config.optimizer
    assert published == (
        config.model.encoder.d_model,
        config.model.n_layers,
        block.layer.d_hidden,
        block.norm,
        optimizer.learning_rate,
        optimizer.weight_decay,
        block.layer.dropout,
    )
    # The authors drop after the normalisation of the embedding too, at this rate.
    assert config.model.normed_encoder
    assert config.model.encoder_dropout == published[-1]
    assert (optimizer.b1, optimizer.b2, optimizer.warmup_from) == (0.9, 0.98, 1e-7)
    assert block.layer.recurrence.bidirectional
    assert block.layer.recurrence.max_modulus == 0.9999


@pytest.mark.parametrize(
    "name", [*language.FULL, "cola,model=gate", "imdb,model=transformer"]
)
def test_language_drops_after_the_embedding(name):
    rate = 0.3 if "imdb" in name else 0.1
    assert language.get_config(f"dataset={name}").model.encoder_dropout == rate


def ring(config):
    recurrence = config.model.block.layer.recurrence
    return recurrence.r_min, recurrence.r_max, recurrence.max_phase


@pytest.mark.parametrize("small", ["", "size=small"])
def test_rings_of_retrieval_are_those_of_the_authors_code(small):
    gated = f"model=gate,{small}".strip(",")
    assert ring(retrieval.get_config(small)) == (0.1, 0.9, 3.14)
    assert ring(retrieval.get_config(gated)) == (0.9, 0.99, 0.314)


@pytest.mark.parametrize(
    ("variant", "paper"),
    [
        ("", None),
        ("model=gate", None),
        ("small_change=true", 0.8721),
        ("model=gate,small_change=true", 0.9378),
        ("small_change=true,model=gate", 0.9378),
        ("model=gate,small_change=true,size=small", None),
    ],
)
def test_published_figures_of_pathx_are_of_small_change(variant, paper):
    assert pathx.get_config(variant).paper == paper


@pytest.mark.parametrize("name", baselines.NAMES)
def test_no_published_figure_stands_beside_a_baseline(name):
    for file in (listops, text, retrieval, image, pathfinder, pathx):
        assert file.get_config(f"model={name}").paper is None
    if name == "transformer":
        assert language.get_config("dataset=cola,model=transformer").paper is None


@pytest.mark.parametrize("name", baselines.RECURRENCES)
@pytest.mark.parametrize("file", [listops, text, pathx])
def test_recurrences_of_baselines_learn_at_a_rate_of_their_own(name, file):
    config = file.get_config(f"model={name}")
    groups = build(config.model.block.layer.recurrence).groups()
    (group,) = set(groups.values())
    rate = group.lr_multiplier * config.optimizer.learning_rate
    np.testing.assert_allclose(rate, 1e-3)
    assert not group.weight_decay


@pytest.mark.parametrize(
    ("variant", "field", "value"),
    [
        ("ablation=real", "eigenvalues", "real"),
        ("ablation=no_alpha", "alpha", False),
        ("ablation=no_beta,size=small", "beta", False),
        ("ablation=no_omega", "shortcut", "none"),
        ("init=stable_0.5", "stable", (0.5, 0.0)),
        ("model=gate,init=ring_0.6_0.9", "r_min", 0.6),
    ],
)
def test_change_changes_its_field_alone(variant, field, value):
    pairs = variant.split(",")
    plain = ",".join(p for p in pairs if p.startswith(("model=", "size=")))
    changed = listops.get_config(variant).model.block.layer.recurrence.to_dict()
    unchanged = listops.get_config(plain).model.block.layer.recurrence.to_dict()
    assert changed[field] == value
    assert {k for k in unchanged if unchanged[k] != changed[k]} == {field}


def test_two_changes_leave_the_tables_as_they_are():
    expected = listops.get_config("ablation=real")
    listops.get_config("ablation=real,init=stable_0.5")
    assert differences(expected, listops.get_config("ablation=real")) == []


def size(config) -> int:
    """Parameters of a model."""
    inputs = jax.ShapeDtypeStruct((1, 8), "int32")
    init = build(config.model).init
    variables = meta.unbox(jax.eval_shape(init, jax.random.key(0), inputs))
    return sum(leaf.size for leaf in jax.tree.leaves(variables))


@pytest.mark.full
def test_smoothing_adds_13_numbers_a_channel_to_the_mlp():
    d, layers = 160, 12
    norms = (layers + 2) * 2 * d
    mlp = 16 * d + layers * 2 * (d * d + d) + norms + 10 * d
    assert size(listops.get_config()) == mlp + layers * 13 * d
    assert size(listops.get_config("model=gate")) == mlp + layers * (13 * d + d * d + d)


NEAR_ONE = 1 - np.geomspace(1e-2, 2e-4, 5)


@pytest.mark.full
def test_gradients_by_loglog_stay_where_those_by_lambda_explode():
    """Proposition 1, towards 1 and towards 0."""
    to_one = proposition_1.gradients(NEAR_ONE, angle=0.0)
    np.testing.assert_allclose(to_one["lambda"] * (1 - NEAR_ONE), 0.5, rtol=0.02)
    assert np.max(to_one["real"]) < 1 and np.max(to_one["imaginary"]) < 1
    for angle in proposition_1.ANGLES[1:]:
        to_zero = proposition_1.gradients(np.geomspace(0.1, 1e-6, 5), angle)
        assert np.max(to_zero["real"]) < 1 and np.max(to_zero["imaginary"]) < 1


@pytest.mark.parametrize("angle", [0.1, 1.6])
def test_gradients_towards_the_rest_of_the_circle(angle):
    """The real part stays; the imaginary one grows, which proposition 1 denies."""
    gradients = proposition_1.gradients(NEAR_ONE[2:], angle)
    assert np.max(gradients["real"]) < 1
    growth = gradients["imaginary"] * 2 * (1 - NEAR_ONE[2:]) / angle
    np.testing.assert_allclose(growth, 1, rtol=0.1)


@pytest.mark.parametrize(
    ("file", "variant", "warmup"),
    [
        (listops, "", 9_000),
        (listops, "hyperparameters=code", 3_000),
        (listops, "size=small", 500),
        (language, "dataset=mnli", 7_000),
        (language, "dataset=cola,size=small", 20),
    ],
)
def test_learning_rate_rises_in_a_part_of_the_steps(file, variant, warmup):
    assert file.get_config(variant).optimizer.warmup_steps == warmup


def test_number_of_steps_reaches_the_schedule():
    config = listops.get_config("size=small")
    config.training.steps = 500
    optimizer = build(config.optimizer)
    assert (optimizer.schedule_steps, optimizer.warmup_steps) == (500, 50)
