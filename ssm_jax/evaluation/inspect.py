"""Arrays that describe a trained model: kernels, eigenvalues and examples."""

import functools
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from ssm_jax.evaluation.restore import Restored
from ssm_jax.fields import check_size
from ssm_jax.files import write_arrays
from ssm_jax.kernels.axes import pad_axis
from ssm_jax.kernels.powers import decay_powers
from ssm_jax.kernels.precision import in_float32
from ssm_jax.models.recurrences import layer_recurrences
from ssm_jax.recurrences import (
    S4,
    MIMOModes,
    Recurrence,
    SISOModes,
    TimeInvariant,
    convolution_kernel,
)
from ssm_jax.recurrences.families import nplr
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.finite_kernel import FiniteKernel
from ssm_jax.tasks.base import Split, n_batches, rows_of_batch
from ssm_jax.training.losses import cross_entropy
from ssm_jax.training.state import initialize
from ssm_jax.types import Array, Complex, Float, PyTree

_CHANNELS = 4
_BLOCK = 16  # Channels whose kernels are computed at once.
_EXAMPLES = 10
_CANDIDATES, _ROWS = 256, 64  # Examples to choose from, and those of one batch.


def inspect(
    restored: Restored, path: Path, split: Split = "test"
) -> dict[str, np.ndarray]:
    """Saves kernels, eigenvalues and some predictions of a model.

    Args:
      restored: The model.
      path: The ``.npz`` file to write.
      split: Split of the examples.

    Returns:
      The arrays written: ``inputs``, ``targets`` and ``predictions`` of ten examples,
      and their mean ``losses``, ``(10,)``: the five of the lowest and the five of the
      highest loss of the first ``n_candidates`` examples of the ``split``, in the order
      of their losses. Predictions of classes are probabilities, and those of language
      models, of which these are the first windows, the probability of each target.

      For a time-invariant recurrence (of several different ones, the first) and its
      layers also ``kernels``, ``(layers, channels, lags)``, of
      the channels of each layer with the most energy, the most first; ``channels``,
      their numbers, and ``energies``, their shares of the squares of all kernels of the
      layer, ``(layers, channels)``; ``lags``, negative for the future; and the decays
      as ``log_abs`` and ``phase``, ``(layers, ...)``, with ``initial_log_abs`` and
      ``initial_phase`` before training.
    """
    arrays = {"split": np.asarray(split), **_examples(restored, split)}
    model = restored.model
    recurrence, layers = _time_invariant(model, restored.variables["params"])
    if recurrence is not None:
        arrays |= _decays(recurrence, layers, "")
        initial = _initial_params(restored, split)
        arrays |= _decays(recurrence, _time_invariant(model, initial)[1], "initial_")
        length = restored.task.spec.length
        arrays |= _kernels(recurrence, layers, length)
        lags = arrays["kernels"].shape[-1]
        # Two-sided kernels have the lags from -length, causal ones from 0.
        arrays["lags"] = np.arange(length - lags, length)
    write_arrays(path, arrays)
    return arrays


def _initial_params(restored, split):
    """The parameters that the seed of a run gives."""
    training = restored.training
    if restored.step == 0 and training.init_from is None:
        return restored.variables["params"]
    key, _ = jax.random.split(jax.random.key(training.seed))
    # The program that training has compiled.
    batch = rows_of_batch(restored.task, split, 0, 1, training.seed)
    params, _ = initialize(restored.init, key, batch)
    return params


def _time_invariant(model, params):
    """The first time-invariant recurrence of a model, and the parameters of each."""
    pairs = [
        (recurrence, layer)
        for recurrence, layer in layer_recurrences(model, params)
        if isinstance(recurrence, TimeInvariant)
    ]
    if not pairs:
        return None, []
    first, _ = pairs[0]
    # Others may have another number of eigenvalues.
    return first, [layer for recurrence, layer in pairs if recurrence == first]


