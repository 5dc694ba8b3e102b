"""Complex exponential smoothing: accuracy, bounds, and proposition 1."""

import cmath

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import CES
from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.recurrences import oracle
from tests.tiers import tiered

FULL = CES(bidirectional=True)
METHODS = ("sequential", "associative", "chunked", "fft")


@pytest.mark.parametrize(
    ("smoothing", "numbers"),
    [
        (FULL, 13),
        (CES(), 7),
        (CES(alpha=False), 5),
        (CES(beta=False), 5),
        (CES(shortcut="none"), 6),
        (CES(eigenvalues="real"), 4),
    ],
)
def test_numbers_a_channel(smoothing, numbers):
    params = smoothing.init(jax.random.key(0), 5)
    assert sum(leaf.size for leaf in params.values()) == numbers * 5


@pytest.mark.full
def test_ring_is_drawn_evenly_over_its_area(key):
    params = CES(r_min=0.3, r_max=0.8, max_phase=1.5).init(key, 20_000)
    lam = np.exp(np.exp(params["loglog_re"] + 1j * params["loglog_im"]))
    square = (np.abs(lam) ** 2 - 0.3**2) / (0.8**2 - 0.3**2)
    phase = np.exp(params["loglog_re"]) * np.sin(params["loglog_im"]) / 1.5
    quantiles = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(np.quantile(square, quantiles), quantiles, atol=0.02)
    np.testing.assert_allclose(np.quantile(phase, quantiles), quantiles, atol=0.02)
    exponent = np.asarray(params["log_alpha_re"])
    np.testing.assert_array_equal(exponent, params["log_alpha_im"])
    assert np.log(1e-3) <= exponent.min() < np.log(1.1e-3)
    np.testing.assert_allclose(np.std(params["log_gain_im"]), 0.2, rtol=0.05)


def test_stable_start_is_one_point(key):
    params = CES(stable=(0.5, 0.0)).init(key, 3)
    expected = cmath.log(cmath.log(0.5))
    np.testing.assert_allclose(params["loglog_re"], expected.real, rtol=1e-6)
    np.testing.assert_allclose(params["loglog_im"], expected.imag, rtol=1e-6)


def test_bound_is_the_division_by_the_modulus(key):
    smoothing = CES(max_modulus=0.99)
    params = dict(smoothing.init(key, 50))
    params["loglog_im"] = jnp.linspace(-3, 3, 50)  # moduli on both sides of the bound
    log_abs, phase = smoothing.log_mu(params)
    lam = np.exp(np.float64(params["loglog_re"]) + 1j * np.float64(params["loglog_im"]))
    alpha = np.exp(np.float64(params["log_alpha_re"])) * (1 + 1j)
    mu = np.exp(lam * alpha)
    over = np.abs(mu) > 0.99
    assert 5 < np.sum(over) < 45
    mu = np.where(over, mu / np.abs(mu) * 0.99, mu)
    np.testing.assert_allclose(np.exp(log_abs + 1j * phase), mu, atol=1e-6)


def mode_of(modes):
    """Decays and weights in float64."""
    log = jax.tree.map(np.float64, modes.log_decay)
    return np.exp(log.log_abs + 1j * log.phase), np.complex128(modes.w)


@pytest.mark.parametrize(
    "length", tiered([1, 2, 100, 16_384], (100,), full=(100, 16_384))
)
@pytest.mark.parametrize("method", tiered(METHODS, ("fft",), full=("chunked", "fft")))
def test_long_memory_at_the_bound_is_right(length, method):
    """Of all channels ``|mu| = 0.9999``, and phases from 0 to 0.05 a step.

    From ``log mu`` on, as it is held: its own float32 rounding turns by 1e-5 in the
    10,000 steps that such a channel remembers.
    """
    params = dict(FULL.init(jax.random.key(0), 4))
    for suffix in ("", "_backward"):
        params[f"loglog_re{suffix}"] = jnp.zeros(4)
        params[f"loglog_im{suffix}"] = jnp.linspace(0, 0.05, 4)
        params[f"log_alpha_re{suffix}"] = jnp.linspace(-8, 0, 4)
        params[f"log_alpha_im{suffix}"] = jnp.linspace(-8, -3, 4)
    assert jnp.all(FULL.log_mu(params)[0] == np.float32(np.log(0.9999)))
    x = np.random.default_rng(0).normal(size=(1, length, 4)).astype(np.float32)
    y, _ = jax.jit(FULL.apply, static_argnames="method")(params, x, method=method)
    modes = FULL.modes(params)
    ahead, _ = oracle.run(*mode_of(modes), x)
    behind, _ = oracle.run(*mode_of(modes.backward()), x[:, ::-1])
    ahead[:, :-1] += behind[:, -2::-1]
    assert_close(y, ahead + np.float64(params["shortcut"]) * x, 1e-5)


@pytest.mark.full
@pytest.mark.parametrize("eigenvalues", tiered(["complex", "real"], ("real",)))
@pytest.mark.parametrize("small_change", tiered([False, True]))
def test_no_draw_gives_a_number_that_is_none(eigenvalues, small_change):
    """10,000 channels: scales up to 1e30, so ``|lambda|`` to 0 and beyond overflow."""
    smoothing = CES(
        bidirectional=True, eigenvalues=eigenvalues, small_change=small_change
    )
    rng = np.random.default_rng(0)
    like = smoothing.init(jax.random.key(0), 10_000)

    def drawn():
        sign = rng.choice([-1, 1], 10_000)
        return jnp.asarray(sign * 10 ** rng.uniform(-3, 30, 10_000), jnp.float32)

    params = {name: drawn() for name in like}
    x = rng.normal(size=(1, 5, 10_000)).astype(np.float32)

    @jax.jit
    def run(params, x):
        def total(params, x):
            y, _ = smoothing.apply(params, x)
            # Outputs of 1e30 are finite in float32, their squares are not.
            return jnp.sum(jnp.tanh(y)), y

        return jax.grad(total, (0, 1), has_aux=True)(params, x)

    chex.assert_tree_all_finite(run(params, x))


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"r_min": 0.9, "r_max": 0.1}, "r_min", 0.9),
        ({"dt_min": 0.0}, "dt_min", 0.0),
        ({"max_modulus": 1.1}, "max_modulus", 1.1),
        ({"stable": (1.0, 0.0)}, "stable", 1.0),
    ],
)
def test_bad_field_is_refused(fields, name, value):
    with refuses(name, value):
        CES(**fields)
