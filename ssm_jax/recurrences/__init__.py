"""Recurrences: parameters and meaning, one a file; pure functions of both."""

from ssm_jax.recurrences.base import ParamGroup, Recurrence, TimeInvariant
from ssm_jax.recurrences.bounded import Bounded
from ssm_jax.recurrences.dlr import DLR, diagonalized, kronecker
from ssm_jax.recurrences.dss import DSS
from ssm_jax.recurrences.ema import DampedEMA, ExponentialSmoothing
from ssm_jax.recurrences.ets import ComplexSmoothing
from ssm_jax.recurrences.fru import FRU, log_spaced
from ssm_jax.recurrences.gated_attention import GatedLinearAttention
from ssm_jax.recurrences.lru import LRU
from ssm_jax.recurrences.modes import Modes, convolution_kernel, recurrent
from ssm_jax.recurrences.nonlinear import Nonlinear
from ssm_jax.recurrences.rnn import GRU, LSTM, RNN
from ssm_jax.recurrences.s4 import S4
from ssm_jax.recurrences.s4d import S4D
from ssm_jax.recurrences.s5 import S5
from ssm_jax.recurrences.selective import Selective
from ssm_jax.recurrences.sru import SRU

__all__ = [
    "DLR",
    "DSS",
    "FRU",
    "GRU",
    "LRU",
    "LSTM",
    "RNN",
    "S4",
    "S4D",
    "S5",
    "SRU",
    "Bounded",
    "ComplexSmoothing",
    "DampedEMA",
    "ExponentialSmoothing",
    "GatedLinearAttention",
    "Modes",
    "Nonlinear",
    "ParamGroup",
    "Recurrence",
    "Selective",
    "TimeInvariant",
    "convolution_kernel",
    "diagonalized",
    "kronecker",
    "log_spaced",
    "recurrent",
]
