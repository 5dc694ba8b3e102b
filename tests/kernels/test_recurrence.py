"""`linear_recurrence`: values, gradients, dtypes, choice of methods and errors."""

import functools
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ssm_jax.kernels import LogDecay, chosen_method, linear_recurrence, scan
from tests.bad_inputs import refuses
from tests.kernels import oracle
from tests.kernels.cases import (
    CONSTANT,
    METHODS,
    RESET,
    SCANS,
    VARYING,
    N,
    check,
    each_evaluation,
    each_method,
    evaluate,
    expected,
    make,
    numbers,
    weighted,
)
from tests.tiers import tiered

KINDS = (*CONSTANT, *VARYING)
LENGTHS = (1, 2, 3, 127, 1000, 8191)
DIRECTIONS = {"forward": False, "reverse": True}

each_scan = pytest.mark.parametrize("method", SCANS)
each_length = pytest.mark.parametrize(
    "length", tiered(LENGTHS, (127,), full=(1, 127, 8191))
)
each_direction = pytest.mark.parametrize("reverse", tiered(DIRECTIONS))


@pytest.mark.parametrize(
    "kind", tiered(KINDS, ("real",), full=("real", "log_phase_lo", "varying_complex"))
)
@each_scan
def test_scans_are_the_loop(method, kind):
    decay, p = make(kind, (3, 7, N), reset=RESET)
    check(decay, p, method, 1e-6)


@pytest.mark.parametrize(
    "kind", tiered(("varying_real", "complex", "varying_complex"), 0, full=2)
)
@each_scan
def test_scans_in_reverse_are_the_loop(method, kind):
    decay, p = make(kind, (3, 7, N), reset=RESET, reverse=True)
    check(decay, p, method, 1e-6)


@each_direction
@pytest.mark.parametrize(
    "kind", tiered(list(CONSTANT), ("real",), full=("real", "log_phase_lo"))
)
def test_fft_is_the_loop(kind, reverse):
    decay, p = make(kind, (3, 7, N), reverse=reverse)
    check(decay, p, "fft", 1e-6)


@each_length
@pytest.mark.parametrize("method", tiered(METHODS, ("fft",), full=("fft", "chunked")))
def test_constant_decay_of_any_length(method, length):
    decay, p = make("log_phase", (length, N))
    # Without fused multiply-add each step is rounded twice.
    check(decay, p, method, 2e-5)


@pytest.mark.parametrize("kind", tiered(("real", "log_phase")))
@each_direction
def test_stretches_with_resets_are_the_loop(kind, reverse):
    # 32 stretches of 32 steps and 13 more; segments end within and at stretches.
    reset = np.random.default_rng(4).random((2, 1037)) < [[0.003], [0.1]]
    reset[:, [32, 64, 65, 1023, 1024]] = True
    decay, p = make(kind, (2, 1037, N), reset=reset, reverse=reverse)
    check(decay, p, "sequential", 1e-5)


@pytest.mark.parametrize("reverse", tiered(DIRECTIONS, full=1))
@pytest.mark.parametrize(
    "kind", tiered(("varying_real", "real", "varying_complex"), full=2)
)
@pytest.mark.parametrize("method", tiered(SCANS, 2))
def test_values_that_are_not_finite_do_not_cross_resets(method, kind, reverse):
    # Three segments; those on both sides of the second are as if it were finite.
    reset = np.isin(np.arange(10), [3, 7])
    decay, p = make(kind, (10, N), reset=reset, reverse=reverse)
    inner = (np.arange(10)[:, None] >= 3) & (np.arange(10)[:, None] < 7)
    b = np.where(inner, np.nan, p.b)
    a = np.where(inner, np.nan, decay) if kind in VARYING else decay
    c = np.where(inner, 0, p.c)

    def run(a, b):
        options = {"reset": reset, "reverse": reverse, "method": method}
        (h, _), (of_a, of_b, of_h0) = evaluate(a, b, p.h0, c, p.c_last, **options)
        states = functools.partial(linear_recurrence, **options)
        tangents = (np.ones_like(a), np.ones_like(b))
        _, (tangent, _) = jax.jvp(states, (a, b), tangents)
        steps = (h, of_b, tangent, *[of_a] * (kind in VARYING))
        return [np.where(inner, 0, leaf) for leaf in steps], of_h0

    oracle.assert_close(run(a, b), run(decay, p.b), 1e-6)


@each_scan
@pytest.mark.parametrize("kind", tiered(("varying_real", "real", "log"), full=2))
def test_initial_state_that_is_not_finite_does_not_cross_a_reset(method, kind):
    decay, p = make(kind, (3, N))
    states = functools.partial(
        linear_recurrence, decay, p.b, reset=np.arange(3) == 0, method=method
    )
    oracle.assert_close(states(np.full(N, np.nan, np.float32)), states(), 1e-6)


