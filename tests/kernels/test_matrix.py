"""Every method of the recurrence of matrices against its definition in float64."""

import re
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from ssm_jax.kernels import matrix_recurrence
from ssm_jax.kernels.pallas import dispatch
from ssm_jax.kernels.plan import matrix_chunk, matrix_method, steps_give_values
from ssm_jax.kernels.platforms import compiling_for
from tests.bad_inputs import refuses
from tests.kernels import oracle_matrix
from tests.tiers import tiered

METHODS = ("sequential", "chunked", "associative")
B, K, V = 2, 4, 3


class Case(NamedTuple):
    """A program, which several problems share.

    Attributes:
      length: Number of steps.
      groups: Heads of keys.
      shared: Heads of values for each of them.
      decay: ``"none"``, ``"head"`` or ``"entry"``.
      delta: Whether it has the delta rule.
      size: Entries of a key and of a value.
    """

    length: int
    groups: int = 2
    shared: int = 1
    decay: str = "head"
    delta: bool = False
    size: tuple[int, int] = (K, V)


# Longer than a chunk, which is longer than a block of 16 steps, and no multiple.
CASES = {
    "delta": Case(45, 1, 2, delta=True),
    "entry": Case(45, 2, 2, "entry"),
    "head": Case(45, 1, 2),
    "none": Case(37, 2, 1, "none"),
    "delta entry": Case(45, 1, 2, "entry", delta=True),
    "delta none": Case(70, 2, 1, "none", delta=True),
    "chunk": Case(32, 1, 1, "entry"),
    "one": Case(1, 2, 2),
    "few": Case(5, 2, 2, "entry", delta=True),
    "not shared": Case(45, 2),
    # Chunks of 64 steps.
    "large": Case(70, 1, size=(128, 128)),
    # Of kernels in Pallas: one chunk, and for TPUs three of them with blocks of heads.
    "short": Case(5, 2, 2),
    "blocks": Case(300, 4, 1, size=(64, 32)),
    # Two blocks of values share their keys.
    "split": Case(20, 1, 16, size=(128, 64)),
}

DECAYS = {
    "zero": lambda rng, shape: np.zeros(shape),
    "slow": lambda rng, shape: -1e-3 * rng.random(shape),
    # From -1e-5 to -1e5, side by side.
    "mixed": lambda rng, shape: -(10 ** rng.uniform(-5, 5, shape)),
    # Huge decays here and there, among zeros.
    "rare": lambda rng, shape: -1e5 * (rng.random(shape) < 0.1),
    "equal": lambda rng, shape: np.full(shape, -0.0103),
}


def problem(case, rng, kind="mixed"):
    """Returns the arrays of a case by name."""
    heads, (d_key, d_value) = case.groups * case.shared, case.size
    shapes = {
        "none": None,
        "head": (B, case.length, heads),
        "entry": (B, case.length, case.groups, d_key),
    }
    q, k = rng.normal(size=(2, B, case.length, case.groups, d_key))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    shape = shapes[case.decay]
    beta = 2 * rng.random((B, case.length, heads)) if case.delta else None
    arrays = {
        "q": q,
        "k": k,
        "v": rng.normal(size=(B, case.length, heads, d_value)),
        "log_decay": None if shape is None else DECAYS[kind](rng, shape),
        "beta": beta,
        "state": rng.normal(size=(B, heads, d_key, d_value)),
    }
    return {name: None if x is None else np.float32(x) for name, x in arrays.items()}


def flags(case, rng):
    """Returns resets and a mask, of which a row may have none."""
    rate = rng.choice([0, 0.05, 0.5], (2, B, 1))
    reset, padded = rng.random((2, B, case.length)) < rate
    return reset, ~padded


@partial(jax.jit, static_argnames="method")
def evaluate(arrays, weights, reset, mask, method):
    """Returns outputs, last state and the gradient of their weighted sum."""

    def total(arrays):
        o, last = matrix_recurrence(**arrays, reset=reset, mask=mask, method=method)
        return jnp.vdot(o, weights[0]) + jnp.vdot(last, weights[1]), (o, last)

    gradient, (o, last) = jax.grad(total, has_aux=True)(arrays)
    return o, last, gradient


def assert_near(values, expected, tolerance):
    assert np.all(np.isfinite(values))
    largest = np.max(np.abs(expected), initial=1e-30)
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance * largest)


