"""What is shown of a model: kernels and eigenvalues, examples, and their file."""

import functools
import importlib
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from ssm_jax.config import spec
from ssm_jax.evaluation import evaluate_run, layer_kernels, recurrence_kernels
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, PooledHead, SequenceModel, StepHead, VectorEncoder
from ssm_jax.recurrences import DLR, GRU, S4, S5, TimeInvariant
from ssm_jax.recurrences.families.finite_kernel import FiniteKernel
from ssm_jax.tasks import ArrayTask, Digits
from ssm_jax.training import WorkDir, train
from tests.bad_inputs import refuses
from tests.recurrences.cases import problem
from tests.recurrences.table import ROWS
from tests.tiers import tiered
from tests.training import tiny
from tests.training.test_workdir import full_disk

D_IN = 2  # the width of the rows that are inspected

# `ssm_jax.evaluation.inspect` is the function; `import_module` gives the module.
MODULE = importlib.import_module("ssm_jax.evaluation.inspect")
WIDTH, LENGTH = 3, 16
RECURRENCES = {
    "dlr": DLR(d_state=8, bidirectional=True),
    "dlr_cut": DLR(d_state=8, max_kernel_length=4, bidirectional=True),
    "causal_cut": DLR(d_state=8, max_kernel_length=4),
    "s5": S5(d_state=4, blocks=1, bidirectional=True),
} | {
    name: row.recurrence
    for name, row in ROWS.items()
    if isinstance(row.recurrence, TimeInvariant) and not name.startswith("dlr")
}


@pytest.mark.parametrize(
    "recurrence", tiered(RECURRENCES, ["dlr_cut", "smoothing_bidirectional"])
)
def test_kernels_are_the_responses_to_impulses(recurrence, key):
    params = recurrence.init(key, WIDTH)
    arrays = MODULE._largest_kernels(recurrence, params, LENGTH)
    lags = np.arange(LENGTH - arrays["kernels"].shape[-1], LENGTH)
    x = np.zeros((WIDTH, 2 * LENGTH, WIDTH), np.float32)
    x[np.arange(WIDTH), LENGTH, np.arange(WIDTH)] = 1
    y, _ = jax.jit(recurrence.apply)(params, x)
    for channel, taps in zip(arrays["channels"], arrays["kernels"], strict=True):
        response = np.array(y[channel, :, channel])
        response[LENGTH] -= recurrence.modes(params).feedthrough[channel]
        np.testing.assert_allclose(taps, response[LENGTH + lags], rtol=0, atol=1e-5)


def test_confident_mistakes_are_among_the_highest_losses():
    """Probabilities of 0 in float32 have a finite loss, and are not left out."""
    task = Digits()
    batch = task.batch("test", 0, 8, 0)
    logits = jnp.zeros((8, 10)).at[jnp.arange(8), (batch.targets + 1) % 10].set(300.0)
    examples = MODULE._predict(lambda *_, **__: logits, task.spec, batch)
    np.testing.assert_allclose(examples["losses"], 300.0)
    assert np.all(examples["predictions"][np.arange(8), batch.targets] == 0)


@pytest.mark.usefixtures("unchecked")
def test_full_disk_keeps_the_arrays_that_were_there(tmp_path, monkeypatch):
    path = tmp_path / "inspection.npz"
    model = types.SimpleNamespace(recurrence=None)
    restored = types.SimpleNamespace(model=model, variables={"params": {}})
    monkeypatch.setattr(MODULE, "_examples", lambda *_: {"losses": np.arange(10.0)})
    MODULE.inspect(restored, path)
    before = path.read_bytes()
    with full_disk(), pytest.raises(OSError, match="inspection.npz"):
        MODULE.inspect(restored, path)
    assert path.read_bytes() == before


@pytest.mark.full
def test_examples_are_of_the_evaluated_split_and_come_after_the_metrics(
    tmp_path, monkeypatch
):
    """The task has no test examples, so that only its validation can be evaluated."""
    inputs = np.arange(80, dtype=np.float32).reshape(20, 4, 1)
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=np.arange(20) % 2)
    config = tiny.digits(steps=1, batch_size=8)
    config.model = tiny.model(PooledHead(d_output=2))
    config.task = spec(
        ArrayTask,
        file=str(tmp_path / "a.npz"),
        length=4,
        inputs="vector",
        d_input=1,
        targets="classification",
        d_output=2,
        validation_fraction=0.2,
        test_fraction=0.0,
    )
    work = WorkDir(tmp_path / "run")
    train(config, str(work.path))
    with monkeypatch.context() as patch:
        patch.setattr("ssm_jax.evaluation.run.inspect", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            evaluate_run(work.path, split="validation")
    assert (work.read("evaluation.json") or {})["split"] == "validation"
    evaluate_run(work.path, split="validation")
    arrays = work.read_arrays("inspection.npz")
    assert str(arrays["split"]) == "validation"
    assert (arrays["n_candidates"], len(arrays["inputs"])) == (4, 4)


N_TAPS = 17
CONVOLUTIONS = {
    name: row
    for name, row in ROWS.items()
    if isinstance(row.recurrence, TimeInvariant | FiniteKernel | S4)
}
FAST = ("dlr",)
SEVERAL = (*FAST, "dlr_bidirectional", "s4_bidirectional", "sgconv", "dlr_cut")
each_row = pytest.mark.parametrize("row", tiered(CONVOLUTIONS, FAST, full=SEVERAL))


@functools.cache
def params_and_kernels(row):
    """The parameters of a row, and its kernels."""
    params = problem(row, N_TAPS).params
    return params, recurrence_kernels(row.recurrence, params, N_TAPS)


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
    x = problem(row, N_TAPS).x
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
    and row.recurrence.initial_state((), D_IN).ndim <= 2
    and getattr(row.recurrence, "readout", "real") != "prod"
    and getattr(row.recurrence, "max_kernel_length", None) is None
}


@pytest.mark.parametrize("row", tiered(STATES, ("s4",), full=(*SEVERAL, "s4")))
def test_a_step_without_input_multiplies_states_by_the_eigenvalues(row):
    params, kernels = params_and_kernels(row)
    state = np.asarray(row.recurrence.initial_state((), D_IN))
    n = state.shape[-1]
    # Each state alone, in all channels at once.
    units = np.broadcast_to(np.eye(n, dtype=state.dtype), (n, n))
    if state.ndim == 2:
        units = np.broadcast_to(units[:, None], (n, D_IN, n))
    x = np.zeros((n, 1, D_IN), np.float32)
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
    variables = jax.jit(model.init)(key, np.zeros((1, 5, D_IN), np.float32))
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
        recurrence_kernels(gru, gru.init(key, D_IN), 4)
    with refuses("length", 0):
        recurrence_kernels(gru, {}, 0)