@pytest.mark.parametrize("method", tiered(SCANS, ("sequential",)))
def test_program_of_a_real_decay_has_no_complex_values(method):
    decay, p = make("real", (1100, N))
    options = {"reverse": False, "method": method}
    assert "complex" not in evaluate.lower(decay, *p[1:6], **options).as_text()


@pytest.mark.parametrize("length", tiered([1, 2, 3, 6, 8, 13, 64, 100], 6))
def test_elements_of_a_call_span_the_steps_of_its_level(length):
    called = []

    def count(left, right):
        called.append(np.asarray(right))
        return left + right

    jax.lax.associative_scan(count, jnp.ones(length, jnp.int32))
    for right, (level, size) in zip(called, scan._calls(length), strict=True):
        np.testing.assert_array_equal(right, np.full(size, 2**level))


@each_length
@pytest.mark.parametrize("method", tiered(SCANS, ("chunked",)))
def test_varying_decay_of_any_length(method, length):
    decay, p = make("varying_complex", (length, N))
    check(decay, p, method, 1e-5)


@st.composite
def recurrences(draw):
    method = draw(st.sampled_from(METHODS))
    kind = draw(st.sampled_from(tuple(CONSTANT) if method == "fft" else KINDS))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    length = draw(st.integers(1, 6))
    reset = None
    if method != "fft" and draw(st.booleans()):
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        reset = rng.random((*batch, length)) < 0.3
    options = {"reset": reset, "reverse": draw(st.booleans()), "is_complex": True}
    return method, *make(kind, (*batch, length, N), **options)


@pytest.mark.full
@settings(deadline=None, max_examples=10, derandomize=True)
@given(recurrences())
def test_any_shape_is_the_loop(recurrence):
    method, decay, p = recurrence
    check(decay, p, method, 2e-6)


@functools.partial(jax.jit, static_argnames=("reverse", "method"))
def piece(decay, b, h0, *, reverse, method):
    return linear_recurrence(decay, b, h0, reverse=reverse, method=method)


@pytest.mark.parametrize(
    "sizes", tiered([(3, 1), (1, 3), (1,) * 4], 0, full=1), ids=str
)
@pytest.mark.parametrize("reverse", tiered(DIRECTIONS, 0, full=["reverse"]))
@each_evaluation
def test_pieces_are_the_whole(method, kind, reverse, sizes):
    decay, p = make(kind, (4, N), reverse=reverse)
    ends = np.cumsum(sizes)[:-1]

    def loss(decay, b, h0):
        inputs, state = jnp.split(b, ends), h0
        decays = jnp.split(decay, ends) if kind in VARYING else [decay] * len(sizes)
        parts = list(zip(decays, inputs, strict=True))
        h = []
        for a, b in reversed(parts) if reverse else parts:
            states, state = piece(a, b, state, reverse=reverse, method=method)
            h.append(states)
        out = jnp.concatenate(h[::-1] if reverse else h), state
        return weighted(out, p.c, p.c_last), out

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
    grads, out = gradient(decay, p.b, p.h0)
    oracle.assert_close((out, grads), expected(decay, p), 1e-6)


MODULI = np.array([0.9, 0.99, 0.999, 0.99999, 1.0])
PHASES = np.random.default_rng(3).uniform(-3.1, 3.1, 20).astype(np.float32)
# Rounding errors of the steps add up as a random walk: sqrt(131072) * 6e-8 = 2e-5.
LONG = {"fft": 2e-6, "chunked": 5e-6, "associative": 5e-6, "sequential": 2e-5}


@pytest.fixture(scope="module", params=["numbers", "log"])
def long_memory(request):
    """Returns a decay, its problem of 131,072 steps, and the expected result."""
    decay = LogDecay(np.log(np.repeat(MODULI, 4)).astype(np.float32), PHASES)
    if request.param == "numbers":
        decay = numbers(decay).astype(np.complex64)
    p = oracle.problem(numbers(decay), (2**17, 20), seed=3)
    return decay, p, by_modulus(expected(decay, p))


