"""What ``--max_batch`` says of the batch that it found."""

import pytest

from ssm_jax.cli.compile import largest_text


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
