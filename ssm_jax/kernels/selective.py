"""The selective recurrence of Mamba, with given steps, projections and readouts."""

import jax.numpy as jnp

from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.kernels.precision import einsum_f32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.types import Activations, Array, Float


def selective_form(
    x: Activations,
    dt: Activations,
    B: Float[Array, "*b l n"],
    C: Float[Array, "*b l n"],
    rates: Float[Array, "d n"],
    feedthrough: Float[Array, " d"],
) -> ChunkedForm:
    r"""Returns a selective SSM, whose state is ``(*b, d, n)``, as a `ChunkedForm`.

    .. math::
      h_t = \exp(-\Delta_t r) h_{t-1} + \Delta_t B_t x_t, \qquad
      y_t = \langle C_t, h_t \rangle + D x_t

    Args:
      x: Inputs, ``(*b, l, d)``.
      dt: Steps ``Delta``, positive, ``(*b, l, d)``.
      B: Projections of the inputs, ``(*b, l, n)``, which all channels share.
      C: Readouts, ``(*b, l, n)``, which all channels share.
      rates: Decay rates ``r``, positive, ``(d, n)``.
      feedthrough: ``D``, ``(d,)``.
    """
    # Outside of the loop over steps, which would read them across their rows.
    rates_by_state = rates.T
    # On CPUs products of matrices: the gradients in B and C, sums over channels, are
    # then products, too, whose operands XLA does not broadcast in memory. Elsewhere
    # sums, which are fused with the states.
    by_products = target_platform() == "cpu"
    if by_products:
        # For each sequence, so that the gradient is summed over them once and not at
        # each step.
        rates_by_state = jnp.broadcast_to(
            rates_by_state, (*x.shape[:-2], *rates_by_state.shape)
        )

    def log_decay_and_input(inputs):
        x, dt, B, _ = inputs
        # (b, c, n, d), for the steps of one chunk only, or (b, n, d).
        rates = rates_by_state
        if by_products and dt.ndim == rates.ndim:
            rates = rates[..., None, :, :]
        # r > 0 and Delta > 0: no decay exceeds 1, whatever the input.
        steps = -dt[..., None, :]
        log_decay = steps * promoted_like(rates, steps)
        # Delta B x by Euler's rule.
        if by_products:
            return log_decay, einsum_f32("...d,...n->...nd", dt * x, B)
        return log_decay, (dt * x)[..., None, :] * B[..., None]

    def readout(inputs, h):
        x, _, _, C = inputs
        if by_products:
            y = einsum_f32("...nd,...n->...d", h, C)
        else:
            y = jnp.sum(h * C[..., None], -2)
        return y + promoted_like(feedthrough, x) * x

    def by_kernel(*args):
        # Imported where it is used: Pallas takes longer to import than all kernels.
        from ssm_jax.kernels.pallas.selective import selective_scan

        return selective_scan(x, dt, B, C, rates, feedthrough, *args)

    return ChunkedForm(
        log_decay_and_input,
        readout,
        (x, dt, B, C),
        log_decays=True,
        kernel=by_kernel,
        swaps=True,
    )
