"""Speech Commands: a trained model at the rate of its run and at half of it."""

import jax
import numpy as np
import pytest

from experiments.dlr import sample_rates, speech
from ssm_jax.evaluation import evaluate_run, restore
from ssm_jax.training import train
from tests.bad_inputs import refuses
from tests.training import tiny


def shrunk(data_dir, steps):
    config = speech.get_config()
    config.task.data_dir = f"{data_dir}/speech"
    config.model.update(n_layers=1)
    config.model.encoder.d_model = 4
    config.model.block.layer.recurrence.d_state = 2
    config.optimizer.update(warmup_steps=0, learning_rate=0.01)
    config.training.update(steps=steps, batch_size=8, evaluate_every=steps)
    return config


@pytest.mark.nightly
def test_accuracy_at_both_rates(sets_dir, tmp_path):
    train(shrunk(sets_dir, 2), str(tmp_path))
    restored = restore(tmp_path)
    accuracy = evaluate_run(tmp_path)["accuracy"]
    assert sample_rates.accuracy(restored, 16_000) == pytest.approx(accuracy)
    model, task = sample_rates.at_rate(restored, 8_000)
    batch = task.batch("test", 0, 11, seed=0)
    logits, _ = jax.jit(model.apply)(restored.variables, batch.inputs)
    expected = np.mean(np.argmax(logits, -1) == batch.targets)
    assert sample_rates.accuracy(restored, 8_000) == pytest.approx(expected)
    # In one layer outputs are those of inputs that hold; a mean over steps differs.
    repeated = np.repeat(batch.inputs[:3], 2, axis=1)

    def features(model, inputs):
        variables = restored.variables
        _, captured = model.apply(variables, inputs, capture_intermediates=True)
        return captured["intermediates"]["block_0"]["layer"]["__call__"][0][0]

    half = features(model, batch.inputs[:3])
    full = features(restored.model, repeated)
    np.testing.assert_allclose(half, full[:, 1::2], rtol=0, atol=1e-4)


@pytest.mark.nightly
def test_run_on_another_task_is_refused(tmp_path):
    train(tiny.digits(log_every=1, evaluate_every=1, steps=1), str(tmp_path))
    with refuses("--workdir", "Digits"):
        sample_rates.at_rate(restore(tmp_path), 8_000)
