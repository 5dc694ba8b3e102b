"""The table of recurrences, and the compiled evaluation that their tests share."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences import DLR, DSS, S4D, S5, ComplexSmoothing, Recurrence
from tests.kernels.oracle import assert_close
from tests.recurrences import oracle, oracle_ssm

METHODS = ("sequential", "fft", "chunked", "associative")
WIDTH = 2

# Rates at the start that are felt within few steps.
FAST = {"d_state": 3, "dt_min": 0.02, "dt_max": 0.2}
DLRS = {
    "dlr": DLR(**FAST),
    "dlr_prod": DLR(**FAST, readout="prod"),
    "dlr_real": DLR(**FAST, eigenvalues="real"),
    "dlr_bidirectional": DLR(**FAST, bidirectional=True),
    "dlr_bidirectional_prod": DLR(**FAST, bidirectional=True, readout="prod"),
}

# Rows: all data, padding behind, in front, in holes, nearly everywhere.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 1],
        [0, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1, 0],
    ],
    bool,
)
RESET = np.array(
    [
        [0, 0, 0, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 1],
        [1, 0, 1, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ],
    bool,
)


class Row(NamedTuple):
    """A recurrence and what it is held to.

    Attributes:
      recurrence: What is tested.
      run: Its definition in numpy, ``(params, x, state) -> (y, last)``.
      directions: One, or two: then there is no state.
      methods: The ways to evaluate it.
      lengths: Those at which all methods are held to the definition.
    """

    recurrence: Recurrence
    run: oracle.Run
    directions: int = 1
    methods: tuple[str, ...] = METHODS
    lengths: tuple[int, ...] = (1, 2, 17, 127)


# Where a row shares its code with the first, fewer lengths show it.
LENGTHS = {
    "dlr": (1, 2, 17, 127),
    "dlr_prod": (17,),
    "dlr_real": (1, 127),
    "dlr_bidirectional": (2, 127),
    "dlr_bidirectional_prod": (17,),
}
ROWS = {
    name: Row(
        dlr,
        functools.partial(oracle.dlr, dlr),
        directions=2 if dlr.bidirectional else 1,
        lengths=LENGTHS[name],
    )
    for name, dlr in DLRS.items()
}
SMOOTHINGS = {
    "smoothing": (ComplexSmoothing(), (1, 2, 17, 127)),
    "smoothing_real": (ComplexSmoothing(eigenvalues="real"), (17,)),
    "smoothing_bare": (
        ComplexSmoothing(alpha=False, beta=False, shortcut="none"),
        (17,),
    ),
    "smoothing_bidirectional": (ComplexSmoothing(bidirectional=True), (1, 127)),
    "smoothing_bidirectional_small": (
        ComplexSmoothing(bidirectional=True, small_change=True, shortcut="sigmoid"),
        (17,),
    ),
}
ROWS |= {
    name: Row(
        smoothing,
        functools.partial(oracle.smoothing, smoothing),
        directions=2 if smoothing.bidirectional else 1,
        lengths=lengths,
    )
    for name, (smoothing, lengths) in SMOOTHINGS.items()
}

# Steps long enough for a sequence of the tests to reach the slow modes.
STEPS = {"dt_min": 0.05, "dt_max": 0.5}
SSMS = {
    "dss": (DSS(d_state=2, **STEPS), oracle_ssm.dss),
    "dss_softmax": (
        DSS(
            d_state=2,
            kernel="softmax",
            length=17,
            start="lin",
            bidirectional=True,
            **STEPS,
        ),
        oracle_ssm.dss,
    ),
    "s4d": (S4D(d_state=4, **STEPS), oracle_ssm.s4d),
    "s4d_bilinear": (
        S4D(
            d_state=4,
            start="inv",
            discretization="bilinear",
            bidirectional=True,
            **STEPS,
        ),
        oracle_ssm.s4d,
    ),
    "s5": (S5(d_state=4, blocks=1, real_part="exp", **STEPS), oracle_ssm.s5),
    "s5_bidirectional": (
        S5(
            d_state=4,
            blocks=2,
            conjugate_pairs=False,
            discretization="bilinear",
            bidirectional=True,
            **STEPS,
        ),
        oracle_ssm.s5,
    ),
}
ROWS |= {
    name: Row(
        ssm,
        functools.partial(run, ssm),
        directions=2 if ssm.bidirectional else 1,
        methods=METHODS if isinstance(ssm, S5) else ("sequential", "fft", "chunked"),
        lengths=(17,),
    )
    for name, (ssm, run) in SSMS.items()
}


def rows(*, methods=None, lengths=False, directions=(1, 2)):
    """Marks a test to run on rows; if asked, on each of their methods and lengths."""
    params = []
    for name, row in ROWS.items():
        axes = {"row": [row]}
        if methods is not None:
            axes["method"] = [method for method in methods if method in row.methods]
        if lengths:
            axes["length"] = row.lengths
        if row.directions in directions:
            for values in itertools.product(*axes.values()):
                label = "-".join([name, *map(str, values[1:])])
                params.append(pytest.param(*values, id=label))
    names = ["row", *["method"] * (methods is not None), *["length"] * lengths]
    return pytest.mark.parametrize(names, params)


class Problem(NamedTuple):
    """Parameters, inputs and the weights of a loss.

    Attributes:
      params: Of the recurrence, for inputs of width ``d``.
      x: Inputs, ``(b, l, d)``.
      state: State before the first step, or None.
      weights: ``(c, c_last)`` of the loss ``sum(c y) + Re sum(c_last last)``, like the
        outputs and the state.
    """

    params: dict
    x: np.ndarray
    state: np.ndarray | None
    weights: tuple[np.ndarray, np.ndarray | None]


def problem(row, length, *, batch=2, start=False):
    """A drawn problem of a row; with a drawn state before the first step or none."""
    rng = np.random.default_rng(length)

    def draw(like):
        values = rng.normal(size=like.shape)
        if np.iscomplexobj(like):
            values = values + 1j * rng.normal(size=like.shape)
        return values.astype(like.dtype)

    params = row.recurrence.init(jax.random.key(1), WIDTH)
    x = draw(np.zeros((batch, length, WIDTH), np.float32))
    c = draw(np.zeros((batch, length, row.recurrence.d_out(WIDTH)), np.float32))
    zero = row.recurrence.initial_state((batch,), WIDTH)
    c_last = None if zero is None else draw(np.asarray(zero))
    state = draw(np.asarray(zero)) if start and zero is not None else None
    return Problem(jax.tree.map(np.asarray, params), x, state, (c, c_last))


def loss(out, weights):
    """The loss of a problem."""
    (y, last), (c, c_last) = out, weights
    total = jnp.sum(c * y)
    return total if last is None else total + jnp.sum(jnp.real(c_last * last))


def evaluation(apply):
    """Compiles ``apply(params, x, state)`` to ``((y, last), gradients)``."""

    def of_problem(params, x, state, weights, *args, **options):
        def total(params, x, state):
            out = apply(params, x, state, *args, **options)
            return loss(out, weights), out

        argnums = (0, 1) if state is None else (0, 1, 2)
        grads, out = jax.grad(total, argnums, has_aux=True)(params, x, state)
        return out, (*grads, None)[:3]

    return of_problem


@functools.partial(jax.jit, static_argnames=("recurrence", "method"))
def evaluate(recurrence, problem, reset=None, mask=None, *, method):
    """Gives ``(y, last)`` and the gradients in params, inputs and state."""
    of_problem = evaluation(recurrence.apply)
    return of_problem(*problem, reset=reset, mask=mask, method=method)


def expected(row, problem, reset=None, mask=None):
    """What `evaluate` must give."""
    run = row.run
    if reset is not None or mask is not None:
        run = functools.partial(oracle.packed, row.run, reset=reset, mask=mask)
    params, x, state, weights = problem
    out = run(params, np.float64(x), state)
    return out, oracle.gradients(run, params, x, state, weights)


def check(given, wanted):
    """Values within 1e-5 of the largest, gradients within 1e-4."""
    assert_close(given[0], wanted[0], 1e-5)
    assert_close(given[1], wanted[1], 1e-4)
