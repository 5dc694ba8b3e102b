"""How deep `jax.lax.scan` lies under a call of a layer, counted in frames."""

import functools
import pathlib
import traceback

import jax
import numpy as np
import pytest

import ssm_jax
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.recurrences import (
    DLR,
    FRU,
    GRU,
    S5,
    SRU,
    GatedLinearAttention,
    SelectiveSSM,
)
from tests.tiers import tiered

PACKAGE = str(pathlib.Path(ssm_jax.__file__).parent)
MOST = 11
# Few steps of few modes, and fewer, are evaluated without a scan.
LENGTH = 1024
FAMILIES = {
    "time_invariant_siso": DLR(d_state=4),
    "time_invariant_siso_bidirectional": DLR(d_state=4, bidirectional=True),
    "time_invariant_mimo": S5(d_state=4, blocks=1),
    "input_dependent": SelectiveSSM(d_state=2),
    "input_dependent_matrix": GatedLinearAttention(n_heads=2),
    "nonlinear": GRU(d_state=3),
    "running_sums": SRU(),
    "running_sums_position": FRU(frequencies=(0.0, 1.0), horizon=LENGTH),
}


def frames_of_scans(monkeypatch, call, *args):
    """The names of the frames from `Recurrent.__call__` on, of each `jax.lax.scan`."""
    scan, found = jax.lax.scan, []

    def recorded(*args, **kwargs):
        stack = traceback.extract_stack()
        names = [f.name for f in stack if f.filename.startswith(PACKAGE)]
        found.append(names[names.index("__call__") :])
        return scan(*args, **kwargs)

    monkeypatch.setattr(jax.lax, "scan", recorded)
    # What another test has traced is not traced again.
    jax.clear_caches()
    jax.eval_shape(call, *args)
    return found


@pytest.mark.parametrize("method", tiered(["auto", "sequential"], full=1))
@pytest.mark.parametrize("packed", tiered({"packed": True, "plain": False}))
@pytest.mark.parametrize(
    "recurrence", tiered(FAMILIES, ("time_invariant_siso", "running_sums"))
)
def test_few_frames_lie_between_a_layer_and_its_scan(
    recurrence, packed, method, monkeypatch, key
):
    layer = Recurrent(recurrence, method)
    x = np.ones((2, LENGTH, 4), np.float32)
    flags = np.broadcast_to(np.arange(LENGTH) == 5, x.shape[:2])
    options = {"reset": flags, "mask": ~flags} if packed else {}
    variables = jax.eval_shape(layer.init, key, x)
    call = functools.partial(layer.apply, **options)
    found = frames_of_scans(monkeypatch, call, variables, x)
    assert found
    for names in found:
        assert len(names) <= MOST, names
