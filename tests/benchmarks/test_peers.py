"""Peers compute what our layers compute, at sizes at which nothing else is measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from benchmarks import classifiers, depth, peers, plain, training_steps
from ssm_jax.recurrences import CES


@pytest.mark.nightly
def test_every_peer_has_a_row_with_the_outputs_of_our_layer(monkeypatch):
    monkeypatch.setattr(peers, "HAS_TORCH", False)
    rows = list(peers.peer_rows(24, batch=2, width=8, n=4, repeats=1))
    names = [row["what"] for row in rows]
    assert names == [*peers.layers(8, 4)][:3] + [*peers.layers(8, 4)][2:]
    for row in rows:
        assert row["difference"] < 1e-5 and row["gradient_difference"] < 1e-4
        assert row["forward_ratio"] == row["forward_s"] / row["forward_peer_s"]
        assert row["grad_ratio_min"] == row["grad_min_s"] / row["grad_peer_min_s"]


@pytest.mark.full
def test_peer_in_torch_has_the_gradients_of_ours(monkeypatch):
    pytest.importorskip("torch")
    dlr = peers.layers(8, 4)["DLR"]
    monkeypatch.setattr(peers, "layers", lambda *sizes: {"DLR": dlr})
    _, row = peers.peer_rows(24, batch=2, width=8, n=4, repeats=1)
    assert row["peer"] == "torch"
    assert row["difference"] < 1e-5 and row["gradient_difference"] < 1e-4


@pytest.mark.full
def test_peer_of_other_outputs_is_refused(monkeypatch):
    gru = peers.layers(8, 4)["GRU"]
    wrong = gru._replace(peers={"wrong": lambda params, x: -plain.gru(params, x)})
    monkeypatch.setattr(peers, "layers", lambda *sizes: {"GRU": wrong})
    with pytest.raises(ArithmeticError, match="^outputs of GRU by wrong must be with"):
        list(peers.peer_rows(8, batch=1, width=8, n=4, repeats=1))


@pytest.mark.full
def test_plain_smoothing_is_the_same_mathematics(key):
    params = CES().init(key, 3)
    x = jnp.sin(jnp.arange(42.0)).reshape(2, 7, 3)
    ours, _ = CES().apply(params, x)
    np.testing.assert_allclose(plain.ces(params, x), ours, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", training_steps.LAYERS)
def test_plain_classifier_has_the_predictions_of_ours(name):
    found = classifiers.classifier(name, 12, width=16, n_layers=2, batch=2)
    model, x = found.model, found.batch.inputs
    variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), x))
    ours, _ = jax.jit(model.apply)(variables, x)
    layer = training_steps.LAYERS[name]
    found = training_steps.predictions(layer, variables["params"], x)
    np.testing.assert_allclose(found, ours, atol=1e-5)


@pytest.mark.nightly
def test_training_step_is_compared_with_plain_and_without_a_recurrence(monkeypatch):
    layer = {"CES": training_steps.LAYERS["CES"]}
    monkeypatch.setattr(training_steps, "LAYERS", layer)
    sizes = {"batch": 2, "width": 16, "n_layers": 2}
    (row,) = training_steps.training_step_rows(12, **sizes, repeats=1)
    assert row["what"] == "CES" and row["difference"] < 1e-5
    assert row["of_plain"] == row["ours_s"] / row["plain_s"]
    assert row["of_identity_min"] == row["ours_min_s"] / row["identity_min_s"]
    assert row["of_scanned"] == row["ours_s"] / row["scanned_s"]


@pytest.mark.nightly
def test_depth_is_compared_with_the_first_one(monkeypatch):
    monkeypatch.setattr(depth, "MODELS", ("CES",))
    monkeypatch.setattr(depth, "DEPTHS", (2, 3))
    rows = list(depth.depth_rows(12, batch=2, width=16, repeats=1))
    fields = ("remat", "scan_blocks", "layers")
    assert [tuple(row[name] for name in fields) for row in rows] == [
        (remat, scan, n_layers)
        for remat in (False, True)
        for scan in (True, False)
        for n_layers in (2, 3)
    ]
    first, second = rows[:2]
    assert first["of_first"] == 1
    assert second["of_first"] == second["compile_cpu_s"] / first["compile_cpu_s"]
    assert 0 < first["temp_bytes"] < second["temp_bytes"]