def assert_is_defined(case, arrays, reset, mask, rng, methods):
    """Compares values and gradients of methods with the definition."""
    weights = [np.float32(rng.normal(size=arrays[x].shape)) for x in ("v", "state")]
    o, last, gradient = oracle_matrix.matrix_recurrence(arrays, reset, mask, *weights)
    tolerance, of_gradient = (2e-5, 1e-4) if case.delta else (5e-6, 2e-5)
    for method in methods:
        given = evaluate(arrays, weights, reset, mask, method)
        assert_near(given[0], o, tolerance)
        assert_near(given[1], last, tolerance)
        for name, expected in gradient.items():
            assert_near(given[2][name], expected, of_gradient)


@pytest.mark.parametrize(
    "case",
    tiered(
        CASES, ("one",), full=("one", "none", "entry", "delta", "not shared", "large")
    ),
)
def test_methods_equal_the_definition(case):
    are_defined(case, METHODS)


@pytest.fixture
def on_gpu(monkeypatch):
    """Evaluates by the kernel for GPUs, which is interpreted on a CPU."""
    monkeypatch.setattr(dispatch, "on_gpu", lambda **_: True)
    # The kernel of the TPU may have been compiled for the same arguments.
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture(params=["tpu", "gpu"])
def each_kernel(request):
    """Evaluates by the kernels for TPUs and for GPUs, which a CPU interprets."""
    if request.param == "gpu":
        request.getfixturevalue("on_gpu")


# Most of a test is to compile its interpreted kernel.
@pytest.mark.parametrize(
    "case",
    tiered(
        CASES,
        (),
        full=("head", "short", "blocks", "split", "delta", "delta entry"),
    ),
)
def test_kernel_equals_the_definition(case):
    are_defined(case, ("pallas",))


@pytest.mark.parametrize(
    "case",
    tiered(
        CASES,
        (),
        full=("head", "short", "large", "delta", "delta entry"),
    ),
)
def test_kernel_of_gpus_equals_the_definition(case, on_gpu):
    are_defined(case, ("pallas",))


@pytest.mark.full
def test_kernel_of_tpus_has_shorter_chunks_of_wide_keys():
    # Of 64 steps, fewer than the lanes of a register.
    are_defined(Case(100, 1, 1, "entry", delta=True, size=(256, V)), ("pallas",))


def are_defined(case, methods):
    """Compares methods with the definition for all kinds of decays."""
    rng = np.random.default_rng(0)
    for kind in DECAYS if case.decay != "none" else ("zero",):
        arrays = problem(case, rng, kind)
        assert_is_defined(case, arrays, *flags(case, rng), rng, methods)


@pytest.mark.full
@pytest.mark.parametrize("method", ["chunked", "associative"])
def test_equal_keys_of_the_largest_weight_are_solved(method):
    equal_keys_are_solved(method)


@pytest.mark.full
def test_equal_keys_of_the_largest_weight_are_solved_by_the_kernels(each_kernel):
    equal_keys_are_solved("pallas")


def equal_keys_are_solved(method):
    """Compares with the definition where powers of the system are as large as 1e12."""
    case, rng = CASES["delta none"], np.random.default_rng(12)
    arrays = problem(case, rng)
    arrays["k"] = np.broadcast_to(arrays["k"][:, :1], arrays["k"].shape)
    arrays["beta"] = np.full_like(arrays["beta"], 2)
    none = np.zeros((B, case.length), bool)
    assert_is_defined(case, arrays, none, ~none, rng, (method,))


@pytest.mark.full
def test_value_of_the_kernel_is_the_definition(each_kernel):
    case, rng = Case(5, 1, delta=True), np.random.default_rng(0)
    arrays, (reset, mask) = problem(case, rng), flags(case, rng)
    weights = [np.zeros_like(arrays[x]) for x in ("v", "state")]
    o, last, _ = oracle_matrix.matrix_recurrence(arrays, reset, mask, *weights)
    run = jax.jit(partial(matrix_recurrence, **arrays, method="pallas"))
    given = run(reset=reset, mask=mask)
    assert_near(given[0], o, 2e-5)
    assert_near(given[1], last, 2e-5)


LENGTHS = (1, 7, 33, 100, 250, 400)
"""Shapes that are compiled; a mask makes them sequences of any length."""


