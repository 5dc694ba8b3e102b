"""Tests of `RecurrentNetwork`."""

import jax
import numpy as np
import pytest
from flax.core import meta

from ssm_jax.layers import Recurrent
from ssm_jax.models import LastHead, PooledHead, RecurrentNetwork, StepHead
from ssm_jax.recurrences import SRU
from tests.tiers import tiered

UNIT = SRU(d_statistic=3, d_feedback=2, d_output=4)
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [1] * 5, [0] * 5], bool)


@pytest.mark.parametrize("mask", tiered({"mask": MASK, "all": None}, full=1))
@pytest.mark.parametrize(
    "head",
    tiered({"last": LastHead(3), "pooled": PooledHead(3), "step": StepHead(3)}, 0),
)
def test_head_predicts_from_the_outputs(head, mask, key):
    x = jax.random.normal(key, (4, 5, 2))
    model = RecurrentNetwork(UNIT, head)
    variables = meta.unbox(model.init(key, x))
    params = variables["params"]
    y, wanted_state = Recurrent(UNIT).apply(
        {"params": params["recurrent"]}, x, mask=mask
    )
    expected = head.apply({"params": params["head"]}, y, mask=mask)
    given, state = model.apply(variables, x, mask=mask)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(state, wanted_state, rtol=0, atol=1e-6)


@pytest.mark.full
def test_unused_outputs_are_not_computed(key):
    """The program has an output for each row, not for each of its 5 steps."""
    x = jax.random.normal(key, (4, 5, 2))

    def program(head):
        model = RecurrentNetwork(UNIT, head)
        variables = jax.eval_shape(model.init, key, x)
        return str(jax.make_jaxpr(model.apply)(variables, x))

    assert "f32[4,5,4]" in program(StepHead(3))
    assert "f32[4,5,4]" not in program(LastHead(3))
