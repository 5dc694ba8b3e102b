"""Counts draws of the parameters whose outputs or gradients are not finite."""

import functools
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measurement import Row
from ssm_jax.recurrences import (
    CES,
    DLR,
    DSS,
    FRU,
    GRU,
    LRU,
    LSTM,
    RNN,
    S4,
    S4D,
    S5,
    SRU,
    BoundedEigenvalues,
    DampedEMA,
    ExponentialSmoothing,
    GatedLinearAttention,
    Nonlinear,
    Recurrence,
    SelectiveSSM,
)
from ssm_jax.recurrences.families.running_sums import RunningSums
from ssm_jax.types import Method

SCALES = (1.0, 5.0, 20.0, 100.0)
"""Standard deviations ``s`` of what is added to each initialized parameter."""

_STATISTIC: dict[str, Any] = {"d_statistic": 2, "d_feedback": 3, "d_output": 3}
_WAVES: dict[str, Any] = {"frequencies": (0.0, 0.25, 3.0), "horizon": 48}

RECURRENCES: dict[str, Recurrence] = {
    "dlr": DLR(d_state=3),
    "dlr_prod": DLR(d_state=3, readout="prod"),
    "dlr_real": DLR(d_state=3, eigenvalues="real"),
    "dlr_bidirectional": DLR(d_state=3, bidirectional=True),
    "dlr_bidirectional_prod": DLR(d_state=3, bidirectional=True, readout="prod"),
    "smoothing": CES(),
    "smoothing_real": CES(eigenvalues="real"),
    "smoothing_bare": CES(alpha=False, beta=False, shortcut="none"),
    "smoothing_bidirectional": CES(bidirectional=True),
    "smoothing_bidirectional_small": CES(
        bidirectional=True, small_change=True, shortcut="sigmoid"
    ),
    "smoothing_unbounded": CES(small_change=True, max_modulus=1.0),
    "ema": ExponentialSmoothing(),
    "ema_bidirectional": ExponentialSmoothing(bidirectional=True),
    "damped_ema": DampedEMA(d_state=3),
    "damped_ema_bidirectional": DampedEMA(d_state=2, bidirectional=True),
    "dss": DSS(d_state=3),
    "dss_softmax": DSS(d_state=3, kernel="softmax", length=32),
    "dss_softmax_bidirectional": DSS(
        d_state=2,
        kernel="softmax",
        length=17,
        eigenvalue_init="lin",
        bidirectional=True,
    ),
    "s4d": S4D(d_state=4),
    "s4d_bilinear": S4D(
        d_state=4, eigenvalue_init="inv", discretization="bilinear", bidirectional=True
    ),
    "s4": S4(d_state=4),
    "s4_bidirectional": S4(d_state=4, bidirectional=True),
    "s5": S5(d_state=4, blocks=1),
    "s5_exp": S5(d_state=4, blocks=1, real_part="exp"),
    "s5_bilinear": S5(
        d_state=4,
        blocks=2,
        conjugate_pairs=False,
        discretization="bilinear",
        bidirectional=True,
    ),
    "lru": LRU(d_state=3),
    "bounded_dlr": BoundedEigenvalues(recurrence=DLR(d_state=3), largest_state=10.0),
    "bounded_s4d": BoundedEigenvalues(recurrence=S4D(d_state=4), largest_state=10.0),
    "bounded_s5": BoundedEigenvalues(
        recurrence=S5(d_state=4, blocks=1), largest_state=10.0
    ),
    "bounded_lru": BoundedEigenvalues(recurrence=LRU(d_state=3), largest_state=10.0),
    "selective": SelectiveSSM(d_state=3, dt_rank=2),
    "gated_attention": GatedLinearAttention(n_heads=1, d_key=2, rank=2),
    "rnn": RNN(d_state=3),
    "gru": GRU(d_state=3),
    "lstm": LSTM(d_state=2),
    "fru": FRU(**_WAVES, **_STATISTIC),
    "fru_tanh": FRU(**_WAVES, **_STATISTIC, activation="tanh"),
    "fru_summed": FRU(**_WAVES, **_STATISTIC, zero_frequency="summed"),
    "sru": SRU(**_STATISTIC),
    "sru_tanh": SRU(**_STATISTIC, activation="tanh"),
}
"""Every recurrence with its variants, small."""

MAX_LOG_GROWTH = 60.0
"""Logarithm of the growth up to which an `FRU` or `SRU` must be finite."""

# Number of draws per call; their gradients take about 100 MiB.
_AT_ONCE = 2500


def finite_rows(
    length: int, *, draws: int = 10_000, d_in: int = 2, repeats: int
) -> Iterable[Row]:
    """Counts draws with values that are not finite for each recurrence and scale.

    Args:
      length: Length of the input.
      draws: Number of draws of parameters, input and initial state.
      d_in: Width of the input.
      repeats: Ignored, since nothing is timed.

    Yields:
      A row for each recurrence and scale ``s``, with the result of `count`.
    """
    del repeats
    for name, recurrence in RECURRENCES.items():
        logging.info("%s, %d steps, %d draws", name, length, draws)
        for scale in SCALES:
            found = count(recurrence, scale, draws, length=length, d_in=d_in)
            yield {"what": name, "s": scale} | found