@pytest.mark.nightly
@pytest.mark.parametrize("decay", ["none", "head", "entry"])
@pytest.mark.parametrize("delta", [False, True])
def test_methods_equal_the_definition_on_random_draws(decay, delta):
    """84 of each of 6 kinds; pieces of a sequence carry the state."""
    rng = np.random.default_rng(1)
    methods = (*METHODS, "pallas")
    for length in LENGTHS:
        for groups, shared in ((2, 1), (1, 3)):
            case = Case(length, groups, shared, decay, delta)
            for _ in range(7):
                kind = rng.choice(list(DECAYS))
                arrays, (reset, mask) = problem(case, rng, kind), flags(case, rng)
                # The steps of a sequence of another length.
                steps = np.arange(length)
                end = rng.integers(1, length, endpoint=True)
                mask = mask & (steps < end)
                assert_is_defined(case, arrays, reset, mask, rng, methods)
                assert_pieces_equal_the_whole(arrays, reset, mask, steps, rng, methods)


@pytest.mark.full
def test_pieces_of_the_kernel_equal_the_whole(each_kernel):
    case, rng = Case(300, 1, 2, delta=True), np.random.default_rng(10)
    arrays, flags_of_case = problem(case, rng, "slow"), flags(case, rng)
    steps = np.arange(case.length)
    assert_pieces_equal_the_whole(arrays, *flags_of_case, steps, rng, ("pallas",))


def assert_pieces_equal_the_whole(arrays, reset, mask, steps, rng, methods):
    weights = [np.zeros_like(arrays[x]) for x in ("v", "state")]
    cuts = np.sort(rng.integers(0, len(steps), 3, endpoint=True))
    for method in methods:
        o, last, _ = evaluate(arrays, weights, reset, mask, method)
        state, outputs = arrays["state"], np.zeros_like(o)
        for start, end in zip([0, *cuts], [*cuts, len(steps)], strict=True):
            piece = (start <= steps) & (steps < end)
            given = arrays | {"state": state}
            part, state, _ = evaluate(
                given, weights, reset & piece, mask & piece, method
            )
            outputs = np.where(piece[:, None, None], part, outputs)
        assert_near(outputs, o, 2e-5)
        assert_near(state, last, 2e-5)


@pytest.mark.parametrize("case", tiered(CASES, ("head",), full=("head", "delta")))
def test_gradient_across_a_reset_is_exactly_zero(case):
    if case.length < 30:
        pytest.skip("is too short for the reset")
    gradient_across_a_reset_is_zero(case, METHODS[1:])


@pytest.mark.full
def test_gradient_of_the_kernel_across_a_reset_is_exactly_zero(each_kernel):
    gradient_across_a_reset_is_zero(CASES["delta"], ("pallas",))


def gradient_across_a_reset_is_zero(case, methods):
    """Checks the gradients in the steps of one segment of what another one returns."""
    rng = np.random.default_rng(2)
    arrays = problem(case, rng, "slow")
    reset = np.tile(np.arange(case.length) == 20, (B, 1))
    mask = np.ones_like(reset)
    weight = np.float32(rng.normal(size=arrays["v"].shape))
    last = np.ones_like(arrays["state"])
    for after in (True, False):
        seen = (np.arange(case.length) >= 20) == after
        weights = weight * seen[:, None, None], last * after
        for method in methods:
            *_, gradient = evaluate(arrays, weights, reset, mask, method)
            for name in gradient.keys() - {"state"}:
                if arrays[name] is None:
                    continue
                assert np.any(gradient[name][:, seen] != 0)
                np.testing.assert_array_equal(gradient[name][:, ~seen], 0)
            assert np.all((gradient["state"] == 0) == after)


@pytest.mark.parametrize("bad", tiered([np.nan, np.inf]))
@pytest.mark.parametrize("name", tiered(["v", "q", "k", "log_decay", "beta", "state"]))
def test_values_that_are_not_finite_reach_steps_of_their_segment(name, bad):
    """In value and gradient; a key reaches all heads of values that it serves."""
    not_finite_reach_their_segment(CASES["delta"], METHODS, name, bad, 25, 40)


# From one chunk of 128 steps to the next, and back from the one after.
@pytest.mark.full
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["v", "q", "k", "log_decay", "beta", "state"])
def test_values_that_are_not_finite_reach_steps_across_chunks_of_the_kernel(name, bad):
    case = Case(300, 1, 2, delta=True)
    not_finite_reach_their_segment(case, ("pallas",), name, bad, 100, 200)


