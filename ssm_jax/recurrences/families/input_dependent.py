"""Input-dependent recurrences, evaluated by chunks of the length to save memory."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ssm_jax.kernels.arguments import check_floating, shape_hint
from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.kernels.input_dependent import ChunkedForm, evaluate_chunks
from ssm_jax.kernels.plan import chunk_size
from ssm_jax.kernels.precision import in_float32
from ssm_jax.kernels.promotion import common_dtype
from ssm_jax.kernels.sharding import reshard, state_of_rows
from ssm_jax.recurrences.families.base import Params, Recurrence, check
from ssm_jax.recurrences.families.nonfinite import isolated_segments
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.types import (
    Activations,
    Array,
    Float,
    Inexact,
    Method,
    Outputs,
    Steps,
)


class InputDependent(Recurrence, abc.ABC):
    """A recurrence whose decays depend on the input.

    A subclass defines `chunked_form`: the decays and inputs of the recurrence, and its
    readout. The state may have any shape.

    Attributes:
      diagonal: Whether each entry of a state is an affine function of the same entry of
        the state before, which pieces of a sharded length are combined by.
    """

    diagonal: ClassVar[bool] = True

    @abc.abstractmethod
    def initial_state(
        self, batch_shape: tuple[int, ...], d_in: int
    ) -> Inexact[jax.Array, "..."]:
        """Returns zeros, batch axes first."""

    @abc.abstractmethod
    def chunked_form(self, params: Params, x: Activations) -> ChunkedForm:
        """Returns decays, inputs and readout for ``x``, ``(*b, l, d)``, float32."""

    @abc.abstractmethod
    def d_in(self, params: Params) -> int:
        """Returns the input width that the parameters were initialized for."""

    def apply(
        self,
        params: Params,
        x: Activations,
        state: Inexact[Array, "..."] | None = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
    ) -> tuple[Outputs, Inexact[jax.Array, "..."]]:
        """Maps a sequence to a sequence; see `Recurrence.apply` for the arguments.

        States are computed one chunk of the length after another and recomputed in the
        backward pass: only one state per chunk is stored. Within a chunk ``method`` is
        the method of `linear_recurrence`; ``"fft"`` does not support input-dependent
        decays.
        """
        return self._evaluate(
            params, x, state, None, reset=reset, mask=mask, method=method
        )

    def form_of_rows(
        self, params: Params, x: Activations, dt: Any, state: Array, reset: Any
    ) -> ChunkedForm:
        """Returns `chunked_form` for left-aligned rows.

        A subclass overrides it whose decays or inputs depend on more than ``x``: the
        factors of the step sizes, ``(*b, l)`` or None, the state before the first step,
        or the resets, ``(*b, l)`` or None.
        """
        del dt, state, reset
        return self.chunked_form(params, x)

    def _evaluate(self, params, x, state, dt, *, reset, mask, method):
        """Evaluates `form_of_rows`; the arguments are those of `apply_form`."""
        params = in_float32(params)
        d = self.d_in(params)
        return apply_form(
            self.form_of_rows,
            params,
            x,
            state,
            dt,
            zeros=self.initial_state((), d),
            d_in=d,
            reset=reset,
            mask=mask,
            method=method,
            name=type(self).__name__,
        )


def apply_form(
    form: Callable[[Params, Array, Any, Array, Any], ChunkedForm],
    params: Params,
    x: Activations,
    state: Inexact[Array, "..."] | None,
    dt: Float[Array, "*#b l"] | None,
    *,
    zeros: Inexact[Array, "..."],
    d_in: int,
    reset: Steps | None,
    mask: Steps | None,
    method: Method,
    name: str,
    per_channel: bool = False,
) -> tuple[Outputs, Inexact[jax.Array, "..."]]:
    """Evaluates a recurrence whose decays depend on the step, as `Recurrence.apply`.

    Args:
      form: ``(params, x, dt, state, reset) -> ChunkedForm``, for left-aligned rows.
      params: Parameters, at least float32.
      x: Input of `Recurrence.apply`.
      state: State of `Recurrence.apply`.
      dt: Factors of the step sizes, ``(*b, l)``, or ``(l,)`` or with batch axes of 1
        where rows share them, passed to ``form`` as ``(*b, l)``. None is passed as it
        is.
      zeros: Initial state of one sequence, of any shape.
      d_in: Input width that the parameters were initialized for.
      reset: Resets of `Recurrence.apply`.
      mask: Mask of `Recurrence.apply`.
      method: Method of `linear_recurrence` within a chunk.
      name: Name of the recurrence in errors.
      per_channel: Whether a channel depends on no other one; see `isolate_segments`.

    Returns:
      ``(y, state)`` of `Recurrence.apply`.

    Raises:
      ValueError: As `Recurrence.apply`, or ``dt`` does not fit.
    """
    # Of the input, if there are no parameters.
    dtype = common_dtype(jnp.float32, *(jax.tree.leaves(params) or [x]))
    # Of the parameters, although zeros are float64 under `jax_enable_x64`.
    complex_state = jnp.iscomplexobj(zeros)
    state_dtype = common_dtype(dtype, jnp.complex64) if complex_state else dtype
    check(
        x,
        state,
        reset,
        mask,
        d=d_in,
        state_shape=zeros.shape,
        complex_state=complex_state,
        method=method,
    )
    if method == "fft":
        raise ValueError(
            "`method` must not be 'fft' for decays that depend on the step, as in "
            f"{name}; use 'associative' or 'chunked'."
        )
    # NumPy's float64 becomes the dtype that JAX computes in.
    x = jnp.asarray(x)
    if not per_channel:
        # Decays depend on all channels, so that each device needs them.
        x = reshard(x, x, [*range(x.ndim - 1), None])
    if dt is not None:
        _check_dt(dt, x, mask)
        dt = jnp.broadcast_to(jnp.asarray(dt, dtype), x.shape[:-1])[..., None]
        if reset is not None:
            # A size that is not finite is one of the steps of all channels.
            finite = jnp.isfinite(dt)
            x, dt = jnp.where(finite, x, jnp.nan), jnp.where(finite, dt, 0)

    def run(x, state, reset, lengths):
        from_zeros = state is None
        if from_zeros:
            state = jnp.broadcast_to(zeros, (*x.shape[:-2], *zeros.shape))
        state = state_of_rows(state, x, per_channel=per_channel)
        x, state = x.astype(dtype), state.astype(state_dtype)
        # In shard_map parameters may be replicated where `x` is sharded, but all
        # operands of a scan must vary over the same axes.
        varying = match_varying_axes(params, x, state, reset, lengths)
        varying_params, x, state, reset, lengths = varying
        factors = None if dt is None else x[..., -1]
        size = chunk_size(
            x.shape[-2],
            max(1, zeros.size // d_in),
            bytes_per_step=state.dtype.itemsize * state.size,
        )
        y, last = evaluate_chunks(
            form(varying_params, x[..., :d_in], factors, state, reset),
            state,
            axis=x.ndim - 2,
            reset=reset,
            lengths=lengths,
            size=size,
            method=method,
            from_zeros=from_zeros,
        )
        return y, last

    segments = isolated_segments(x, state, reset, mask, per_channel=per_channel)
    x, state, _ = segments
    # As one more channel, dt moves with its step where padding is removed.
    steps = x if dt is None else jnp.concatenate([x.astype(dtype), dt], -1)
    with segments.evaluation():
        y, last = apply_to_valid_steps(run, steps, state, reset, mask)
    return segments.nan_outputs(y.astype(x.dtype), last)


def _broadcasts(shape, steps):
    pairs = zip(reversed(shape), reversed(steps), strict=False)
    return len(shape) <= len(steps) and all(n in (1, size) for n, size in pairs)


def _check_dt(dt, x, mask):
    check_floating("dt", dt)
    steps = x.shape[:-1]
    # Batch axes may be missing or 1; the length may not.
    if dt.shape[-1:] != steps[-1:] or not _broadcasts(dt.shape, steps):
        raise ValueError(
            f"`dt` must be {steps}, one factor per step, got {dt.shape}; "
            f"{shape_hint(dt.shape, steps)}."
        )
    # Where values are traced, they are not known.
    if isinstance(dt, Tracer) or isinstance(mask, Tracer):
        return
    # By numpy: in a jitted function `jnp` would trace known values, too.
    valid = np.asarray(dt) if mask is None else np.where(mask, dt, 0)
    if not np.all(valid >= 0):
        raise ValueError(
            f"`dt` must be at least 0, got {np.min(valid)}; it is the time since the "
            "previous step."
        )
