"""SGConv: scales, initialization, sizes and the norm that is not trained."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ssm_jax.recurrences import SGConv
from ssm_jax.training import Optimizer

SCALES = {
    "shorter": (3, 1),
    "one": (8, 1),
    "two": (9, 2),
    "full": (16, 2),
    "three": (24, 3),
    "published": (64, 4),
}


@pytest.mark.parametrize(("length", "n_scales"), SCALES.values(), ids=SCALES)
def test_scales_are_as_many_as_the_length_needs(length, n_scales, key):
    sgconv = SGConv(d_state=8, length=length)
    params = jax.eval_shape(lambda: sgconv.init(key, 2))
    assert params["kernel"].shape == (n_scales, 2, 8)
    taps = 8 * 2 ** (n_scales - 1)
    assert taps >= length > (taps // 2 if n_scales > 1 else 0)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_number_of_parameters(bidirectional, key):
    sgconv = SGConv(length=16384, decay=1.0, bidirectional=bidirectional)
    params = jax.eval_shape(lambda: sgconv.init(key, 32))
    # Three scales of 4,096 and a norm per channel and direction, and the feedthrough.
    expected = (1 + bidirectional) * (3 * 4096 + 1) * 32 + 32
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected


def test_kernel_starts_normal_with_norm_one(key):
    sgconv = SGConv(d_state=64, length=256, bidirectional=True)
    params = sgconv.init(key, 16)
    for suffix in ("", "_backward"):
        std = np.std(params[f"kernel{suffix}"])
        np.testing.assert_allclose(std, 1 / 64, rtol=0.05)
    kernels = sgconv.kernels(params, 256)
    for kernel in (kernels.forward, kernels.backward):
        norms = np.linalg.norm(np.float64(kernel), axis=-1)
        np.testing.assert_allclose(norms, 1, rtol=1e-6)
    assert not np.allclose(kernels.forward, kernels.backward)


def test_first_taps_of_a_longer_kernel_are_those_of_a_shorter(key):
    sgconv = SGConv(d_state=4, length=30)
    params = sgconv.init(key, 2)
    whole = sgconv.kernels(params, 100).forward
    assert whole.shape == (2, 30)
    for length in (1, 4, 5, 17):
        short = sgconv.kernels(params, length).forward
        np.testing.assert_allclose(short, whole[:, :length], rtol=1e-6)


@pytest.mark.full
def test_optimizer_leaves_the_initial_norm(key):
    sgconv = SGConv(d_state=4, length=16)
    params = sgconv.init(key, 2)
    groups = dict.fromkeys(params) | dict(sgconv.groups())
    transform = Optimizer(learning_rate=0.1, weight_decay=0.1).transform(
        {name: group or type(groups["kernel"])() for name, group in groups.items()}
    )
    grads = jax.tree.map(jnp.ones_like, params)
    updates, _ = transform.update(grads, transform.init(params), params)
    moved = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(moved["initial_norm"], params["initial_norm"])
    assert np.all(moved["kernel"] != params["kernel"])
