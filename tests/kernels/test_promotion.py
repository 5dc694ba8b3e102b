"""Kernels under the strictest settings of dtype and rank promotion."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax import kernels
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from tests.compilation import assert_allowed_by_strict_promotion, strict_promotion
from tests.kernels.cases import CONSTANT, RESET, SCANS, VARYING, make
from tests.tiers import tiered

B, L, N = 3, 7, 4
DECAY = CONSTANT["log_phase_lo"]
LOW = jnp.ones((B, L, N), jnp.bfloat16)
KERNEL = np.ones((N, L), np.float32)
HEADS = jnp.ones((B, L, 2, N), jnp.bfloat16)
H0, RATES = np.ones((B, N), np.float32), np.full(N, 0.5, np.float32)


def term(params, h, x):
    return jnp.tanh(params * h) + x.astype(h.dtype)


def of_term(params, h, x):
    return params * (1 - jnp.square(jnp.tanh(params * h)))


def nonlinear(params, x, h0, decay):
    return kernels.nonlinear_recurrence(
        term, params, x, h0, decay=decay, diagonal=of_term, reset=RESET, method="newton"
    )[0]


# Arguments of several dtypes and ranks, of every kernel.
CALLS = {
    "linear_recurrence": (
        partial(kernels.linear_recurrence, reset=RESET, method="associative"),
        (DECAY, LOW, H0),
    ),
    "nonlinear_recurrence": (nonlinear, (0.3, LOW, H0, RATES)),
    "modal_kernel": (
        partial(kernels.modal_kernel, length=L, part="complex"),
        (CONSTANT["log"], np.ones((2, 3, N), np.float32)),
    ),
    "causal_convolution": (kernels.causal_convolution, (LOW, KERNEL)),
    "bidirectional_convolution": (
        kernels.bidirectional_convolution,
        (LOW, KERNEL, KERNEL),
    ),
    "decay_powers": (lambda log: kernels.decay_powers(log, jnp.arange(L)), (DECAY,)),
    "final_state": (kernels.final_state, (DECAY, LOW)),
    "linear_attention": (
        partial(kernels.linear_attention, reset=RESET, mask=~RESET),
        (HEADS, HEADS, HEADS, jnp.ones((B, 2, N, N + 1))),
    ),
    "matrix_recurrence": (
        partial(
            kernels.matrix_recurrence, reset=RESET, mask=~RESET, method="associative"
        ),
        (HEADS, HEADS, HEADS, jnp.zeros((B, L, 2)), HEADS[..., 0]),
    ),
    "n_step_decay": (partial(kernels.n_step_decay, count=5), (DECAY,)),
    "to_log_decay": (kernels.to_log_decay, (CONSTANT["complex"],)),
}
# They take no arrays whose values they use.
OTHERS = {"LogDecay", "SolverStats", "chosen_method", "compiling_for"}


def gradient(function):
    """Returns the gradient of a function in all arguments."""

    def total(*args):
        leaves = jax.tree.leaves(function(*args))
        return sum(jnp.sum(jnp.real(leaf).astype(jnp.float32)) for leaf in leaves)

    def of_all(*args):
        # The gradient in complex numbers is that in their real and imaginary parts.
        return jax.grad(total, tuple(range(len(args))))(*args)

    return of_all


def test_every_kernel_is_tested():
    assert CALLS.keys() | OTHERS == set(kernels.__all__)


@pytest.mark.parametrize(("function", "args"), tiered(CALLS, 4, unpack=True))
def test_program_is_that_of_the_default_settings(function, args):
    assert_allowed_by_strict_promotion(gradient(function), *args)


@pytest.mark.full
@pytest.mark.parametrize(
    "kind",
    tiered([*CONSTANT, *VARYING], 0, full=("log_phase_lo", "varying_complex")),
)
@pytest.mark.parametrize("method", [*SCANS, "fft"])
def test_each_method_and_kind_of_decay(method, kind):
    if method == "fft" and kind in VARYING:
        pytest.skip("An FFT needs a time-invariant decay.")
    for dtype in (jnp.bfloat16, jnp.complex64):
        decay, p = make(kind, (B, L, N), is_complex=dtype == jnp.complex64)
        for reverse in (False, True):
            run = partial(kernels.linear_recurrence, reverse=reverse, method=method)
            if method != "fft":
                run = partial(run, reset=RESET)
            with strict_promotion():
                jax.eval_shape(gradient(run), decay, jnp.asarray(p.b, dtype), p.h0)


@pytest.mark.full
@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize(("function", "args"), tiered(CALLS, 4, full=6, unpack=True))
def test_for_other_platforms(function, args, platform):
    with kernels.compiling_for(platform), strict_promotion():
        jax.eval_shape(gradient(function), *args)


def test_strict_settings_refuse_what_is_promoted_here():
    """Without this the tests above could not fail."""
    bias, x = jnp.ones(3), jnp.ones((2, 3), jnp.complex64)
    with strict_promotion():
        for wrong in (bias.astype(x.dtype), promoted_like(bias, jnp.ones((2, 3)))):
            with pytest.raises(ValueError, match="promot"):
                wrong + x  # pyright: ignore[reportUnusedExpression]
        y = promoted_like(bias, x) + x
        assert common_dtype(bias, x) == y.dtype == jnp.complex64
    np.testing.assert_array_equal(y, np.asarray(bias) + np.asarray(x))
    # Of NumPy arrays the dtype that JAX gives them.
    assert promoted_like(bias, np.ones((2, 3))).dtype == jnp.float32
