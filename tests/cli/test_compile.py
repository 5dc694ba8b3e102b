"""What ``--max_batch`` and ``--max_layers`` say of what they found."""

import pytest

from ssm_jax.cli.compile import deepest_text, largest_text


@pytest.mark.parametrize(
    ("largest", "n_train", "said"),
    [
        (1432, 1437, "1,432, 179 on each device, as many as the 1,437 examples"),
        (96, 1437, "largest batch that fits: 96, 12 on each device; 1 were"),
        (96, None, "largest batch that fits: 96, 12 on each device; 1 were"),
        (None, 1437, "no batch fits, not even one of 8"),
        (None, 7, "the 7 examples of the train split are fewer than one of 8"),
    ],
)
def test_largest_batch_is_told_with_what_limits_it(largest, n_train, said):
    found = {"batch_size": largest, "unit": 8, "n_train": n_train, "tried": {8: 1}}
    record = {"devices_per_sequence": 1, "n_devices": 8, "max_batch": found}
    assert said in largest_text(record)


@pytest.mark.parametrize(
    ("n_layers", "said"),
    [
        (8, "most layers that fit: 8, 1,000 parameters, with 2.50 bytes per parameter"),
        (None, "no model fits, not even one of 1 layer"),
    ],
)
def test_most_layers_are_told_with_their_bytes(n_layers, said):
    tried = {8: {"parameters": 1000, "memory_bytes": 2500}}
    found = {"n_layers": n_layers, "tried": tried}
    assert said in deepest_text({"max_layers": found})
