"""Bad arguments of every kernel: each raises an error that names the argument."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import (
    LogDecay,
    arguments,
    bidirectional_convolution,
    causal_convolution,
    decay_powers,
    final_state,
    linear_attention,
    linear_recurrence,
    matrix_recurrence,
    modal_kernel,
    n_step_decay,
    nonlinear_recurrence,
    to_log_decay,
)
from ssm_jax.kernels.powers import multiply_decays
from tests import bad_inputs
from tests.bad_inputs import Bad, not_flags, not_floating, shown, table

B, L, N = 2, 5, 3
STATES = np.ones((B, L, N), np.float32)
HEADS = np.ones((B, L, 1, N), np.float32)
LOG, STEPS = LogDecay(np.zeros(N, np.float32)), jnp.arange(L)


def _nonlinear_term(params, h, x):
    return params * h + x


GOOD = {
    linear_recurrence: {
        "a": STATES[0, 0],
        "b": STATES,
        "h0": STATES[:, 0],
        "reset": np.zeros((B, L), bool),
    },
    nonlinear_recurrence: {
        "nonlinear_term": _nonlinear_term,
        "params": 0.5,
        "x": STATES,
        "h0": STATES[:, 0],
        "decay": STATES[0, 0],
        "reset": np.zeros((B, L), bool),
        "initial_guess": STATES,
    },
    linear_attention: {
        "q": HEADS,
        "k": HEADS,
        "v": HEADS,
        "state": np.ones((B, 1, N, N + 1), np.float32),
        "reset": np.zeros((B, L), bool),
        "mask": np.zeros((B, L), bool),
    },
    matrix_recurrence: {
        "q": HEADS,
        "k": HEADS,
        "v": HEADS,
        "log_decay": -HEADS[..., 0],
        "beta": HEADS[..., 0],
        "state": np.ones((B, 1, N, N), np.float32),
        "reset": np.zeros((B, L), bool),
        "mask": np.zeros((B, L), bool),
    },
    causal_convolution: {"u": STATES, "kernel": STATES[0].T},
    bidirectional_convolution: {
        "u": STATES,
        "forward": STATES[0].T,
        "backward": STATES[0].T,
    },
    modal_kernel: {"log_decay": LOG, "w": STATES[0], "length": L},
    final_state: {"log_decay": LOG, "u": STATES},
    decay_powers: {"log_decay": LOG, "steps": STEPS},
    n_step_decay: {"log_decay": LOG, "count": 2},
    multiply_decays: {"one": LogDecay(*LOG[:1] * 2), "other": LogDecay(*LOG[:1] * 2)},
    to_log_decay: {"a": STATES[0, 0]},
}
MAY_BE_COMPLEX = {linear_recurrence, modal_kernel, to_log_decay}
LOGS = {
    "phase": (LogDecay(np.zeros(N, np.float32), np.zeros(2, np.float32)), "(2,)"),
    "broadcast": (LogDecay(np.zeros((2, N), np.float32), np.zeros(N)), "(2, 3)"),
    "phase_lo": (LogDecay(np.zeros(N, np.float32), None, np.zeros(N)), "None"),
    "int": (LogDecay(np.zeros(N, np.int32)), "int32"),
    "complex": (LogDecay(np.zeros(N, np.complex64)), "complex64"),
    "number": (LogDecay(0.5), "0.5"),
    "array": (np.zeros(N, np.float32), "float32"),
}
OPTIONS = {
    linear_recurrence: {"method": ("magic", None)},
    nonlinear_recurrence: {
        "method": ("magic", None),
        "inner": ("magic",),
        "max_iterations": bad_inputs.SIZES,
        "chunk": (2.0, "8", True, 0, -1),
        "tolerance": (-1.0, float("nan")),
        "damping": (-0.5, 2, float("nan")),
    },
    matrix_recurrence: {"method": ("magic", None)},
    modal_kernel: {"length": bad_inputs.SIZES, "part": ("imag", None)},
    n_step_decay: {"count": (2.0, "8", None, True, -1)},
    decay_powers: {"steps": (2, [1, 2])},
}
SHAPES = {
    linear_recurrence: {
        "b": [(0, L, N), (B, 0, N), (B, L, 0), (N,)],
        "a": [(2,), (B, L, 2)],
        "h0": [(N,), (B, 2)],
    },
    nonlinear_recurrence: {
        "x": [(0, L, N), (B, 0, N), (B,), (3, L, N)],
        "h0": [()],
        "decay": [(2,), (B, N)],
        "initial_guess": [(L, N), (B, 4, N), (B, L, 2)],
    },
    linear_attention: {
        "q": [(0, L, 1, N), (L, N)],
        "k": [(B, L, 1, 2), (B, 4, 1, N)],
        "v": [(B, 4, 1, N), (B, L, 2, N)],
        "state": [(B, 1, N, N)],
    },
    matrix_recurrence: {
        "q": [(0, L, 1, N), (L, N)],
        "k": [(B, L, 1, 2), (B, 4, 1, N)],
        "v": [(B, 4, 1, N), (B, L, N)],
        "log_decay": [(B, L, 2), (B, L, 1, 2), (L, 1)],
        "beta": [(B, L, 1, N), (B, L, 2)],
        "state": [(B, 1, N, N + 1), (1, N, N)],
    },
    causal_convolution: {"u": [(0, L, N), (N,)], "kernel": [(2, L), (L,), (N, 0)]},
    bidirectional_convolution: {"u": [(B, 0, N)], "backward": [(N, 4), (2, L)]},
    modal_kernel: {"w": [(L, 2), (0, N)]},
    final_state: {"u": [(0, L, N), (N,)], "log_decay": []},
}


def _rows():
    for kernel, good in GOOD.items():
        for name, value in good.items():
            if name in ("nonlinear_term", "params") or (kernel, name) == (
                nonlinear_recurrence,
                "x",
            ):
                continue
            for kind, bad, text in _bad_values(kernel, name, value):
                yield kernel, name, kind, bad, text
        for name, values in OPTIONS.get(kernel, {}).items():
            for value in values:
                yield kernel, name, repr(value), value, bad_text(value)
        for name, shapes in SHAPES.get(kernel, {}).items():
            for shape in shapes:
                bad = np.ones(shape, np.float32)
                yield kernel, name, str(shape), bad, str(shape)


def bad_text(value):
    return "list" if isinstance(value, list) else repr(value)


def _bad_values(kernel, name, value):
    if isinstance(value, LogDecay):
        for kind, (bad, text) in LOGS.items():
            # A jitted function receives an array in place of a number.
            if kind != "number" or kernel not in (modal_kernel, final_state):
                yield kind, bad, text
    elif getattr(value, "dtype", None) == np.bool_:
        for kind, bad in not_flags(value.shape).items():
            yield kind, bad, shown(bad)
    elif getattr(value, "dtype", None) == np.float32:
        for kind, bad in not_floating(value).items():
            may_be_complex = kernel in MAY_BE_COMPLEX and name in ("a", "b", "h0", "w")
            if kind != "complex" or not may_be_complex:
                yield kind, bad, "list" if kind == "list" else str(bad.dtype)
    elif name == "steps":
        yield "float", jnp.ones(3), "float32"


ROWS = {
    f"{kernel.__name__}.{name}.{kind}": Bad(
        functools.partial(kernel, **GOOD[kernel] | {name: bad}), name, text
    )
    for kernel, name, kind, bad, text in _rows()
}


@table(ROWS)
def test_bad_argument_is_refused(bad, unchecked):
    bad_inputs.check_refusal(bad)


@pytest.mark.parametrize(
    ("shape", "way"),
    [
        ((B, L, 1), "leave out the last axis"),
        ((1, L), "broadcast_to"),
        ((B, L + 1), "broadcast_to"),
    ],
)
def test_way_out_fits_the_flags(shape, way):
    with bad_inputs.refuses("reset", shape, rule=way):
        arguments.check_flags("reset", jnp.ones(shape, bool), (B, L), (L,))
