"""Reductions of several steps as arrays of a checkpoint."""

import chex
import jax
import numpy as np

from ssm_jax.metrics import R2, Mean
from ssm_jax.training.checkpointing.leaves import named_leaves
from ssm_jax.training.measure import stack_steps, unstack_steps

STEPS = [
    {"loss": Mean(1.0, 2.0), "r2": R2(1.0, 2.0, 3.0, 4.0)},
    {"loss": Mean(5.0, 6.0), "r2": R2(5.0, 6.0, 7.0, 8.0)},
]


def test_reductions_of_each_step_are_found_again():
    arrays = named_leaves(stack_steps(STEPS))
    found = unstack_steps(arrays, STEPS[0])
    chex.assert_trees_all_equal(found, jax.tree.map(np.asarray, STEPS))
    assert unstack_steps({}, STEPS[0]) == []


def test_reductions_with_other_fields_are_left_out():
    arrays = named_leaves(stack_steps(STEPS))
    (name,) = (name for name in arrays if name.endswith("mean") and "r2" in name)
    arrays["r2/total"] = arrays.pop(name)
    assert unstack_steps(arrays, STEPS[0]) == []