# Chunks of 32 steps.
@pytest.mark.full
@pytest.mark.parametrize("bad", tiered([np.nan, np.inf], 0, full=1))
@pytest.mark.parametrize("name", ["v", "q", "k", "log_decay", "beta", "state"])
def test_values_that_are_not_finite_reach_steps_across_chunks_on_gpus(
    name, bad, on_gpu
):
    case = Case(100, 1, 2, delta=True)
    not_finite_reach_their_segment(case, ("pallas",), name, bad, 25, 70)


@pytest.mark.full
@pytest.mark.parametrize("bad", tiered([np.nan, np.inf], 0, full=1))
@pytest.mark.parametrize("name", ["k", "log_decay"])
def test_decays_of_entries_that_are_not_finite_reach_all_heads_of_a_key(
    name, bad, each_kernel
):
    case = Case(100, 1, 2, "entry")
    not_finite_reach_their_segment(case, ("pallas",), name, bad, 25, 70)


def not_finite_reach_their_segment(case, methods, name, bad, at, end):
    """Compares what a value at a step reaches, up to a reset, with what it should."""
    rng = np.random.default_rng(3)
    arrays = problem(case, rng, "slow")
    reset = np.tile(np.arange(case.length) == end, (B, 1))
    changed = dict(arrays)
    changed[name] = arrays[name].copy()
    changed[name][(0, 0) if name == "state" else (0, at, 0)] = -bad
    reached = np.zeros((B, case.length, 2), bool)
    steps = {"q": slice(at, at + 1), "state": slice(end)}.get(name, slice(at, end))
    of_keys = name in "qk" or changed[name].shape == arrays["k"].shape
    reached[0, steps, : 2 if of_keys else 1] = True
    zero_decay = name == "log_decay" and bad == np.inf
    reached &= not zero_decay
    weight = np.where(reached[..., None], 0, rng.normal(size=arrays["v"].shape))
    weights = np.float32(weight), np.ones_like(arrays["state"])
    mask = np.ones_like(reset)
    for method in methods:
        o, last, gradient = evaluate(changed, weights, reset, mask, method)
        np.testing.assert_array_equal(np.any(np.isnan(o), -1), reached)
        finite = {
            key: None if x is None else np.where(np.isfinite(x), x, 0)
            for key, x in changed.items()
        }
        if zero_decay:
            finite[name] = np.maximum(changed[name], -1e5)
        wanted, wanted_last, wanted_gradient = evaluate(
            finite, weights, reset, mask, method
        )
        assert_near(o[~reached], wanted[~reached], 1e-6)
        assert_near(last, wanted_last, 1e-6)
        for key, expected in wanted_gradient.items():
            if expected is not None:
                assert_near(gradient[key], expected, 1e-5)


@pytest.mark.parametrize(
    ("case", "method"),
    tiered([("delta", "chunked"), ("delta", "pallas")], unpack=True),
)
def test_numbers_at_padding_do_not_matter(case, method):
    numbers_at_padding_do_not_matter(case, method)


@pytest.mark.full
def test_numbers_at_padding_do_not_matter_to_the_kernel_of_gpus(on_gpu):
    numbers_at_padding_do_not_matter("delta", "pallas")


