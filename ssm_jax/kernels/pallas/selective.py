"""The selective recurrence of Mamba in one kernel: its states are never in memory."""

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import valid_steps
from ssm_jax.kernels.pallas import dispatch
from ssm_jax.kernels.pallas.devices import on_each_device
from ssm_jax.types import Activations, Array, Float, Int, Outputs, Steps


def selective_scan(
    x: Activations,
    dt: Activations,
    B: Float[Array, "*b l n"],
    C: Float[Array, "*b l n"],
    rates: Float[Array, "d n"],
    feedthrough: Float[Array, " d"],
    state: Float[Array, "*b d n"],
    reset: Steps | None = None,
    lengths: Int[Array, "*b"] | None = None,
) -> tuple[Outputs, Float[jax.Array, "*b d n"]]:
    """Evaluates a selective SSM; see `selective_form` for the first arguments.

    The kernel reads ``x``, ``dt``, ``B`` and ``C`` once and writes ``y``, and for the
    gradient one state per block of steps. The backward pass, a kernel too, computes the
    states of a block anew. There is no forward-mode derivative.

    Args:
      x: Inputs, ``(*b, l, d)``.
      dt: Steps.
      B: Projections of the inputs.
      C: Readouts.
      rates: Decay rates.
      feedthrough: Weights of the inputs in the outputs.
      state: State before the first step, ``(*b, d, n)``.
      reset: True where a segment starts, ``(*b, l)``. None means one segment.
      lengths: Number of valid steps of each row, ``(*b,)``. None means all.

    Returns:
      ``(y, last)``: outputs and the state after the last valid step.
    """
    *batch, length, _ = x.shape
    if lengths is not None:
        valid = valid_steps(lengths, length)
        # A step of zero is the identity. A reset on padding would clear the state.
        dt = jnp.where(valid[..., None], dt, 0)
        reset = None if reset is None else reset & valid
    if reset is not None:
        reset = jnp.broadcast_to(reset, (*batch, length))
    return on_each_device(_scan_rows, (rates, feedthrough), (x, dt, B, C, state, reset))


def _scan_rows(shared, *rows):
    x, dt, B, C, state, reset = rows
    *batch, length, d = x.shape
    sequences = (v.reshape(-1, *v.shape[-2:]) for v in (x, dt, B, C))
    state = state.reshape(-1, *state.shape[-2:])
    if reset is not None:
        reset = reset.reshape(-1, length)
    y, last = _scan((*sequences, *shared, state), reset)
    return y.reshape(*batch, length, d), last.reshape(*batch, *last.shape[1:])


@jax.custom_vjp
def _scan(operands, reset):
    y, last, *_ = dispatch.selective().forward(*operands, reset, with_starts=False)
    return y, last


def _forward(operands, reset):
    kernel = dispatch.selective()
    y, last, starts = kernel.forward(*operands, reset, with_starts=True)
    return (y, last), (operands, reset, starts)


def _backward(residuals, cotangents):
    operands, reset, starts = residuals
    kernel = dispatch.selective()
    return kernel.backward(*operands, reset, starts, *cotangents), None


_scan.defvjp(_forward, _backward)
