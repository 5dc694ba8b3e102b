"""The table of recurrences: one row each, with its reference implementation."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

from ssm_jax.recurrences import (
    CES,
    DLR,
    DSS,
    FRU,
    GRU,
    LRU,
    LSTM,
    MLSTM,
    RGLRU,
    RNN,
    S4,
    S4D,
    S5,
    SRU,
    SSD,
    DampedEMA,
    DiagonalRNN,
    ExponentialSmoothing,
    GatedDeltaRule,
    GatedLinearAttention,
    LinOSS,
    MinGRU,
    MinLSTM,
    Recurrence,
    Retention,
    SelectiveSSM,
    SGConv,
    TrapezoidalSSD,
)
from tests.recurrences import (
    oracle,
    oracle_ema,
    oracle_linoss,
    oracle_matrix,
    oracle_rnn,
    oracle_selective,
    oracle_ssm,
)

METHODS = ("sequential", "fft", "chunked", "associative")

# Methods for input-dependent decays.
VARYING = ("sequential", "chunked", "associative")

# Rows that are evaluated in Pallas, too, whose kernels are interpreted here: one of
# each way to call `linear_recurrence`, and those with a kernel of their own.
PALLAS = (
    *("dlr", "s5_bidirectional", "selective", "fru", "gru"),
    # With decays of heads, of entries of keys, and the delta rule.
    *("ssd", "gated_attention", "delta_rule"),
    # Their states are formed of those of the kernel.
    *("retention", "mlstm", "mamba3"),
)

# Initial rates that have an effect within few steps.
FAST = {"d_state": 3, "dt_min": 0.02, "dt_max": 0.2}
DLRS = {
    "dlr": DLR(**FAST),
    "dlr_prod": DLR(**FAST, readout="prod"),
    "dlr_real": DLR(**FAST, eigenvalues="real"),
    "dlr_bidirectional": DLR(**FAST, bidirectional=True),
    "dlr_bidirectional_prod": DLR(**FAST, bidirectional=True, readout="prod"),
    "dlr_imag": DLR(**FAST, readout="imag"),
    "dlr_sum": DLR(**FAST, readout="sum", bidirectional=True),
    "dlr_unit": DLR(**FAST, eigenvalues="unit"),
    "dlr_unit_real": DLR(**FAST, eigenvalues="unit", real_weights=True, readout="prod"),
}

# Kernels that end after a few taps, between them shorter than the sequences and longer.
FINITE = {
    "dlr_cut": (DLR(**FAST, max_kernel_length=5), oracle.dlr_cut),
    "dlr_cut_bidirectional": (
        DLR(**FAST, max_kernel_length=6, bidirectional=True, readout="prod"),
        oracle.dlr_cut,
    ),
    "sgconv": (SGConv(d_state=3, length=10, decay=0.7), oracle.sgconv),
    "sgconv_bidirectional": (
        SGConv(d_state=2, length=5, bidirectional=True),
        oracle.sgconv,
    ),
}


class Row(NamedTuple):
    """A recurrence and its reference implementation.

    Attributes:
      recurrence: What is tested.
      run: Its definition in numpy, ``(params, x, state) -> (y, last)``.
      directions: One, or two: then there is no state.
      methods: The ways to evaluate it.
      lengths: Those at which all methods are held to the definition.
      brief: Whether it shares its evaluation with another row: then the tests of the
        evaluation leave it out.
      width: Width of its inputs, where its parts do not fit into the default.
      fast: Whether the fast tier tests more of it than that it is the definition.
    """

    recurrence: Recurrence
    run: oracle.Run
    directions: int = 1
    methods: tuple[str, ...] = METHODS
    lengths: tuple[int, ...] = (1, 2, 17, 127)
    brief: bool = False
    width: int = 2
    fast: bool = True


# Rows that share their code with the first row need fewer lengths.
LENGTHS = {
    "dlr": (1, 2, 17, 127),
    "dlr_prod": (17,),
    "dlr_real": (17, 127),
    "dlr_bidirectional": (2, 17, 127),
    "dlr_bidirectional_prod": (17,),
    "dlr_imag": (17,),
    "dlr_sum": (17,),
    "dlr_unit": (17,),
    "dlr_unit_real": (17,),
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
ROWS |= {
    name: Row(
        recurrence,
        functools.partial(run, recurrence),
        directions=2 if recurrence.bidirectional else 1,
        methods=("sequential", "fft"),
        lengths=(1, 4, 17) if name.startswith("dlr") else (17,),
    )
    for name, (recurrence, run) in FINITE.items()
}
SMOOTHINGS = {
    "smoothing": (CES(), (1, 17, 127)),
    "smoothing_real": (CES(eigenvalues="real"), (17,)),
    "smoothing_bare": (
        CES(alpha=False, beta=False, shortcut="none"),
        (17,),
    ),
    "smoothing_bidirectional": (CES(bidirectional=True), (17, 127)),
    "smoothing_bidirectional_small": (
        CES(bidirectional=True, small_change=True, shortcut="sigmoid"),
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

AVERAGES = {
    "ema": (
        ExponentialSmoothing(decay_min=0.1, decay_max=0.5),
        oracle_ema.exponential_smoothing,
    ),
    "ema_bidirectional": (
        ExponentialSmoothing(decay_min=0.1, decay_max=0.5, bidirectional=True),
        oracle_ema.exponential_smoothing,
    ),
    "damped_ema": (DampedEMA(d_state=3), oracle_ema.damped_ema),
    "damped_ema_bidirectional": (
        DampedEMA(d_state=2, bidirectional=True),
        oracle_ema.damped_ema,
    ),
}
# Steps large enough for short sequences to show the slow modes.
STEPS = {"dt_min": 0.05, "dt_max": 0.5}
SSMS = {
    "dss": (DSS(d_state=2, **STEPS), oracle_ssm.dss),
    "dss_softmax": (
        DSS(
            d_state=2,
            kernel="softmax",
            length=17,
            eigenvalue_init="lin",
            bidirectional=True,
            **STEPS,
        ),
        oracle_ssm.dss,
    ),
    "s4d": (S4D(d_state=4, **STEPS), oracle_ssm.s4d),
    "s4d_bilinear": (
        S4D(
            d_state=4,
            eigenvalue_init="inv",
            discretization="bilinear",
            bidirectional=True,
            **STEPS,
        ),
        oracle_ssm.s4d,
    ),
    "s4": (S4(d_state=4, **STEPS), oracle_ssm.s4),
    "s4_bidirectional": (S4(d_state=4, bidirectional=True, **STEPS), oracle_ssm.s4),
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
    for name, (ssm, run) in (AVERAGES | SSMS).items()
}
# Smooth, for the numerical gradient.
SIZES = {"d_statistic": 2, "d_feedback": 3, "d_output": 3, "activation": "tanh"}
WAVES = {"frequencies": (0.0, 0.25, 3.0), "horizon": 8}
STATISTICS = {
    "sru": SRU(scales=(0.0, 0.5, 0.99), **SIZES),
    "fru": FRU(**WAVES, **SIZES),
    "fru_summed": FRU(**WAVES, **SIZES, zero_frequency="summed"),
}
GATED = {"rnn": RNN(d_state=3), "gru": GRU(d_state=3), "lstm": LSTM(d_state=2)}
ROWS |= {
    name: Row(
        unit,
        functools.partial(
            oracle_rnn.statistics if name in STATISTICS else oracle_rnn.gated, unit
        ),
        methods=METHODS if name in STATISTICS else VARYING,
        lengths=(1, 17) if name in ("fru", "gru") else (17,),
    )
    for name, unit in (STATISTICS | GATED).items()
}
UNIT = LRU(d_state=3, r_min=0.5, r_max=0.99)
ROWS["lru"] = Row(UNIT, functools.partial(oracle_ssm.lru, UNIT), lengths=(17,))
SELECTIVE = SelectiveSSM(d_state=3, dt_rank=2, **STEPS)
ROWS["selective"] = Row(
    SELECTIVE,
    functools.partial(oracle_selective.selective, SELECTIVE),
    methods=VARYING,
    lengths=(1, 17, 127),
)
# The constant is of the size of the mean squares.
NORMALIZED = SelectiveSSM(d_state=3, dt_rank=2, rms_epsilon=0.1, **STEPS)
ROWS["selective_normalized"] = Row(
    NORMALIZED,
    functools.partial(oracle_selective.selective, NORMALIZED),
    methods=VARYING,
    lengths=(17,),
    brief=True,
)
GATED_ATTENTION = GatedLinearAttention(n_heads=2, d_key=2, rank=2, temperature=2.0)
ROWS["gated_attention"] = Row(
    GATED_ATTENTION,
    functools.partial(oracle_selective.gated_attention, GATED_ATTENTION),
    methods=VARYING,
    lengths=(17,),
)
REAL_GATED = RGLRU(n_heads=1, r_min=0.7)
ROWS["rg_lru"] = Row(
    REAL_GATED,
    functools.partial(oracle_selective.rg_lru, REAL_GATED),
    methods=VARYING,
    lengths=(1, 17),
)
MATRIX = {
    "ssd": (
        SSD(d_head=2, d_state=2, n_groups=2, step_limits=(0.1, 1.5), **STEPS),
        oracle_matrix.ssd,
        20,
    ),
    "delta_rule": (
        GatedDeltaRule(
            n_heads=2,
            d_key=2,
            d_value=2,
            n_key_heads=1,
            negative_eigenvalues=True,
            **STEPS,
        ),
        oracle_matrix.gated_delta_rule,
        12,
    ),
    "retention": (Retention(n_heads=2, d_key=4), oracle_matrix.retention, 2),
    "mlstm": (MLSTM(d_head=2, d_key=1), oracle_matrix.mlstm, 12),
    "mamba3": (
        TrapezoidalSSD(d_head=2, d_state=5, n_angles=2, rate_min=0.3, **STEPS),
        oracle_matrix.trapezoidal_ssd,
        2 * 5 + 2 * 5 + 2,
    ),
}
ROWS |= {
    name: Row(
        recurrence,
        functools.partial(run, recurrence),
        methods=VARYING,
        lengths=(1, 17),
        width=width,
        fast=False,
    )
    for name, (recurrence, run, width) in MATRIX.items()
}
MINIMAL = {
    "min_gru": MinGRU(d_state=4),
    "min_lstm": MinLSTM(activation="identity"),
}
ROWS |= {
    name: Row(
        unit,
        functools.partial(oracle_selective.minimal, unit),
        methods=VARYING,
        lengths=(17,),
    )
    for name, unit in MINIMAL.items()
}
DIAGONAL = {
    "diagonal": DiagonalRNN(d_state=3),
    "diagonal_sigmoid": DiagonalRNN(d_state=3, eigenvalues="sigmoid"),
    "diagonal_cosine": DiagonalRNN(d_state=3, eigenvalues="cosine"),
    "diagonal_phase": DiagonalRNN(d_state=2, eigenvalues="phase"),
}
ROWS |= {
    name: Row(
        unit,
        functools.partial(oracle_selective.diagonal_rnn, unit),
        methods=VARYING,
        lengths=(17,),
        brief=name in ("diagonal_sigmoid", "diagonal_cosine"),
        fast=False,
    )
    for name, unit in DIAGONAL.items()
}
OSCILLATORS = {
    "linoss": LinOSS(d_state=3),
    "linoss_imex": LinOSS(d_state=2, discretization="imex"),
}
ROWS |= {
    name: Row(
        unit,
        functools.partial(oracle_linoss.linoss, unit),
        methods=("sequential", "associative"),
        lengths=(17,) if name == "linoss_imex" else (1, 2, 17, 127),
        brief=name == "linoss_imex",
        fast=False,
    )
    for name, unit in OSCILLATORS.items()
}
BRIEF = (
    "dlr_real",
    "dlr_bidirectional_prod",
    "dlr_imag",
    "dlr_sum",
    "dlr_unit",
    "dlr_unit_real",
    "sgconv_bidirectional",
    "smoothing_real",
    "smoothing_bare",
    "smoothing_bidirectional_small",
    "ema",
    "ema_bidirectional",
    "damped_ema",
    "damped_ema_bidirectional",
    "dss",
    "dss_softmax",
    "lru",
    "s4d",
    "s4d_bilinear",
)
ROWS |= {
    name: ROWS[name]._replace(brief=True, methods=("sequential", "fft"))
    for name in BRIEF
}
ROWS |= {
    name: ROWS[name]._replace(brief=True, methods=("sequential", "associative"))
    for name in ("sru", "fru_summed", "rnn", "lstm", "gated_attention", *MINIMAL)
}
ROWS |= {
    name: ROWS[name]._replace(methods=(*ROWS[name].methods, "pallas"))
    for name in PALLAS
}


def first_of_each_class(rows: Mapping[str, Row]) -> dict[type[Recurrence], str]:
    """The name of the first row of each class; further rows run the same code."""
    return {type(row.recurrence): name for name, row in reversed(rows.items())}
