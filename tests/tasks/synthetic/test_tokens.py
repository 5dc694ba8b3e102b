"""What all endless tasks on tokens promise: one kind of rows at every length."""

import dataclasses

import numpy as np
import pytest

from ssm_jax import tasks

TASKS = {
    "associative_recall": tasks.AssociativeRecall(filler="random"),
    "copying": tasks.Copying(shortest=3, longest=None),
    "group_words": tasks.GroupWords(group="S5", bos=True),
    "induction_heads": tasks.InductionHeads(),
    "modular_sums": tasks.ModularSums(),
    "needle": tasks.NeedleInHaystack(),
    "parity": tasks.Parity(shortest=2, last_only=True),
    "selective_copying": tasks.SelectiveCopying(),
}


@pytest.mark.parametrize("name", TASKS)
def test_rows_of_another_length_have_the_same_tokens_and_classes(name):
    task = TASKS[name]
    longer = dataclasses.replace(task, length=2 * task.length + 1)
    assert longer.spec.length == 2 * task.length + 1
    assert longer.chance == task.chance or name == "copying"
    each_step = task.spec.l_output == task.spec.length
    l_output = longer.spec.length if each_step else task.spec.l_output
    expected = {"length": longer.spec.length, "l_output": l_output}
    assert dataclasses.replace(task.spec, **expected) == longer.spec


@pytest.mark.full
@pytest.mark.parametrize("name", TASKS)
def test_rows_may_have_a_million_steps(name):
    task = dataclasses.replace(TASKS[name], length=2**20)
    batch = task.batch("test", 0, 1, seed=0)
    assert batch.inputs.shape == (1, 2**20)
    assert batch.inputs.min() >= 0 and batch.inputs.max() < task.spec.d_input
    assert np.asarray(batch.targets[batch.loss_mask]).max() < task.spec.d_output


@pytest.mark.parametrize("name", TASKS)
def test_chance_is_a_probability(name):
    assert 0 < TASKS[name].chance < 1
