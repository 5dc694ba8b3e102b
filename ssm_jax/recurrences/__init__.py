"""Recurrences as pure functions of parameters and inputs, one per module."""

from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.recurrences.bounded_eigenvalues import BoundedEigenvalues
from ssm_jax.recurrences.ces import CES
from ssm_jax.recurrences.diagonal_rnn import DiagonalRNN
from ssm_jax.recurrences.dlr import DLR
from ssm_jax.recurrences.dlr_identities import diagonalized, kronecker
from ssm_jax.recurrences.dss import DSS
from ssm_jax.recurrences.ema import DampedEMA, ExponentialSmoothing
from ssm_jax.recurrences.families.base import ParamGroup, Recurrence
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.recurrences.families.modes import (
    MIMOModes,
    SISOModes,
    convolution_kernel,
    to_real_readout,
)
from ssm_jax.recurrences.families.nonlinear import Nonlinear
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.recurrences.fru import FRU, log_spaced
from ssm_jax.recurrences.gated_delta_rule import GatedDeltaRule
from ssm_jax.recurrences.gla import GatedLinearAttention
from ssm_jax.recurrences.linoss import LinOSS
from ssm_jax.recurrences.lru import LRU
from ssm_jax.recurrences.min_rnn import MinGRU, MinLSTM
from ssm_jax.recurrences.mlstm import MLSTM
from ssm_jax.recurrences.retention import Retention
from ssm_jax.recurrences.rg_lru import RGLRU
from ssm_jax.recurrences.rnn import GRU, LSTM, RNN
from ssm_jax.recurrences.s4 import S4
from ssm_jax.recurrences.s4d import S4D
from ssm_jax.recurrences.s5 import S5
from ssm_jax.recurrences.selective_ssm import SelectiveSSM
from ssm_jax.recurrences.sgconv import SGConv
from ssm_jax.recurrences.sru import SRU
from ssm_jax.recurrences.ssd import SSD
from ssm_jax.recurrences.trapezoidal_ssd import TrapezoidalSSD

# The base classes and modes are public: a recurrence can be defined elsewhere.
__all__ = [
    "CES",
    "DLR",
    "DSS",
    "FRU",
    "GRU",
    "LRU",
    "LSTM",
    "MLSTM",
    "RGLRU",
    "RNN",
    "S4",
    "S4D",
    "S5",
    "SRU",
    "SSD",
    "BoundedEigenvalues",
    "ChunkedForm",
    "DampedEMA",
    "DiagonalRNN",
    "ExponentialSmoothing",
    "GatedDeltaRule",
    "GatedLinearAttention",
    "InputDependent",
    "LinOSS",
    "MIMOModes",
    "MinGRU",
    "MinLSTM",
    "Nonlinear",
    "ParamGroup",
    "Recurrence",
    "Retention",
    "SGConv",
    "SISOModes",
    "SelectiveSSM",
    "TimeInvariant",
    "TrapezoidalSSD",
    "convolution_kernel",
    "diagonalized",
    "kronecker",
    "log_spaced",
    "to_real_readout",
]
