"""Faults of kernels, recurrences, layers and models."""

from tests.faults.fault import Fault

_KERNELS = (
    Fault(
        "stretch_ignores_reset",
        "ssm_jax/kernels/scan.py",
        "kept = jnp.where(at(k, was_reset), 0, before)",
        "kept = before",
    ),
    Fault(
        "reverse_reset_not_shifted",
        "ssm_jax/kernels/recurrence.py",
        "reset_in_scan_order = shift.shift_left(reset_in_scan_order[..., None])[..., 0]",  # noqa: E501
        "reset_in_scan_order = jnp.asarray(reset_in_scan_order)",
    ),
    Fault(
        "transposed_reset_not_shifted",
        "ssm_jax/kernels/recurrence.py",
        "reset_transposed = shift_next(reset_transposed[..., None])[..., 0]",
        "reset_transposed = jnp.asarray(reset_transposed)",
    ),
    Fault(
        "fft_wraps_around",
        "ssm_jax/kernels/fft.py",
        "circular_convolution(length + taps - 1)",
        "circular_convolution(length)",
    ),
    Fault(
        "attention_reads_state_behind_reset",
        "ssm_jax/kernels/attention.py",
        "jnp.where(in_first, q, 0), states.reshape(local.shape)",
        "q, states.reshape(local.shape)",
    ),
    Fault(
        "chunks_converged_if_one_did",
        "ssm_jax/kernels/nonlinear.py",
        "count, converged = jnp.max(count), jnp.min(converged)",
        "count, converged = jnp.max(count), jnp.max(converged)",
    ),
)

_RECURRENCES = (
    Fault(
        "bilinear_gain_sign",
        "ssm_jax/recurrences/families/discretization.py",
        "divided(dt, 1 - z / 2)",
        "divided(dt, 1 + z / 2)",
    ),
    Fault(
        "initial_state_decays_over_padding",
        "ssm_jax/recurrences/families/modal_convolution.py",
        "steps = jnp.asarray(length if lengths is None else lengths)",
        "steps = jnp.asarray(length)",
    ),
    Fault(
        "backward_direction_crosses_reset",
        "ssm_jax/recurrences/families/time_invariant.py",
        "h = shift_left(h, reset)",
        "h = shift_left(h)",
    ),
    Fault(
        "gru_update_gate_swapped",
        "ssm_jax/recurrences/rnn.py",
        "return one_minus_z * c + z * h, jacobian_diagonal",
        "return z * c + one_minus_z * h, jacobian_diagonal",
    ),
    Fault(
        "gla_scaled_by_value_width",
        "ssm_jax/recurrences/gla.py",
        "* d_key**-0.5",
        "* d_value**-0.5",
    ),
    Fault(
        "s5_input_not_conjugated",
        "ssm_jax/recurrences/s5.py",
        "V_conj = np.conj(V)",
        "V_conj = V",
    ),
    Fault(
        "running_sums_keep_state_behind_reset",
        "ssm_jax/recurrences/families/running_sums.py",
        "from_h0 = latest[..., 0] == 0",
        "from_h0 = latest[..., 0] >= 0",
    ),
    Fault(
        "step_bias_takes_weight_decay",
        "ssm_jax/recurrences/selective_ssm.py",
        '["log_rate", "step_bias", "feedthrough"]',
        '["log_rate", "feedthrough"]',
    ),
)

_LAYERS = (
    Fault(
        "attention_mask_on_queries",
        "ssm_jax/layers/softmax.py",
        "visible &= mask[..., None, :]",
        'visible &= jnp.take(mask, steps, axis=-1, mode="clip")[..., :, None]',
    ),
    Fault(
        "convolution_window_ends_in_padding",
        "ssm_jax/layers/short_convolution.py",
        "index = steps_from(lengths, past)",
        "index = steps_from(jnp.full_like(lengths, length), past)",
    ),
    Fault(
        "mamba_gate_is_sigmoid",
        "ssm_jax/layers/mamba.py",
        "out(y * jax.nn.silu(z))",
        "out(y * jax.nn.sigmoid(z))",
    ),
    Fault(
        "dropout_not_rescaled",
        "ssm_jax/layers/dropout.py",
        "jnp.where(mask, x / keep, 0)",
        "jnp.where(mask, x, 0)",
    ),
    Fault(
        "gelu_derivative",
        "ssm_jax/layers/channel_mixing.py",
        "(cdf + x * pdf) * x_dot",
        "(cdf + pdf) * x_dot",
    ),
    Fault(
        "batch_norm_counts_padding",
        "ssm_jax/models/norm.py",
        "difference = _moments(x, mask, axis_name)",
        "difference = _moments(x, None, axis_name)",
    ),
    Fault(
        "pooled_mean_over_padding",
        "ssm_jax/models/heads.py",
        "/ jnp.maximum(n, 1)",
        "/ x.shape[-2]",
    ),
    Fault(
        "positions_start_at_one",
        "ssm_jax/models/encoders.py",
        "position = before[..., None] + jnp.cumsum(valid, -1) - valid",
        "position = before[..., None] + jnp.cumsum(valid, -1)",
    ),
    Fault(
        "blocks_without_mask",
        "ssm_jax/models/stack.py",
        'flags = {"reset": reset, "mask": mask, "train": train}',
        'flags = {"reset": reset, "mask": None, "train": train}',
    ),
)

MODEL = _KERNELS + _RECURRENCES + _LAYERS