def by_modulus(tree):
    """Splits sequences by modulus, so that each has its own scale of errors."""
    return [
        np.split(leaf, len(MODULI), -1) if leaf.ndim > 1 else leaf
        for leaf in jax.tree.leaves(tree)
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("method", LONG)
def test_long_memory_lasts_131072_steps(method, long_memory):
    decay, p, wanted = long_memory
    given = evaluate(decay, *p[1:6], reverse=False, method=method)
    oracle.assert_close(by_modulus(given), wanted, LONG[method])


LOG = LogDecay(jnp.zeros(3), jnp.zeros(3))
A, B = jnp.zeros(3), jnp.zeros((2, 5, 3))
NO_RESET = jnp.zeros((2, 5), bool)

DTYPES = {
    "real": (jnp.float32, jnp.float32, None, jnp.float32),
    "complex_decay": (jnp.complex64, jnp.float32, None, jnp.complex64),
    "complex_input": (jnp.float32, jnp.complex64, None, jnp.complex64),
    "complex_start": (jnp.float32, jnp.float32, jnp.complex64, jnp.complex64),
    "low_input": (jnp.float32, jnp.bfloat16, jnp.bfloat16, jnp.float32),
    "low_all": (jnp.bfloat16, jnp.bfloat16, jnp.bfloat16, jnp.float32),
    "low_input_complex_decay": (jnp.complex64, jnp.bfloat16, None, jnp.complex64),
    "double_decay": (jnp.float64, jnp.float32, None, jnp.float64),
    "double_input": (jnp.float32, jnp.float64, None, jnp.float64),
    "double_complex": (jnp.complex64, jnp.float64, None, jnp.complex128),
}


@pytest.mark.parametrize("row", tiered(DTYPES, 4))
@each_method
def test_states_have_the_widest_dtype_and_at_least_float32(method, row):
    a, b, h0, out = row
    with jax.enable_x64(out in (jnp.float64, jnp.complex128)):
        h, h_last = jax.eval_shape(
            lambda a, b, h0: linear_recurrence(a, b, h0, method=method),
            jax.ShapeDtypeStruct((3,), a),
            jax.ShapeDtypeStruct((2, 5, 3), b),
            None if h0 is None else jax.ShapeDtypeStruct((2, 3), h0),
        )
    assert (h.shape, h.dtype) == ((2, 5, 3), out)
    assert (h_last.shape, h_last.dtype) == ((2, 3), out)


@each_method
def test_a_logarithm_is_complex_where_it_has_a_phase(method):
    def states(log):
        return linear_recurrence(log, B, method=method)[0]

    assert jax.eval_shape(states, LOG).dtype == jnp.complex64
    assert jax.eval_shape(states, LogDecay(jnp.zeros(3))).dtype == jnp.float32


@pytest.mark.full
@each_method
def test_low_input_is_summed_in_float32(method):
    # In bfloat16 the sum of ones would stop at 256.
    sums = jax.jit(lambda a, b: linear_recurrence(a, b, method=method)[0])
    h = sums(jnp.ones(1), jnp.ones((300, 1), jnp.bfloat16))
    np.testing.assert_allclose(h[:, 0], np.arange(1, 301), atol=1e-3)


CHOICES = [
    ("cpu", A, "sequential"),
    ("cpu", B, "sequential"),
    ("gpu", A, "associative"),
    ("gpu", LOG, "associative"),
    ("gpu", B, "associative"),
    ("tpu", A, "chunked"),
    ("tpu", B, "associative"),
]


@pytest.mark.parametrize(("platform", "a", "choice"), CHOICES)
@pytest.mark.parametrize("reset", [None, NO_RESET], ids=["one", "packed"])
def test_auto_is_the_method_it_says(platform, a, choice, reset, monkeypatch):
    sizes = {"length": B.shape[1], "n_bytes": 4 * B.size}
    assert chosen_method(a, platform=platform, **sizes) == choice
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    assert chosen_method(a, **sizes) == choice
    auto, named = (
        jax.make_jaxpr(partial(linear_recurrence, reset=reset, method=method))(a, B)
        for method in ("auto", choice)
    )
    assert without_addresses(auto) == without_addresses(named)


def without_addresses(jaxpr):
    return re.sub(r"0x[0-9a-f]+", "", str(jaxpr))


REFUSALS = {
    "method": ({"method": "magic"}, "method", "'associative'", "'magic'"),
    "fft_reset": ({"method": "fft", "reset": NO_RESET}, "method", "`reset`", "'fft'"),
    "fft_varying": ({"method": "fft", "a": B}, "method", "'fft'", "(2, 5, 3)"),
    "length": ({"b": B[:, :0]}, "b", "step", "(2, 0, 3)"),
    "b": ({"b": B[0, 0]}, "b", "(*b, l, n)", "(3,)"),
    "a_states": ({"a": A[:2]}, "a", "(2, 5, 3)", "(2,)"),
    "a_batch": ({"a": B[0]}, "a", "(2, 5, 3)", "(5, 3)"),
    "a_log": ({"a": LogDecay(B)}, "a", "(3,)", "(2, 5, 3)"),
    "h0": ({"h0": A}, "h0", "(2, 3)", "(3,)"),
    "reset": ({"reset": NO_RESET[..., None]}, "reset", "(2, 5)", "(2, 5, 1)"),
}


@pytest.mark.parametrize(
    ("change", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_refusal_says_rule_and_value(change, name, rule, value, unchecked):
    arguments = {"a": A, "b": B} | change
    a, b = arguments.pop("a"), arguments.pop("b")
    with refuses(name, value, rule=rule):
        linear_recurrence(a, b, **arguments)
