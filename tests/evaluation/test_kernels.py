"""Kernels and eigenvalues of layers, compared with their recurrences step by step."""

import functools

import chex
import jax
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.evaluation import layer_kernels, recurrence_kernels
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR, GRU, S4, TimeInvariant
from ssm_jax.recurrences.families.finite_kernel import FiniteKernel
from tests.bad_inputs import refuses
from tests.recurrences.cases import WIDTH, problem
from tests.recurrences.table import ROWS
from tests.tiers import tiered

LENGTH = 17
CONVOLUTIONS = {
    name: row
    for name, row in ROWS.items()
    if isinstance(row.recurrence, TimeInvariant | FiniteKernel | S4)
}
FAST = ("dlr", "dlr_bidirectional")
SEVERAL = (*FAST, "s5_bidirectional", "s4_bidirectional", "sgconv", "dlr_cut")
each_row = pytest.mark.parametrize("row", tiered(CONVOLUTIONS, FAST, full=SEVERAL))


@functools.cache
def params_and_kernels(row):
    """The parameters of a row, and its kernels."""
    params = problem(row, LENGTH).params
    return params, recurrence_kernels(row.recurrence, params, LENGTH)


def convolve(x, kernel, *, lag):
    """Sums a kernel over the steps before, or over those ahead for negative lags."""
    y = np.zeros(x.shape)
    for t in range(len(x)):
        for j in range(kernel.shape[-1]):
            source = t - lag * j if lag > 0 else t + 1 + j
            if 0 <= source < len(x):
                taps = np.float64(kernel[..., j])
                y[t] += taps @ x[source] if taps.ndim == 2 else taps * x[source]
    return y


@each_row
def test_outputs_are_convolutions_with_the_kernels(row):
    params, kernels = params_and_kernels(row)
    x = problem(row, LENGTH).x
    apply = jax.jit(row.recurrence.apply, static_argnames="method")
    expected, _ = apply(params, x, method="sequential")
    got = convolve(x[0], kernels.forward, lag=1) + kernels.feedthrough * x[0]
    if kernels.backward is not None:
        got += convolve(x[0], kernels.backward, lag=-1)
    scale = np.abs(expected[0]).max()
    np.testing.assert_allclose(got, expected[0], rtol=0, atol=2e-5 * scale)


STATES = {
    name: row
    for name, row in CONVOLUTIONS.items()
    if row.directions == 1
    and not isinstance(row.recurrence, FiniteKernel)
    and row.recurrence.initial_state((), WIDTH).ndim <= 2
    and getattr(row.recurrence, "readout", "real") != "prod"
    and getattr(row.recurrence, "max_kernel_length", None) is None
}


@pytest.mark.parametrize("row", tiered(STATES, ("dlr", "s4"), full=SEVERAL))
def test_a_step_without_input_multiplies_states_by_the_eigenvalues(row):
    params, kernels = params_and_kernels(row)
    state = np.asarray(row.recurrence.initial_state((), WIDTH))
    n = state.shape[-1]
    # Each state alone, in all channels at once.
    units = np.broadcast_to(np.eye(n, dtype=state.dtype), (n, n))
    if state.ndim == 2:
        units = np.broadcast_to(units[:, None], (n, WIDTH, n))
    x = np.zeros((n, 1, WIDTH), np.float32)
    apply = jax.jit(row.recurrence.apply, static_argnames="method")
    _, last = apply(params, x, units, method="sequential")
    matrices = np.moveaxis(np.asarray(last), 0, -1)  # (*d, n, n)
    expected = np.sort_complex(np.linalg.eigvals(matrices))
    got = np.broadcast_to(np.sort_complex(kernels.eigenvalues), expected.shape)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


def test_backward_direction_has_its_own_eigenvalues():
    _, kernels = params_and_kernels(ROWS["smoothing_bidirectional"])
    shape = kernels.eigenvalues.shape
    assert kernels.eigenvalues_backward.shape == shape
    assert np.any(kernels.eigenvalues != kernels.eigenvalues_backward)


def test_no_kernel_is_longer_than_its_limit():
    _, kernels = params_and_kernels(ROWS["dlr_cut"])
    assert kernels.forward.shape[-1] == ROWS["dlr_cut"].recurrence.max_kernel_length


@pytest.mark.full
def test_layers_of_a_model_are_in_their_order(key):
    layer = RecurrentLayer(DLR(d_state=4), ChannelMixing())
    model = SequenceModel(VectorEncoder(4), Block(layer), n_layers=2, head=StepHead(1))
    variables = jax.jit(model.init)(key, np.zeros((1, 5, WIDTH), np.float32))
    layers = layer_kernels(model, variables, 5)
    for index, kernels in enumerate(layers):
        block = variables["params"][f"block_{index}"]
        params = nn.meta.unbox(block)["layer"]["recurrent"]["recurrence"]
        expected = recurrence_kernels(layer.recurrence, params, 5)
        chex.assert_trees_all_equal(kernels, expected)
    assert len(layers) == 2


def test_recurrence_that_is_no_convolution_is_refused(key):
    gru = GRU(d_state=2)
    with refuses("recurrence", "GRU"):
        recurrence_kernels(gru, gru.init(key, WIDTH), 4)
    with refuses("length", 0):
        recurrence_kernels(gru, {}, 0)
