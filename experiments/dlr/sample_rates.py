r"""Accuracy of a model of Speech Commands at 16 kHz and, not trained there, at 8 kHz.

    python -m experiments.dlr.sample_rates --workdir=runs/speech --data_dir=FOLDER

Evaluates the best checkpoint of a run of ``experiments/dlr/speech.py`` on the test
split at its sample rate and at half of it, every second sample of the same recordings.
A DLR has no step size that could be doubled; ``step_scale=2`` squares its decays and
sums pairs of taps, which for the zero-order hold of other state space models is the
doubled step size. The paper has no such test; it is that of S4.

Source: Gu, Goel and Ré, arXiv 2111.00396, 2021, section 4.3.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from flax import linen as nn

from ssm_jax.cli import app
from ssm_jax.evaluation import Restored, restore
from ssm_jax.tasks import SpeechCommands, n_batches


def at_rate(restored: Restored, sample_rate: int) -> tuple[nn.Module, SpeechCommands]:
    """Returns the model and the task of a run for another sample rate.

    Args:
      restored: A model of `SequenceModel` whose recurrence has a ``step_scale``.
      sample_rate: Samples per second, a divisor of the rate that the run trained at.

    Raises:
      ValueError: The run is on another task, ``sample_rate`` is not a divisor, or the
        model has several different blocks.
    """
    task, model = restored.task, restored.model
    if not isinstance(task, SpeechCommands):
        raise ValueError(
            "`--workdir` must be of a run on SpeechCommands, got one on "
            f"{type(task).__name__}; train experiments/dlr/speech.py."
        )
    scale, rest = divmod(task.sample_rate, sample_rate)
    if rest:
        raise ValueError(
            f"`sample_rate` must be a divisor of {task.sample_rate}, at which the run "
            f"trained, got {sample_rate}; train at 16000 for both rates."
        )
    if isinstance(model.block, tuple):
        raise ValueError(
            "`--workdir` must be of a run with one kind of block, got "
            f"{len(model.block)}; train experiments/dlr/speech.py as it is."
        )
    layer = model.block.layer
    recurrence = dataclasses.replace(layer.recurrence, step_scale=scale)
    block = model.block.clone(layer=layer.clone(recurrence=recurrence))
    return model.clone(block=block), dataclasses.replace(task, sample_rate=sample_rate)


def accuracy(restored: Restored, sample_rate: int) -> float:
    """Returns the accuracy on the test split at a sample rate, as for `at_rate`."""
    model, task = at_rate(restored, sample_rate)
    batch_size, correct = restored.training.batch_size, 0

    @jax.jit
    def predict(variables, inputs):
        return jnp.argmax(model.apply(variables, inputs)[0], -1)

    for index in range(n_batches(task, "test", batch_size) or 0):
        batch = task.batch("test", index, batch_size, seed=0)
        predicted = np.asarray(predict(restored.variables, batch.inputs))
        correct += int(np.sum((predicted == batch.targets) & batch.loss_mask))
    return correct / task.n_examples("test")


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("workdir", None, "Work dir of the run.", required=True)
    flags.DEFINE_string(
        "data_dir", None, "Folder of the recordings (default: that of the run)."
    )


def main(argv):
    """Prints the accuracy of ``--workdir`` at both rates."""
    del argv
    restored = restore(flags.FLAGS.workdir, data_dir=flags.FLAGS.data_dir)
    for rate in (16_000, 8_000):
        print(f"{rate:6} Hz: {accuracy(restored, rate):.4f}")


if __name__ == "__main__":
    app.run(main, define_flags)
