"""Invalid inputs of layers and models raise errors that name the argument."""

import functools
import inspect

import jax
import numpy as np

from ssm_jax import layers, models
from ssm_jax.layers import (
    MLP,
    ChannelMixing,
    ExpertChoiceMLP,
    GatedMLP,
    RecurrentLayer,
)
from ssm_jax.layers.channel_mixing import Linear
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.models.norm import BatchNorm
from ssm_jax.recurrences import DLR, RNN
from tests import bad_inputs
from tests.bad_inputs import Bad, not_flags, not_floating, shown, table
from tests.layers.cases import ROWS as LAYERS

BATCH, LENGTH, WIDTH = 2, 5, 4
X = np.ones((BATCH, LENGTH, WIDTH), np.float32)
RECURRENT = RecurrentLayer(DLR(d_state=3), ChannelMixing())
BLOCK = models.Block(RECURRENT)
MODULES = {
    "vector": models.VectorEncoder(4),
    "scalar": models.ScalarEncoder(4),
    "token": models.TokenEncoder(4, 7),
    "positions": models.PositionalEmbedding(9),
    "step_head": models.StepHead(3),
    "last_head": models.LastHead(3),
    "pooled_head": models.PooledHead(3, d_hidden=2, dropout=0.1),
    "pair_head": models.PairHead(3, d_hidden=2),
    "norm": models.Norm("batch"),
    "batch_norm": BatchNorm(),
    "row_dropout": RowDropout(0.5),
    "block": BLOCK,
    "model": models.SequenceModel(
        models.VectorEncoder(4), BLOCK, 1, models.StepHead(3)
    ),
    "network": models.RecurrentNetwork(
        RNN(d_state=3), models.LastHead(3), models.VectorEncoder(4)
    ),
    "mlp": MLP(8),
    "gated_mlp": GatedMLP(8),
    "expert_choice": ExpertChoiceMLP(8, 2),
    "linear_map": Linear(3),
} | {name: row.layer for name, row in LAYERS.items()}
FAST = ("token", "model", "recurrent", "softmax", "mamba", "ets_mlp")
INPUTS = {
    "scalar": np.ones((BATCH, LENGTH, 1), np.float32),
    "token": np.ones((BATCH, LENGTH), np.int32),
    "pair_head": np.ones((BATCH, 2, LENGTH, WIDTH), np.float32),
}


def traced(module, x, state=None, **flags):
    """Traces the call of a module; nothing is compiled."""
    arguments = [x] if state is None else [x, state]
    jax.eval_shape(
        lambda: module.init_with_output(jax.random.key(0), *arguments, **flags)
    )


def _of_module(name, module):
    x = INPUTS.get(name, X)
    takes = inspect.signature(type(module).__call__).parameters
    call = functools.partial(functools.partial, traced, module)
    if name == "token":
        floats = {"float": x + 0.5, "bool": x > 0, "list": x.tolist()}
        for kind, bad in floats.items():
            text = "list" if kind == "list" else str(bad.dtype)
            yield f"x.{kind}", Bad(call(bad), "x", text)
    else:
        for kind, bad in not_floating(x).items():
            text = "list" if kind == "list" else str(bad.dtype)
            yield f"x.{kind}", Bad(call(bad), "x", text)
    for flags in ("mask", "reset"):
        if flags in takes:
            for kind, bad in not_flags(x.shape[:-1]).items():
                # Heads and norms broadcast a mask as numpy does.
                if kind != "shape" or name in LAYERS:
                    yield (
                        f"{flags}.{kind}",
                        Bad(call(x, **{flags: bad}), flags, shown(bad)),
                    )
    if name in LAYERS:
        empty = np.ones((0, LENGTH, WIDTH), np.float32)
        yield "x.empty", Bad(call(empty), "x", "(0, 5,")
    convolved = ("mamba", "mamba2", "gated_delta_net", "mlstm", "griffin")
    if name in (*convolved, "model"):
        yield "state", Bad(call(x, state=X), "state", "ndarray")


CALLS = {
    f"{name}.{key}": bad
    for name, module in MODULES.items()
    for key, bad in _of_module(name, module)
}


def _make(module, **fields):
    return module.clone(**fields)


CLASSES = {type(module): (name, module) for name, module in MODULES.items()}
CLASSES[ChannelMixing] = ("mixing", ChannelMixing())
FIELDS = {
    key: bad
    for cls, (name, module) in CLASSES.items()
    for key, bad in bad_inputs.field_rows(
        name, functools.partial(_make, module), cls
    ).items()
}
DROPOUTS = {
    f"{name}.dropout={rate!r}": Bad(
        functools.partial(_make, module, dropout=rate), "dropout", repr(rate)
    )
    for name, module in CLASSES.values()
    if hasattr(module, "dropout")
    for rate in (1, 1.5, -0.1)
}


@table(CALLS, FAST)
def test_bad_argument_is_rejected(bad, unchecked):
    bad_inputs.check_refusal(bad)


@table(FIELDS | DROPOUTS, FAST)
def test_bad_field_is_rejected(bad, unchecked):
    bad_inputs.check_refusal(bad)


def test_every_layer_and_model_has_cases():
    public = {
        value
        for package in (layers, models)
        for value in vars(package).values()
        if isinstance(value, type) and issubclass(value, Module)
    }
    assert public - set(CLASSES) == {models.ScalarNorm}
