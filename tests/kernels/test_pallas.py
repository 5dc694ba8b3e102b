"""Kernels in Pallas: blocks of steps and states, and the platform that they are for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import compiling_for, linear_recurrence
from ssm_jax.kernels.pallas import dispatch, selective_tpu
from ssm_jax.recurrences import SelectiveSSM
from tests.bad_inputs import refuses
from tests.kernels import oracle
from tests.kernels.cases import CONSTANT, RESET, N, check, make
from tests.tiers import tiered

KINDS = ("real", "log_phase", "varying_real", "varying_complex")

each_direction = pytest.mark.parametrize("reverse", tiered([True, False]))
of_gpus = pytest.mark.skipif(
    jax.__version_info__ < (0, 11), reason="the kernel for GPUs needs JAX 0.11"
)


@pytest.fixture
def on_gpu(monkeypatch):
    """Evaluates by the kernel for GPUs, which is interpreted on a CPU."""
    monkeypatch.setattr(dispatch, "on_gpu", lambda **_: True)
    # The kernel of the TPU may have been compiled for the same arguments.
    jax.clear_caches()
    yield
    jax.clear_caches()


@of_gpus
@each_direction
@pytest.mark.parametrize("kind", tiered(KINDS, ("varying_complex",)))
def test_kernel_of_gpus_is_the_loop(kind, reverse, on_gpu):
    decay, p = make(kind, (3, 7, N), reset=RESET, reverse=reverse)
    check(decay, p, "pallas", 1e-6)


# A block of 64 steps and 5 more, whose group is incomplete.
@of_gpus
@each_direction
@pytest.mark.parametrize("kind", tiered(KINDS, ("real",)))
def test_kernel_of_gpus_over_blocks_is_the_loop(kind, reverse, on_gpu):
    decay, p = make(kind, (69, N), reverse=reverse)
    check(decay, p, "pallas", 1e-5)


# Two blocks of 256 steps and 7 more; in reverse order the incomplete one is first.
@pytest.mark.parametrize("reverse", tiered([True, False], full=1))
@pytest.mark.parametrize("kind", tiered(KINDS, (), full=("log_phase", "varying_real")))
def test_kernel_of_tpus_over_blocks_with_resets_is_the_loop(kind, reverse):
    reset = np.random.default_rng(4).random((2, 519)) < [[0.003], [0.1]]
    reset[:, [255, 256, 511, 518]] = True
    decay, p = make(kind, (2, 519, N), reset=reset, reverse=reverse)
    check(decay, p, "pallas", 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("n", [200, 600])
def test_states_of_several_blocks_are_those_of_one(n):
    key_a, key_b = jax.random.split(jax.random.key(0))
    a = jax.random.uniform(key_a, (2, 9, n))
    b = jax.random.normal(key_b, (2, 9, n))
    one, many = (
        linear_recurrence(a, b, method=method)[0] for method in ("sequential", "pallas")
    )
    np.testing.assert_allclose(many, one, atol=1e-5)


@pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="of an older JAX")
def test_gpus_need_a_newer_jax():
    with compiling_for("cuda"), refuses("method", jax.__version__, rule="JAX 0.11"):
        linear_recurrence(CONSTANT["real"], jnp.ones((3, N)), method="pallas")


@pytest.mark.full
@of_gpus
def test_selective_kernel_of_gpus_is_the_scan(on_gpu):
    selective_kernel_is_the_scan(7)


# A block of 128 steps and 3 more.
@pytest.mark.full
def test_selective_kernel_of_tpus_over_blocks_is_the_scan():
    selective_kernel_is_the_scan(131)


# Three blocks of 128 channels; the scan is compared with the definition elsewhere.
@pytest.mark.full
def test_selective_kernel_of_tpus_over_blocks_of_channels_is_the_scan():
    selective_kernel_is_the_scan(7, 384)


@pytest.mark.parametrize(("width", "size"), [(1024, 256), (1664, 128), (96, 96)])
def test_selective_kernel_of_tpus_holds_few_channels_at_once(width, size):
    # Of 1664 channels with 16 states, the gradient does not fit in VMEM.
    x, B = jnp.zeros((1, 1, width)), jnp.zeros((1, 1, 16))
    assert selective_tpu._Blocks(x, B).rows.block_shape[-1] == size


@pytest.mark.parametrize(
    "method",
    tiered(
        ["associative", "chunked", "sequential", "pallas"],
        ("chunked",),
        full=("chunked", "sequential", "pallas"),
    ),
)
def test_a_segment_that_is_not_finite_leaves_those_after_it(method):
    # Its decays are not finite either.
    recurrence = SelectiveSSM(d_state=2)
    params = recurrence.init(jax.random.key(0), 2)

    def run(x, reset=None):
        return recurrence.apply(params, x, reset=reset, method=method)

    y, last = run(jnp.ones((6, 2)).at[1].set(jnp.nan), jnp.arange(6) == 3)
    oracle.assert_close((y[3:], last), run(jnp.ones((3, 2))), 1e-6)


def selective_kernel_is_the_scan(length, width=5):
    """Compares values and gradients, with resets, padding and a start."""
    rng = np.random.default_rng(0)
    recurrence = SelectiveSSM(d_state=3)
    params = recurrence.init(jax.random.key(0), width)
    x, state, weights = (
        np.float32(rng.normal(size=size))
        for size in ((2, length, width), (2, width, 3), (2, length, width))
    )
    options = {
        "reset": rng.random((2, length)) < 0.1,
        "mask": np.arange(length) < [[length], [length - 2]],
    }

    def evaluate(method):
        def loss(params, x, state):
            y, last = recurrence.apply(params, x, state, method=method, **options)
            return jnp.sum(weights * y) + jnp.sum(last**2), (y, last)

        run = jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)
        return jax.jit(run)(params, x, state)

    oracle.assert_close(evaluate("pallas"), evaluate("sequential"), 2e-6)


@pytest.mark.full
def test_growing_powers_of_a_zero_state_are_zero():
    # 2**256 is not a float32.
    h, _ = linear_recurrence(jnp.array([2.0]), jnp.zeros((300, 1)), method="pallas")
    np.testing.assert_array_equal(h, 0)
