"""Picard and Newton iterations against the sequential evaluation."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels.nonlinear import nonlinear_recurrence
from tests.bad_inputs import refuses
from tests.kernels.oracle import assert_close
from tests.tiers import tiered

B, L, N = 2, 23, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(B, L, N)).astype(np.float32)
H0 = RNG.normal(size=(B, N)).astype(np.float32)
RESET = RNG.random((B, L)) < 0.2
DECAY = np.array([0.0, 0.5, 1.0], np.float32)
PARAMS = {"kernel": RNG.normal(size=(N, N)).astype(np.float32) / 2, "rate": 0.3}


def nonlinear_term(params, h, x):
    return params["rate"] * jnp.tanh(h @ params["kernel"] + x)


def diagonal(params, h, x):
    tanh_jvp = 1 - jnp.tanh(h @ params["kernel"] + x) ** 2
    return params["rate"] * tanh_jvp * jnp.diagonal(params["kernel"])


def solved(params, x, h0, decay, **options):
    return nonlinear_recurrence(
        nonlinear_term, params, x, h0, decay=decay, diagonal=diagonal, **options
    )


def values_and_gradients(**options):
    def loss(params, x, h0, decay):
        h, stats = solved(params, x, h0, decay, **options)
        return jnp.sum(jnp.sin(3 * h)), (h, stats)

    run = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3), has_aux=True))
    (_, (h, stats)), grads = run(PARAMS, X, H0, DECAY)
    return h, grads, stats


@pytest.mark.parametrize("reset", tiered({"segments": RESET, "one": None}, full=1))
@pytest.mark.parametrize(
    ("method", "inner", "chunk"),
    [
        pytest.param("picard", "associative", None, marks=pytest.mark.nightly),
        pytest.param("picard", "sequential", 7, marks=pytest.mark.nightly),
        pytest.param("newton", "chunked", None, marks=pytest.mark.nightly),
        pytest.param("newton", "associative", 23, marks=pytest.mark.nightly),
        pytest.param("newton", "sequential", 10, marks=pytest.mark.full),
    ],
)
def test_iterations_converge_to_the_recurrence(method, inner, chunk, reset):
    h, grads, _ = values_and_gradients(method="sequential", reset=reset)
    options = {"method": method, "inner": inner, "chunk": chunk, "reset": reset}
    found, of_found, stats = values_and_gradients(**options)
    assert stats.converged
    assert 1 < stats.iterations < L
    assert_close(found, np.asarray(h), 2e-6)
    chex.assert_trees_all_close(of_found, grads, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", tiered(["newton", "picard"]))
def test_what_does_not_converge_is_stepped_through(method):
    """One iteration does not suffice for the states, nor for their derivatives."""
    h, grads, _ = values_and_gradients(method="sequential", reset=RESET)
    options = {"method": method, "max_iterations": 1, "reset": RESET}
    found, of_found, stats = values_and_gradients(**options)
    assert not stats.converged
    assert_close(found, np.asarray(h), 1e-6)
    chex.assert_trees_all_close(of_found, grads, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_a_good_guess_saves_sweeps():
    h, cold = solved(PARAMS, X, H0, DECAY)
    moved = PARAMS | {"rate": 0.3001}
    _, warm = solved(moved, X, H0, DECAY, initial_guess=h)
    assert warm.converged
    assert warm.iterations < cold.iterations


@pytest.mark.full
def test_damping_ends_at_the_same_states():
    h, _ = solved(PARAMS, X, H0, DECAY, method="newton")
    damped, stats = solved(PARAMS, X, H0, DECAY, method="newton", damping=0.5)
    assert stats.converged
    assert_close(damped, np.asarray(h), 1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kept", "turned", "scale", "better"),
    [(0.9, 0.3, 1.0, 0.0), (0.7, -0.7, 0.3, 1.0), (0.9, -0.4, 0.3, 1.0)],
    ids=["contracts", "turns", "turns_slowly"],
)
def test_damping_is_found_where_none_is_given(kept, turned, scale, better):
    """The Jacobian diagonal is a poor approximation for oscillating states."""
    kernel = jnp.array([[kept, turned], [-turned, kept]])
    x = scale * jax.random.normal(jax.random.key(0), (200, 2))

    def iterations(damping):
        h, stats = nonlinear_recurrence(
            lambda kernel, h, x: jnp.tanh(h @ kernel + x),
            kernel,
            x,
            jnp.zeros(2),
            diagonal=lambda kernel, h, x: kept * (1 - jnp.tanh(h @ kernel + x) ** 2),
            method="newton",
            damping=damping,
            max_iterations=200,
        )
        # Iterations that will not converge stop early and fall back to 200 steps.
        return int(stats.iterations) if stats.converged else 200

    low, high = iterations(better), iterations(1 - better)
    assert low < 100
    assert high > 1.4 * low
    assert iterations(None) < 1.1 * low + 1


@pytest.mark.parametrize("method", tiered(["newton", "picard"], 0, full=1))
def test_second_derivatives_are_those_of_the_recurrence(method):
    def curvature(method):
        def loss(rate):
            params = PARAMS | {"rate": rate}
            h, _ = solved(params, X, H0, DECAY, method=method)
            return jnp.sum(jnp.sin(3 * h))

        reverse = jax.jit(jax.grad(jax.grad(loss)))(0.3)
        forward = jax.jit(jax.jvp, static_argnums=0)(jax.grad(loss), (0.3,), (1.0,))
        return reverse, forward[1]

    chex.assert_trees_all_close(curvature(method), curvature("sequential"), rtol=1e-3)


CLOSED_OVER = {
    "grad": jax.grad,
    "jit": lambda loss: jax.jit(jax.grad(loss)),
    "vmap": lambda loss: jax.grad(
        lambda kernel: jnp.sum(jax.vmap(loss)(jnp.stack([kernel, kernel / 2])))
    ),
    "second": jax.hessian,
}


@pytest.mark.parametrize("transform", tiered(list(CLOSED_OVER), 0, full=1))
@pytest.mark.parametrize(
    "options",
    tiered({"picard": {"chunk": 10}, "newton": {"method": "newton"}}, full=1),
)
def test_what_the_terms_close_over_is_differentiated(transform, options):
    def derivative(options):
        def loss(kernel):
            def term(rate, h, x):
                return nonlinear_term({"rate": rate, "kernel": kernel}, h, x)

            def of_term(rate, h, x):
                return diagonal({"rate": rate, "kernel": kernel}, h, x)

            h, _ = nonlinear_recurrence(term, 0.3, X, H0, diagonal=of_term, **options)
            return jnp.sum(jnp.sin(3 * h))

        return CLOSED_OVER[transform](loss)(PARAMS["kernel"])

    chex.assert_trees_all_close(
        derivative(options), derivative({"method": "sequential"}), rtol=1e-4, atol=1e-5
    )


@pytest.mark.full
@pytest.mark.parametrize("length", [50, 500])
def test_sums_over_a_horizon_converge_as_an_exponential_series(length):
    """After ``k`` iterations the error is at most ``s**k / k!`` at any length."""
    s = 2.0
    x = np.ones((length, 1), np.float32)

    def step(params, h, x):
        return s / length * jnp.sin(h + x)

    exact, _ = nonlinear_recurrence(
        step, (), x, jnp.zeros(1), decay=jnp.ones(1), method="sequential"
    )
    h, errors = jnp.zeros((length, 1)), []
    for _ in range(8):
        h = jnp.cumsum(step((), jnp.concatenate([jnp.zeros((1, 1)), h[:-1]]), x), 0)
        errors.append(float(jnp.max(jnp.abs(h - exact))))
    first = float(jnp.max(jnp.abs(exact)))
    for k, error in enumerate(errors, 1):
        assert error <= first * s**k / math.factorial(k) + 2e-6
    _, stats = nonlinear_recurrence(step, (), x, jnp.zeros(1), decay=jnp.ones(1))
    assert stats.iterations <= 14


@pytest.mark.full
@pytest.mark.parametrize(
    "method", tiered(["sequential", "picard", "newton"], full=["picard"])
)
def test_solver_runs_in_shard_map(method):
    """Runs in `jax.shard_map` with the check of varying mesh axes."""
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((1,), ("data",), axis_types=auto)
    rows, same = jax.P("data"), jax.P()

    def loss(params, x, h0):
        h, _ = solved(params, x, h0, DECAY, method=method)
        return jax.lax.psum(jnp.sum(jnp.sin(h)), "data")

    of_rows = jax.shard_map(
        jax.grad(loss), mesh=mesh, in_specs=(same, rows, rows), out_specs=same
    )
    chex.assert_trees_all_close(
        jax.jit(of_rows)(PARAMS, X, H0),
        jax.grad(lambda p: jnp.sum(jnp.sin(solved(p, X, H0, DECAY)[0])))(PARAMS),
        rtol=1e-4,
    )


@pytest.mark.parametrize("method", tiered(["sequential", "newton"], ["sequential"]))
def test_states_of_low_precision_are_computed_in_float32(method):
    low, guess = jnp.asarray(H0, jnp.bfloat16), jnp.zeros((B, L, N), jnp.bfloat16)
    expected, _ = solved(PARAMS, X, np.float32(low), DECAY, method="sequential")
    h, _ = solved(PARAMS, X, low, DECAY, method=method, initial_guess=guess)
    assert h.dtype == jnp.float32
    assert_close(h, np.asarray(expected), 2e-6)


@pytest.mark.parametrize(
    "method",
    tiered(
        ["picard", "sequential", "newton"],
        ("sequential",),
        full=("sequential", "newton"),
    ),
)
def test_states_have_the_widest_dtype_of_the_arguments(method):
    with jax.enable_x64(True):
        given = {"params": PARAMS, "x": X, "h0": H0, "decay": DECAY}
        for name, value in given.items():
            wide = given | {name: jax.tree.map(np.float64, value)}
            h, _ = solved(**wide, method=method)
            assert h.dtype == jnp.float64


@pytest.mark.parametrize("method", tiered(["newton", "sequential", "picard"]))
def test_values_of_the_terms_are_cast_to_the_dtype_of_the_states(method):
    def low(function):
        return lambda *inputs: jnp.asarray(function(*inputs), jnp.bfloat16)

    h, _ = nonlinear_recurrence(
        low(nonlinear_term), PARAMS, X, H0, diagonal=low(diagonal), method=method
    )
    assert h.dtype == jnp.float32
    expected, _ = nonlinear_recurrence(
        nonlinear_term, PARAMS, X, H0, method="sequential"
    )
    assert_close(h, np.asarray(expected), 1e-2)


@pytest.mark.parametrize("method", ["sequential", "picard"])
@pytest.mark.parametrize(
    ("term", "value"),
    [
        (lambda params, h, x: h[..., :2], (B, 2)),
        (lambda params, h, x: 0.5, "float"),
        (lambda params, h, x: (h, x), "tuple"),
        (lambda params, h, x: jnp.zeros(h.shape, jnp.int32), "int32"),
        (lambda params, h, x: jnp.zeros(h.shape, jnp.complex64), "complex64"),
    ],
    ids=["shape", "number", "tuple", "int", "complex"],
)
def test_the_value_of_the_term_is_checked(method, term, value):
    with refuses("nonlinear_term", value):
        nonlinear_recurrence(term, (), X, H0, method=method)


def test_leaves_are_arrays():
    with refuses("x", "float 1.0"):
        nonlinear_recurrence(nonlinear_term, PARAMS, [[1.0] * N], jnp.ones(N))


def test_all_leaves_have_one_length():
    x = {"one": jnp.ones((B, L, N)), "other": jnp.ones((B, L + 1, N))}
    with refuses("x", (B, L + 1, N)):
        nonlinear_recurrence(nonlinear_term, PARAMS, x, jnp.ones((B, N)))


def test_newton_requires_a_diagonal():
    x, h0 = jnp.ones((4, 1)), jnp.zeros(1)
    with refuses("diagonal", "'newton'"):
        nonlinear_recurrence(nonlinear_term, (), x, h0, method="newton")
