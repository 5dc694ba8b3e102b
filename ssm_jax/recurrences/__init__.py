"""Recurrences: parameters and meaning, one a file; pure functions of both."""

from ssm_jax.recurrences.bounded_eigenvalues import (
    BoundedEigenvalues as BoundedEigenvalues,
)
from ssm_jax.recurrences.ces import CES as CES
from ssm_jax.recurrences.dlr import DLR as DLR
from ssm_jax.recurrences.dlr import diagonalized as diagonalized
from ssm_jax.recurrences.dlr import kronecker as kronecker
from ssm_jax.recurrences.dss import DSS as DSS
from ssm_jax.recurrences.ema import DampedEMA as DampedEMA
from ssm_jax.recurrences.ema import ExponentialSmoothing as ExponentialSmoothing
from ssm_jax.recurrences.families.base import ParamGroup as ParamGroup
from ssm_jax.recurrences.families.base import Recurrence as Recurrence
from ssm_jax.recurrences.families.base import TimeInvariant as TimeInvariant
from ssm_jax.recurrences.families.modes import Modes as Modes
from ssm_jax.recurrences.families.modes import convolution_kernel as convolution_kernel
from ssm_jax.recurrences.families.modes import to_real_readout as to_real_readout
from ssm_jax.recurrences.families.nonlinear import Nonlinear as Nonlinear
from ssm_jax.recurrences.fru import FRU as FRU
from ssm_jax.recurrences.fru import log_spaced as log_spaced
from ssm_jax.recurrences.gla import GatedLinearAttention as GatedLinearAttention
from ssm_jax.recurrences.lru import LRU as LRU
from ssm_jax.recurrences.rnn import GRU as GRU
from ssm_jax.recurrences.rnn import LSTM as LSTM
from ssm_jax.recurrences.rnn import RNN as RNN
from ssm_jax.recurrences.s4 import S4 as S4
from ssm_jax.recurrences.s4d import S4D as S4D
from ssm_jax.recurrences.s5 import S5 as S5
from ssm_jax.recurrences.selective_ssm import SelectiveSSM as SelectiveSSM
from ssm_jax.recurrences.sru import SRU as SRU
