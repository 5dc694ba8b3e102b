"""Peers compute what our layers compute, at sizes at which nothing else is measured."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from benchmarks import peers, plain, training_steps
from ssm_jax.recurrences import CES


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
    network = training_steps.classifier(name, 12, width=16, n_layers=2, batch=2)
    model, x = network.model, network.batch.inputs
    variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), x))
    ours, _ = jax.jit(model.apply)(variables, x)
    layer = training_steps.LAYERS[name]
    logits = training_steps.predictions(layer, variables["params"], x)
    np.testing.assert_allclose(logits, ours, atol=1e-5)


@pytest.mark.nightly
def test_training_step_with_another_loss_is_refused(monkeypatch):
    wrong = {"CES": lambda params, x: 1 + x}
    monkeypatch.setattr(training_steps, "LAYERS", wrong)
    sizes = {"batch": 2, "width": 16, "n_layers": 2}
    with pytest.raises(ArithmeticError, match="^the loss of CES must be within"):
        list(training_steps.training_step_rows(12, **sizes, repeats=1))