@functools.partial(jax.jit, static_argnames="recurrence")
def _log_decays(recurrence, layers):
    """The absolute values and phases of each layer, as logarithms."""
    logs = [recurrence.modes(layer).log_decay for layer in layers]
    # Positive real decays are stored without a phase.
    return [
        (log.log_abs, jnp.zeros_like(log.log_abs) if log.phase is None else log.phase)
        for log in logs
    ]


def _decays(recurrence, layers, prefix):
    log_abs, phase = zip(*_log_decays(recurrence, layers), strict=True)
    return {
        f"{prefix}log_abs": np.stack([np.asarray(layer) for layer in log_abs]),
        f"{prefix}phase": np.stack([np.asarray(layer) for layer in phase]),
    }


def _examples(restored, split):
    """Examples of a split with the lowest and the highest losses."""
    task, language = restored.task, restored.task.spec.language
    rows = _EXAMPLES if language else min(restored.training.batch_size, _ROWS)
    n_batches_max = 1 if language else -(-_CANDIDATES // rows)
    available = n_batches(task, split, rows) or n_batches_max

    parts = [
        _predict(
            restored.apply,
            task.spec,
            rows_of_batch(task, split, index, rows, restored.training.seed),
        )
        for index in range(min(n_batches_max, available))
    ]
    examples = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    # The last batch of a finite split has rows without a loss.
    order = np.argsort(examples["losses"], stable=True)
    order = order[np.isfinite(examples["losses"][order])]
    half = _EXAMPLES // 2
    chosen = order if len(order) <= _EXAMPLES else np.r_[order[:half], order[-half:]]
    if language:
        chosen = np.sort(order)
    return {"n_candidates": np.asarray(len(order))} | {
        name: array[chosen] for name, array in examples.items()
    }


def _predict(predict, spec, batch):
    """A batch with its predictions and the mean loss of each example."""
    predictions = predict(batch.inputs, **batch.flags)
    losses, predictions = _losses(spec, predictions, batch.targets)
    weight = np.asarray(batch.loss_mask).reshape(len(losses), -1)
    losses = np.where(weight, np.asarray(losses).reshape(weight.shape), 0)
    with np.errstate(invalid="ignore"):
        losses = losses.sum(-1) / weight.sum(-1)
    return {
        "inputs": batch.inputs,
        "targets": batch.targets,
        "predictions": np.asarray(predictions),
        "losses": losses,
    }


@functools.partial(jax.jit, static_argnames="spec")
def _losses(spec, predictions, targets):
    """The losses of the targets, and what is saved of the predictions."""
    if spec.targets != "classification":
        return jnp.mean(jnp.square(predictions - targets), -1), predictions
    # Of the logits: a probability that underflows would have no finite loss.
    losses = cross_entropy(predictions, targets)
    # Probabilities of a whole vocabulary at every step would fill the disk.
    return losses, jnp.exp(-losses) if spec.language else jax.nn.softmax(predictions)


def _kernels(recurrence, layers, length):
    """Kernels of the channels with the most energy, and lags of their taps."""
    found = [_largest_kernels(recurrence, layer, length) for layer in layers]
    return {name: np.stack([layer[name] for layer in found]) for name in found[0]}


def _largest_kernels(recurrence, params, length):
    """The channels of one layer whose kernels have the largest sums of squares."""
    n = len(jax.eval_shape(lambda p: recurrence.modes(p).feedthrough, params))
    best, energies = [], np.zeros(n)
    for first in range(0, n, _BLOCK):
        size = min(_BLOCK, n - first)
        taps = np.asarray(_block_kernels(recurrence, params, first, size, length))
        energies[first : first + _BLOCK] = np.square(taps, dtype=np.float64).sum(-1)
        best += [(energies[first + i], first + i, tap) for i, tap in enumerate(taps)]
        best = sorted(best, key=lambda channel: (-channel[0], channel[1]))[:_CHANNELS]
    return {
        "kernels": np.stack([taps for _, _, taps in best]),
        "channels": np.array([channel for _, channel, _ in best]),
        "energies": np.array([e for e, _, _ in best]) / max(energies.sum(), 1e-37),
    }


@functools.partial(jax.jit, static_argnames=("recurrence", "size", "length"))
def _block_kernels(recurrence, params, first, size, length):
    """Kernels of consecutive channels; one program for all blocks of a size."""
    modes = _select_channels(recurrence.modes(params), first, size)
    return _join_directions(recurrence, modes, length)


def _select_channels(modes, first, size):
    """The modes of some channels."""

    def rows(v, axis=0):
        return jax.lax.dynamic_slice_in_dim(v, first, size, axis)

    if isinstance(modes, MIMOModes):
        C, C_backward = jax.tree.map(rows, (modes.C, modes.C_backward))
        return modes._replace(B=rows(modes.B, 1), C=C, C_backward=C_backward)
    decays = modes.log_decay, modes.log_decay_backward
    weights = modes.w, modes.w_backward
    # Decays that all channels share have no axis of channels.
    (log_decay, log_decay_backward), (w, w_backward) = jax.tree.map(
        lambda v: rows(v) if v.ndim == 2 else v, (decays, weights)
    )
    return modes._replace(
        log_decay=log_decay,
        log_decay_backward=log_decay_backward,
        w=w,
        w_backward=w_backward,
    )


def _join_directions(recurrence, modes, length):
    """Kernels, the backward direction before the forward one; zeros after their end."""
    kernels = modal_kernels(recurrence, modes, length)
    if isinstance(modes, MIMOModes):
        # From each channel to itself.
        kernels = [jnp.einsum("ddl->dl", kernel) for kernel in kernels]
    forward, *backward = (
        pad_axis(kernel, -1, after=length - kernel.shape[-1]) for kernel in kernels
    )
    return jnp.concatenate([*(kernel[:, ::-1] for kernel in backward), forward], -1)


class LayerKernels(NamedTuple):
    r"""A linear layer whose parameters are the same at all steps, as a convolution.

    .. math::
      y_t = D x_t + \sum_{j \ge 0} k_j x_{t - j} + \sum_{j \ge 1} b_{j - 1} x_{t + j}

    Attributes:
      forward: ``k``, of the present and past steps, lag 0 first, ``(d, l)``. Where all
        channels share the modes (`S5`, `LRU`): from each input channel to each output
        channel, ``(d, d, l)``, the output channel first.
      feedthrough: ``D``, ``(d,)``.
      eigenvalues: Factors by which a step multiplies the modes of a state, ``(d, n)``,
        or ``(n,)`` where all channels share them. Of conjugate pairs that are stored
        once, only one member; of `S4` all. None: the kernel is not a sum of modes.
      backward: ``b``, of the future steps, lag -1 first. None: there is no backward
        direction.
      eigenvalues_backward: Those of the backward direction.
    """

    forward: Float[np.ndarray, "... l"]
    feedthrough: Float[np.ndarray, " d"]
    eigenvalues: Complex[np.ndarray, "... n"] | None
    backward: Float[np.ndarray, "... l"] | None = None
    eigenvalues_backward: Complex[np.ndarray, "... n"] | None = None


def layer_kernels(
    model: nn.Module, variables: PyTree, length: int
) -> list[LayerKernels]:
    """Returns the kernels and eigenvalues of each layer of a model.

    Args:
      model: A `SequenceModel` or `RecurrentNetwork`.
      variables: Its variables, as those of `Restored`.
      length: Number of taps ``l`` per direction; see `recurrence_kernels`.

    Returns:
      One entry per layer with a recurrence, in their order.

    Raises:
      ValueError: As `recurrence_kernels`.
    """
    params = nn.meta.unbox(variables["params"])
    return [
        recurrence_kernels(recurrence, layer, length)
        for recurrence, layer in layer_recurrences(model, params)
    ]


def recurrence_kernels(
    recurrence: Recurrence | None, params: Params, length: int
) -> LayerKernels:
    """Returns the kernels and eigenvalues of a recurrence.

    Args:
      recurrence: A linear recurrence with parameters that are the same at all steps.
      params: Its parameters.
      length: Number of taps ``l`` per direction. A kernel that ends before has fewer.

    Returns:
      Numpy arrays.

    Raises:
      ValueError: The recurrence has no convolution kernel, or ``length`` is less
        than 1.

    Example:
      >>> import jax
      >>> from ssm_jax.recurrences import DLR
      >>> dlr = DLR(d_state=8)
      >>> kernels = recurrence_kernels(dlr, dlr.init(jax.random.key(0), 2), 16)
      >>> kernels.forward.shape, kernels.eigenvalues.shape
      ((2, 16), (8,))
    """
    check_size("length", length)
    if isinstance(recurrence, TimeInvariant):
        directions, feedthrough = _modal_directions(recurrence, params, length)
    elif isinstance(recurrence, S4):
        directions = [_system_direction(s, length) for s in recurrence.systems(params)]
        feedthrough = params["feedthrough"]
    elif isinstance(recurrence, FiniteKernel):
        compiled = jax.jit(recurrence.kernels, static_argnums=1)
        forward, feedthrough, backward = compiled(params, length)
        taps = (forward, backward)
        directions = [(kernel, None) for kernel in taps if kernel is not None]
    else:
        raise ValueError(
            "`recurrence` must be linear, with parameters that are the same at all "
            f"steps, got {type(recurrence).__name__}; its outputs are no convolution."
        )
    (forward, eigenvalues), backward_pair = [*directions, (None, None)][:2]
    return LayerKernels(
        np.asarray(forward),
        np.asarray(feedthrough),
        *(v if v is None else np.asarray(v) for v in (eigenvalues, *backward_pair)),
    )


def modal_kernels(
    recurrence: TimeInvariant, modes: SISOModes | MIMOModes, length: int
) -> list[Float[Array, "... l"]]:
    """Returns the kernels of modes, forward and, if bidirectional, backward.

    Args:
      recurrence: The recurrence, whose ``max_kernel_length`` bounds the taps.
      modes: Its modes, or those of some channels.
      length: Number of taps ``l`` per direction. A kernel that ends before has fewer.

    Returns:
      ``forward`` and ``backward`` of `LayerKernels`, with the channels of ``modes``.
    """
    taps = min(length, recurrence.max_kernel_length or length)
    kernels = [convolution_kernel(direction, taps) for direction in _directions(modes)]
    if isinstance(modes, MIMOModes) and modes.C_backward is not None:
        # The backward direction of these modes includes the present step, at lag 0.
        present = jnp.einsum("dn,ne->de", modes.C_backward, modes.B)
        kernels[0] = jnp.asarray(kernels[0]).at[..., 0].add(present.real)
    return kernels


def _directions(modes):
    return [modes, modes.backward()] if modes.bidirectional else [modes]


# Compiled whole: operation by operation, each of them would be a program of its own.
@functools.partial(jax.jit, static_argnames=("recurrence", "length"))
def _modal_directions(recurrence, params, length):
    """``(kernel, eigenvalues)`` of each direction, and the feedthrough."""
    modes = recurrence.modes(in_float32(params))
    one_step = jnp.ones((), jnp.int32)
    eigenvalues = [
        decay_powers(direction.log_decay, one_step).astype(jnp.complex64)
        for direction in _directions(modes)
    ]
    kernels = modal_kernels(recurrence, modes, length)
    return list(zip(kernels, eigenvalues, strict=True)), modes.feedthrough


def _system_direction(system, length):
    kernel, change = _kernel_and_change(system, length)
    change = np.asarray(change, np.float64)
    eigenvalues = np.linalg.eigvals(np.eye(change.shape[-1]) + change)
    return kernel, eigenvalues.astype(np.complex64)


@functools.partial(jax.jit, static_argnames="length")
def _kernel_and_change(system, length):
    return nplr.kernel(system, length), nplr.discretized(system).A_minus_I
