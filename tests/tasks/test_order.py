"""The order of examples: epochs, seeds and the padding of the last batch."""

import chex
import numpy as np
import pytest

from ssm_jax.tasks import order


def test_train_examples_dropped_for_a_partial_batch_differ_between_epochs():
    epochs = [
        [order.shuffled_indices(10, "train", 3 * e + i, 3, seed=0)[0] for i in range(3)]
        for e in range(40)
    ]
    for epoch in epochs:
        assert len(set(np.concatenate(epoch).tolist())) == 9
    assert set(np.ravel([epoch for epoch in epochs]).tolist()) == set(range(10))
    dropped = {45 - int(np.sum(epoch)) for epoch in epochs}
    assert len(dropped) > 1


def test_train_order_depends_on_seed_and_epoch_not_on_batch_size():
    whole, _ = order.shuffled_indices(12, "train", 5, 12, seed=7)
    parts = [
        order.shuffled_indices(12, "train", 5 * 3 + i, 4, seed=7)[0] for i in range(3)
    ]
    chex.assert_trees_all_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_last_evaluation_batch_is_padded_with_masked_rows(split):
    rows, loss_mask = order.shuffled_indices(10, split, 2, 4, seed=0)
    chex.assert_trees_all_equal(rows, np.array([8, 9, 9, 9]))
    chex.assert_trees_all_equal(loss_mask, np.array([True, True, False, False]))


def test_long_shuffled_training_draws_an_order_once_an_epoch():
    order._order.cache_clear()
    for index in range(5):
        order.shuffled_indices(12, "train", index, 4, seed=0)
    assert order._order.cache_info().misses == 2
