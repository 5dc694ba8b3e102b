"""Arrays that describe a trained model, for figures."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax.core import meta

from ssm_jax.evaluation.restore import Restored
from ssm_jax.layers.recurrent import recurrences_of
from ssm_jax.recurrences import MIMOModes, TimeInvariant, convolution_kernel

_CHANNELS = 4
_EXAMPLES = 10


def inspect(restored: Restored, path: Path) -> dict[str, np.ndarray]:
    """Saves kernels, eigenvalues and some predictions of a model.

    Args:
      restored: The model.
      path: The ``.npz`` file to write.

    Returns:
      The arrays written: ``inputs``, ``targets`` and ``predictions`` of some test
      examples, where predictions of classes are probabilities, and those of language
      models are the probability of each target. For a time-invariant recurrence also
      ``kernels``, ``(layers, channels, lags)``; ``lags``, negative for the future;
      and the decays as ``log_abs`` and ``phase``, ``(layers, ...)``, with
      ``initial_log_abs`` and ``initial_phase`` before training.
    """
    batch = restored.task.batch("test", 0, _EXAMPLES, restored.training.seed)
    apply = jax.jit(
        lambda v: restored.model.apply(
            v, batch.inputs, reset=batch.reset, mask=batch.mask
        )[0]
    )
    predictions = apply(restored.variables)
    if restored.task.spec.targets == "classification":
        predictions = jax.nn.softmax(predictions)
    if restored.task.spec.language:
        # Probabilities of a whole vocabulary at every step would fill the disk.
        targets = jnp.asarray(batch.targets)[..., None]
        predictions = jnp.take_along_axis(predictions, targets, -1)[..., 0]
    arrays = {
        "inputs": batch.inputs,
        "targets": batch.targets,
        "predictions": np.asarray(predictions),
    }
    recurrence = restored.model.recurrence
    if isinstance(recurrence, TimeInvariant):
        # The key that training initialized the model with.
        key = jax.random.split(jax.random.key(restored.training.seed))[0]
        initial = meta.unbox(jax.jit(restored.model.init)(key, batch.inputs))
        arrays |= _decays(recurrence, restored.variables["params"], "")
        arrays |= _decays(recurrence, initial["params"], "initial_")
        length = restored.task.spec.length
        arrays["kernels"] = _kernels(recurrence, restored.variables["params"], length)
        lags = arrays["kernels"].shape[-1]
        # Two-sided kernels have the lags from -length, causal ones from 0.
        arrays["lags"] = np.arange(length - lags, length)
    np.savez_compressed(path, allow_pickle=False, **arrays)
    return arrays


def _decays(recurrence, params, prefix):
    logs = [recurrence.modes(layer).log_decay for layer in recurrences_of(params)]
    # Positive real decays are stored without a phase.
    phases = [
        np.zeros_like(log.log_abs) if log.phase is None else log.phase for log in logs
    ]
    return {
        f"{prefix}log_abs": np.stack([np.asarray(log.log_abs) for log in logs]),
        f"{prefix}phase": np.stack([np.asarray(phase) for phase in phases]),
    }


def _kernels(recurrence, params, length):
    def first(modes):
        """Kernels of the first channels; of MIMO modes only the diagonal ones."""
        if isinstance(modes, MIMOModes):
            modes = modes._replace(B=modes.B[:, :_CHANNELS], C=modes.C[:_CHANNELS])
            return jnp.einsum("ddl->dl", convolution_kernel(modes, length))
        log = modes.log_decay
        if log.log_abs.ndim == 2:
            log = jax.tree.map(lambda v: v[:_CHANNELS], log)
        modes = modes._replace(log_decay=log, w=modes.w[:_CHANNELS])
        return convolution_kernel(modes, length)

    def kernel(layer):
        modes = recurrence.modes(layer)
        taps = first(modes)
        if not modes.bidirectional:
            return taps
        if isinstance(modes, MIMOModes) and modes.C_backward is not None:
            # The backward direction of these modes includes the present step.
            B, C = modes.B[:, :_CHANNELS], modes.C_backward[:_CHANNELS]
            taps = jnp.asarray(taps).at[:, 0].add(jnp.einsum("dn,nd->d", C, B).real)
        return jnp.concatenate([first(modes.backward())[:, ::-1], taps], -1)

    return np.stack([np.asarray(kernel(layer)) for layer in recurrences_of(params)])