def numbers_at_padding_do_not_matter(case, method):
    """Compares values and gradients with those of NaN at padding."""
    case, rng = CASES[case], np.random.default_rng(4)
    arrays, (reset, _) = problem(case, rng), flags(case, rng)
    mask = rng.random((B, case.length)) < 0.8
    weights = [np.float32(rng.normal(size=arrays[x].shape)) for x in ("v", "state")]
    changed = {
        name: x
        if x is None or name in ("q", "state")
        else np.where(mask.reshape(*mask.shape, *(1,) * (x.ndim - 2)), x, np.nan)
        for name, x in arrays.items()
    }
    for one, other in zip(
        jax.tree.leaves(evaluate(arrays, weights, reset, mask, method)),
        jax.tree.leaves(evaluate(changed, weights, reset, mask, method)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.full
@pytest.mark.parametrize(
    ("case", "method"), [("delta", "chunked"), ("delta", "pallas")]
)
def test_bfloat16_is_summed_in_float32(case, method):
    bfloat16_is_summed_in_float32(case, method)


@pytest.mark.full
def test_bfloat16_is_summed_in_float32_by_the_kernel_of_gpus(on_gpu):
    bfloat16_is_summed_in_float32("delta", "pallas")


def bfloat16_is_summed_in_float32(case, method):
    """Compares outputs and last state with those of the same numbers in float32."""
    case, rng = CASES[case], np.random.default_rng(5)
    arrays = problem(case, rng, "slow")
    arrays = {name: x for name, x in arrays.items() if x is not None}
    low = {name: jnp.asarray(x, jnp.bfloat16) for name, x in arrays.items()}
    low["state"] = arrays["state"]
    run = jax.jit(partial(matrix_recurrence, method=method))
    o, last = run(**low)
    expected, expected_last = run(**{name: jnp.float32(x) for name, x in low.items()})
    assert (o.dtype, last.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_array_equal(o, expected.astype(jnp.bfloat16))
    np.testing.assert_array_equal(last, expected_last)


@pytest.mark.parametrize("length", tiered([70, 200_000], 0, full=1))
def test_single_steps_equal_one_call(length):
    case, rng = Case(length, 1, 2, delta=True), np.random.default_rng(6)
    arrays = problem(case, rng, "slow")
    state = arrays.pop("state")
    low = {name: jnp.asarray(x, jnp.bfloat16) for name, x in arrays.items()}

    @jax.jit
    def by_steps(state, low):
        def step(state, x):
            x = {name: values[:, None] for name, values in x.items()}
            o, state = matrix_recurrence(**x, state=state)
            # On CPUs a scan writes all of its bfloat16 outputs at each step.
            return state, jnp.float32(o[:, 0])

        steps = {name: jnp.moveaxis(x, 1, 0) for name, x in low.items()}
        state, o = jax.lax.scan(step, state, steps)
        return jnp.moveaxis(o, 0, 1), state

    o, last = by_steps(state, low)
    expected, expected_last = jax.jit(matrix_recurrence)(**low, state=state)
    assert last.dtype == jnp.float32
    assert_near(o, np.float32(expected), 1e-2)
    assert_near(last, expected_last, 1e-4)


@pytest.mark.full
@pytest.mark.parametrize("method", tiered(["chunked", "associative"], 0, full=1))
def test_heads_that_share_keys_may_be_sharded_explicitly(method):
    case, rng = Case(45, 2, 2), np.random.default_rng(10)
    arrays = problem(case, rng, "slow")

    def total(arrays):
        o, last = matrix_recurrence(**arrays, method=method)
        return jnp.sum(o**2) + jnp.sum(last)

    expected = jax.jit(jax.grad(total))(arrays)
    mesh = jax.make_mesh((1, 2), ("data", "model"), (AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        heads_second = NamedSharding(mesh, P("data", "model"))
        heads_third = NamedSharding(mesh, P("data", None, "model"))
        sharded = {
            name: jax.device_put(x, heads_second if name == "state" else heads_third)
            for name, x in arrays.items()
            if x is not None
        }
        gradient = jax.jit(jax.grad(total))(sharded)
    for name in sharded:
        assert_near(np.asarray(gradient[name]), np.asarray(expected[name]), 1e-5)


@pytest.mark.parametrize("method", tiered(["chunked", "pallas"]))
def test_map_over_an_axis_is_that_of_a_batch(method):
    map_is_that_of_a_batch(method)


def map_is_that_of_a_batch(method):
    """Compares `jax.vmap` with the evaluation of a batch."""
    case, rng = CASES["none"], np.random.default_rng(7)
    arrays, (reset, mask) = problem(case, rng), flags(case, rng)
    del arrays["beta"], arrays["log_decay"]

    def run(arrays, reset, mask):
        return matrix_recurrence(**arrays, reset=reset, mask=mask, method=method)

    expected = jax.jit(run)(arrays, reset, mask)
    for one, other in zip(
        jax.jit(jax.vmap(run))(arrays, reset, mask), expected, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.full
def test_derivative_forwards_is_the_one_backwards():
    case, rng = Case(45, delta=True), np.random.default_rng(8)
    arrays = problem(case, rng, "slow")
    towards = {name: np.float32(rng.normal(size=x.shape)) for name, x in arrays.items()}
    weight = np.float32(rng.normal(size=arrays["v"].shape))

    def total(arrays):
        return jnp.vdot(matrix_recurrence(**arrays, method="chunked")[0], weight)

    _, forwards = jax.jit(partial(jax.jvp, total))((arrays,), (towards,))
    gradient = jax.jit(jax.grad(total))(arrays)
    backwards = sum(jnp.vdot(gradient[name], towards[name]) for name in arrays)
    np.testing.assert_allclose(forwards, backwards, rtol=1e-4)


@pytest.mark.full
def test_float64_is_evaluated_in_float64():
    with jax.enable_x64(True):
        case, rng = Case(45, delta=True), np.random.default_rng(9)
        arrays = {k: np.float64(x) for k, x in problem(case, rng, "slow").items()}
        weights = [np.zeros_like(arrays[x]) for x in ("v", "state")]
        reset, mask = flags(case, rng)
        o, last, _ = oracle_matrix.matrix_recurrence(arrays, reset, mask, *weights)
        for method in METHODS:
            given = matrix_recurrence(**arrays, reset=reset, mask=mask, method=method)
            assert_near(given[0], o, 1e-13)
            assert_near(given[1], last, 1e-13)


def test_small_heads_are_evaluated_by_steps_on_cpus_but_for_gradients():
    case = Case(45)
    arrays = problem(case, np.random.default_rng(0), "slow")

    def o(arrays):
        return matrix_recurrence(**arrays)[0]

    def length_of_scan(platform, function):
        with compiling_for(platform):
            jaxpr = str(jax.make_jaxpr(function)(arrays))
        return {int(n) for n in re.findall(r"length=(\d+)", jaxpr)}

    total = jax.grad(lambda arrays: jnp.sum(o(arrays)))
    chunks = -(-45 // matrix_chunk(45, 64))
    assert length_of_scan("cpu", o) == {45}
    assert length_of_scan("cuda", o) == length_of_scan("cpu", total) == {chunks}
    assert not steps_give_values(128 * 128, by_entry=True)


def test_method_depends_on_the_length_alone():
    assert [matrix_method(length) for length in (1, 4096)] == ["sequential", "chunked"]
    assert [matrix_chunk(n, 64) for n in (1, 5, 8, 1000)] == [1, 8, 8, 32]
    assert [matrix_chunk(n, 128 * 128) for n in (1, 5, 40, 1000)] == [1, 8, 64, 64]
    assert matrix_method(jax.export.symbolic_shape("l")[0]) == "sequential"


def test_rules_of_heads_and_decays(unchecked):
    q, v = jnp.ones((3, 2, K)), jnp.ones((3, 3, V))
    with refuses("v", (3, 3, V), rule="multiple"):
        matrix_recurrence(q, q, v)
    v = jnp.ones((3, 2, V))
    with refuses("log_decay", 0.5, rule="at most 0"):
        matrix_recurrence(q, q, v, jnp.full((3, 2), 0.5))
    with refuses("method", "fft", rule="chunked"):
        matrix_recurrence(q, q, v, method="fft")


def test_kernel_is_for_tpus_and_small_heads_on_gpus():
    q, v = jnp.ones((3, 2, K)), jnp.ones((3, 2, V))
    with compiling_for("rocm"), refuses("method", "rocm", rule="CUDA"):
        matrix_recurrence(q, q, v, method="pallas")
    v = jnp.ones((3, 2, 256))
    with compiling_for("cuda"), refuses("method", "4 x 256", rule="at most 128"):
        matrix_recurrence(q, q, v, method="pallas")


@pytest.mark.full
def test_map_by_the_kernel_of_gpus_is_that_of_a_batch(on_gpu):
    map_is_that_of_a_batch("pallas")


@pytest.mark.full
def test_kernel_of_gpus_is_evaluated_on_the_rows_of_each_device(on_gpu):
    case, rng = Case(45, 1, 2, delta=True), np.random.default_rng(11)
    arrays, given = problem(case, rng, "slow"), flags(case, rng)

    @jax.jit
    @partial(jax.grad, has_aux=True)
    def run(arrays, reset, mask):
        results = matrix_recurrence(**arrays, reset=reset, mask=mask, method="pallas")
        return sum(jnp.sum(x**2) for x in results), results

    expected = run(arrays, *given)
    mesh = jax.make_mesh((2,), ("data",), (AxisType.Explicit,))
    with jax.set_mesh(mesh):
        rows = NamedSharding(mesh, P("data"))
        sharded = run(*jax.device_put((arrays, *given), rows))
    for one, other in zip(
        jax.tree.leaves(sharded), jax.tree.leaves(expected), strict=True
    ):
        assert_near(np.asarray(one), np.asarray(other), 1e-5)
