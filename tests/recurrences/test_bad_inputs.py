"""Invalid inputs of every recurrence raise an error that names the argument."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay
from ssm_jax.recurrences import (
    BoundedEigenvalues,
    ParamGroup,
    SISOModes,
    TimeInvariant,
    log_spaced,
)
from tests import bad_inputs
from tests.bad_inputs import Bad, not_flags, not_floating, shown, table
from tests.recurrences.table import ROWS, first_of_each_class

BATCH, LENGTH = 2, 5
BOUNDED = BoundedEigenvalues(recurrence=ROWS["lru"].recurrence, largest_state=9.0)
TESTED = ROWS | {"bounded": ROWS["lru"]._replace(recurrence=BOUNDED)}
RECURRENCES = {name: row.recurrence for name, row in TESTED.items()}
CLASSES = {
    cls: (name, RECURRENCES[name]) for cls, name in first_of_each_class(TESTED).items()
}
# Of those whose code is shared by the others, the fast tier tests one.
FAST = ("dlr", "s5", "selective", "fru", "gru")


@functools.cache
def drawn(name):
    """Parameters, a state and inputs of the right shapes."""
    recurrence, width = RECURRENCES[name], TESTED[name].width
    params = jax.eval_shape(lambda: recurrence.init(jax.random.key(0), width))
    state = jax.eval_shape(lambda: recurrence.initial_state((BATCH,), width))
    x = jax.ShapeDtypeStruct((BATCH, LENGTH, width), np.float32)
    shapes = params, state, x
    return jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), shapes)


def applied(name, *, of_params=lambda params: params, x=None, **options):
    """Traces `apply`: errors must be raised before anything is compiled."""
    params = of_params(drawn(name)[0])
    x = drawn(name)[2] if x is None else x

    def run(params):
        return RECURRENCES[name].apply(params, x, **options)

    return jax.eval_shape(run, params)


def _of_recurrence(name):
    call = functools.partial(functools.partial, applied, name)
    rows, (_, state, good) = {}, drawn(name)
    width = good.shape[-1]
    for kind, x in not_floating(good).items():
        text = "list" if kind == "list" else str(x.dtype)
        rows[f"x.{kind}"] = Bad(call(x=x), "x", text)
    for shape in (
        (0, LENGTH, width),
        (BATCH, 0, width),
        (2, LENGTH, width + 1),
        (width,),
    ):
        x = np.ones(shape, np.float32)
        rows[f"x.{shape}"] = Bad(call(x=x), "x", str(shape))
    for flags in ("mask", "reset"):
        for kind, value in not_flags((BATCH, LENGTH)).items():
            bad = Bad(call(**{flags: value}), flags, shown(value))
            rows[f"{flags}.{kind}"] = bad
    states = {"one": (good, "got one")} if state is None else _bad_states(state)
    for kind, (value, text) in states.items():
        rows[f"state.{kind}"] = Bad(call(state=value), "state", text)
    for value in ("magic", None):
        rows[f"method.{value}"] = Bad(call(method=value), "method", repr(value))
    for dtype in (np.int32, np.complex64):
        rows[f"params.{dtype.__name__}"] = Bad(
            call(of_params=functools.partial(_first_as, dtype)),
            "params[",
            dtype.__name__,
        )
    init = functools.partial(functools.partial, RECURRENCES[name].init)
    for value in bad_inputs.SIZES:
        bad = Bad(init(jax.random.key(0), value), "d_in", repr(value))
        rows[f"d_in.{value!r}"] = bad
    rows["key"] = Bad(init(0, width), "key", "0")
    return {f"{name}.{key}": bad for key, bad in rows.items()}


def _first_as(dtype, params):
    first = min(params)
    return params | {first: params[first].astype(dtype)}


def _bad_states(state):
    states = {
        "int": (np.ones(state.shape, np.int32), "int32"),
        "list": ([0.0], "list"),
        "shape": (state[:, :-1], str(state[:, :-1].shape)),
    }
    if not np.iscomplexobj(state):
        states["complex"] = (state.astype(np.complex64), "complex64")
    return states


CALLS = {
    key: bad
    for name in (name for name, _ in CLASSES.values())
    for key, bad in _of_recurrence(name).items()
} | {
    key: bad
    for key, bad in _of_recurrence("dlr_bidirectional").items()
    if ".state" in key
}


def _fields():
    rows = {}
    for cls, (name, recurrence) in CLASSES.items():
        fields = {
            field.name: getattr(recurrence, field.name)
            for field in dataclasses.fields(cls)
        }
        make = functools.partial(lambda cls, fields, **new: cls(**fields | new), cls)
        rows |= bad_inputs.field_rows(name, functools.partial(make, fields), cls)
    # The statistic may be independent of the sums.
    for name in ("sru", "fru"):
        del rows[f"{name}.d_feedback=0"]
    return rows


@table(CALLS, FAST)
def test_bad_argument_is_refused(bad, unchecked):
    bad_inputs.check_refusal(bad)


@table(_fields(), FAST)
def test_bad_field_is_refused(bad, unchecked):
    bad_inputs.check_refusal(bad)


class Custom(TimeInvariant):
    """A single mode whose logarithm has leaves of different shapes."""

    def init(self, key, d_in):
        del key
        return {"feedthrough": jnp.ones(d_in)}

    def modes(self, params):
        log = LogDecay(jnp.zeros((2, 1)), jnp.zeros(2))
        return SISOModes(log, jnp.ones((2, 1)), params["feedthrough"])


@pytest.mark.parametrize("method", ["sequential", "fft", "chunked"])
def test_leaves_that_do_not_match_are_refused(method, unchecked):
    params, x = Custom().init(None, 2), np.ones((BATCH, LENGTH, 2), np.float32)
    call = functools.partial(Custom().apply, params, x, method=method)
    bad_inputs.check_refusal(Bad(call, "log_decay", "(2, 1)"))


OTHERS = {
    "group": Bad(lambda: ParamGroup(lr_multiplier=-1.0), "lr_multiplier", "-1.0"),
    "group_nan": Bad(
        lambda: ParamGroup(lr_multiplier=float("nan")), "lr_multiplier", "nan"
    ),
    "group_kind": Bad(lambda: ParamGroup(kind="matrices"), "kind", "'matrices'"),
    "group_flag": Bad(lambda: ParamGroup(weight_decay=0), "weight_decay", "0"),
    "waves": Bad(lambda: log_spaced(0, 8.0), "n", "0"),
}


@table(OTHERS)
def test_other_bad_arguments_are_refused(bad, unchecked):
    bad_inputs.check_refusal(bad)