def count(
    recurrence: Recurrence,
    scale: float,
    draws: int,
    *,
    length: int = 48,
    d_in: int = 2,
    method: Method = "sequential",
) -> Row:
    """Counts the draws of one recurrence at one scale.

    A draw is ``init`` with one key plus ``scale`` times standard normal numbers, a
    standard normal input and, if the recurrence has a state, a standard normal initial
    state. The gradient is that of a sum of outputs and final state, weighted by
    standard normal numbers, with respect to parameters, input and state.

    Args:
      recurrence: The recurrence.
      scale: Standard deviation of the noise added to each parameter.
      draws: Number of draws.
      length: Length of the input.
      d_in: Width of the input.
      method: Evaluation method.

    Returns:
      ``draws``, the number of draws; ``values`` and ``gradients``, the numbers of draws
      whose outputs or final state, or whose gradients, are not finite; ``within``, the
      number of draws that must be finite, which are all except those of an `FRU` or
      `SRU` beyond the bound in their docstrings; ``bad_within``, the number of these
      that are not finite; ``where``, the arguments with gradients that are not finite.
    """
    n_chunks = -(-draws // _AT_ONCE)
    shape = (n_chunks, -(-draws // n_chunks))
    rng = np.random.default_rng(0)
    init = recurrence.init(jax.random.key(0), d_in)
    params = {
        name: np.asarray(leaf)
        + np.float32(scale * rng.standard_normal((*shape, *leaf.shape)))
        for name, leaf in init.items()
    }
    x = rng.standard_normal((*shape, length, d_in)).astype(np.float32)
    state = recurrence.initial_state((), d_in)
    if state is not None:
        state = _normal(rng, shape, state)
        if isinstance(recurrence, Nonlinear) and recurrence.tracks_position:
            state[..., -1] = 0  # the number of the first step
    out = jax.eval_shape(recurrence.apply, init, x[0, 0])
    weights = jax.tree.map(functools.partial(_normal, rng, ()), out)
    found = _bad(recurrence, params, x, state, weights, method=method)
    bad = {name: np.ravel(flags)[:draws] for name, flags in found.items()}
    values, gradients = bad.pop(""), np.any(list(bad.values()), 0)
    within = np.full(draws, True)
    if isinstance(recurrence, RunningSums):
        of_draws = {name: v.reshape(-1, *v.shape[2:]) for name, v in params.items()}
        growth = length * np.log(step_growth(recurrence, of_draws, length))
        within = (growth <= MAX_LOG_GROWTH)[:draws]
    return {
        "draws": draws,
        "values": int(values.sum()),
        "gradients": int(gradients.sum()),
        "within": int(within.sum()),
        "bad_within": int(((values | gradients) & within).sum()),
        "where": " ".join(name for name, flags in bad.items() if flags.any()),
    }


def step_growth(
    unit: RunningSums, params: Mapping[str, np.ndarray | jax.Array], length: int
) -> np.ndarray:
    """Upper bound of the factor by which a step multiplies the sums of a unit.

    It is ``rho = max(a) + max_t |c_t| |W_r| |W_phi|`` as in the docstring of `SRU`,
    with spectral norms.

    Args:
      unit: The unit.
      params: Parameters of the unit, with leading axes.
      length: Number of steps.

    Returns:
      ``rho``, with the leading axes.
    """
    named = unit.named(params)
    steps = jnp.arange(length if unit.tracks_position else 1)
    weights = jax.vmap(lambda phase: unit.weights({"theta": phase}, steps))
    phase = params.get("theta", np.zeros((len(named.input_bias), 1), np.float32))
    size = np.linalg.norm(weights(phase), axis=-1).max(-1)
    norms = (
        np.linalg.norm(np.asarray(matrix), ord=2, axis=(-2, -1))
        for matrix in (named.feedback, named.statistic)
    )
    return max(unit.decays) + size * math.prod(norms)


@functools.partial(jax.jit, static_argnames=("recurrence", "method"))
def _bad(recurrence, params, x, state, weights, *, method):
    """Whether values (with an empty name) and gradients are not finite."""

    def total(params, x, state):
        out = recurrence.apply(params, x, state, method=method)
        weighted = jax.tree.map(jnp.multiply, weights, out)
        parts = (jnp.sum(jnp.real(leaf)) for leaf in jax.tree.leaves(weighted))
        return sum(parts), out

    def of_draw(drawn):
        argnums = (0, 1) if drawn[2] is None else (0, 1, 2)
        grads, out = jax.grad(total, argnums, has_aux=True)(*drawn)
        named = {"": out, **grads[0], "x": grads[1]}
        named |= {} if drawn[2] is None else {"state": grads[2]}
        return {name: _any_not_finite(tree) for name, tree in named.items()}

    return jax.lax.map(jax.vmap(of_draw), (params, x, state))


def _normal(rng, axes, like):
    """Standard normal numbers in the shapes of ``like``, with leading axes."""
    drawn = rng.standard_normal((*axes, *like.shape))
    if jnp.iscomplexobj(like):
        drawn = drawn + 1j * rng.standard_normal(drawn.shape)
    return drawn.astype(like.dtype)


def _any_not_finite(tree):
    flags = (~jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree))
    return functools.reduce(jnp.logical_or, flags)
