"""Valid steps are left-aligned, and outputs are scattered back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.recurrences.families.padding import left_align, scatter_back

X = np.arange(1.0, 13, dtype=np.float32).reshape(2, 6, 1)
MASK = np.array([[0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1]], bool)
RESET = np.array([[1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 1]], bool)


def test_data_come_first_in_their_order():
    x, reset, lengths, places = left_align(X, None, MASK)
    assert reset is None
    np.testing.assert_array_equal(
        x[..., 0], [[2, 4, 5, 0, 0, 0], [7, 8, 9, 10, 11, 12]]
    )
    np.testing.assert_array_equal(lengths, [3, 6])
    np.testing.assert_array_equal(places, [[3, 0, 4, 1, 2, 5], range(6)])


def test_start_on_padding_passes_to_the_next_data():
    _, reset, _, _ = left_align(X, RESET, MASK)
    # Resets before steps 1 and 3; the one at step 5 has no valid steps after it.
    np.testing.assert_array_equal(reset[0, :3], [1, 1, 0])
    np.testing.assert_array_equal(reset[1], RESET[1])


def test_without_a_mask_nothing_moves():
    x, reset, lengths, places = left_align(X, RESET, None)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(reset, RESET)
    assert lengths is None
    assert places is None
    assert scatter_back(X, None, None) is X


def test_spread_is_the_way_back():
    x, _, _, places = left_align(X, None, MASK)
    y = scatter_back(x, MASK, places)
    np.testing.assert_array_equal(y, np.where(MASK[..., None], X, 0))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_padding_may_hold_anything(value):
    filled = np.where(MASK[..., None], X, np.float32(value))

    @jax.jit
    def there_and_back(x):
        x, _, _, places = left_align(x, None, MASK)
        # Outputs of the zeros after the valid steps are dropped too.
        return scatter_back(jnp.where(x == 0, value, x), MASK, places)

    np.testing.assert_array_equal(
        there_and_back(filled), np.where(MASK[..., None], X, 0)
    )
    grad = jax.jit(jax.grad(lambda x: jnp.sum(there_and_back(x))))(filled)
    np.testing.assert_array_equal(grad[..., 0], MASK)


@pytest.mark.full
def test_batch_axes_are_any_number():
    one = left_align(X[0], RESET[0], MASK[0])
    many = left_align(X[None], RESET[None], MASK[None])
    for single, several in zip(one, many, strict=True):
        np.testing.assert_array_equal(single, several[0, 0])
