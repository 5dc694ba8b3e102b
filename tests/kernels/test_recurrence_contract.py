"""Contract of `linear_recurrence`: dtypes, method selection and errors."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay, chosen_method, linear_recurrence
from tests.bad_inputs import refuses
from tests.kernels.cases import each_method

LOG = LogDecay(jnp.zeros(3), jnp.zeros(3))
A, B = jnp.zeros(3), jnp.zeros((2, 5, 3))
RESET = jnp.zeros((2, 5), bool)

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


@pytest.mark.parametrize("row", DTYPES.values(), ids=DTYPES.keys())
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
@pytest.mark.parametrize("reset", [None, RESET], ids=["one", "packed"])
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
    "fft_reset": ({"method": "fft", "reset": RESET}, "method", "`reset`", "'fft'"),
    "fft_varying": ({"method": "fft", "a": B}, "method", "'fft'", "(2, 5, 3)"),
    "length": ({"b": B[:, :0]}, "b", "step", "(2, 0, 3)"),
    "b": ({"b": B[0, 0]}, "b", "(*b, l, n)", "(3,)"),
    "a_states": ({"a": A[:2]}, "a", "(2, 5, 3)", "(2,)"),
    "a_batch": ({"a": B[0]}, "a", "(2, 5, 3)", "(5, 3)"),
    "a_log": ({"a": LogDecay(B)}, "a", "(3,)", "(2, 5, 3)"),
    "h0": ({"h0": A}, "h0", "(2, 3)", "(3,)"),
    "reset": ({"reset": RESET[..., None]}, "reset", "(2, 5)", "(2, 5, 1)"),
}


@pytest.mark.parametrize(
    ("change", "name", "rule", "value"), REFUSALS.values(), ids=REFUSALS.keys()
)
def test_refusal_says_rule_and_value(change, name, rule, value, unchecked):
    arguments = {"a": A, "b": B} | change
    a, b = arguments.pop("a"), arguments.pop("b")
    with refuses(name, value, rule=rule):
        linear_recurrence(a, b, **arguments)
