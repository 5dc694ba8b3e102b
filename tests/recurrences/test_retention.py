"""Retention: the parallel form of the paper, and odd sizes."""

import jax
import numpy as np

from ssm_jax.kernels.rotary import rotate
from ssm_jax.recurrences import Retention
from tests.bad_inputs import refuses

LENGTH, WIDTH, HEADS = 9, 8, 2
RETENTION = Retention(n_heads=HEADS)


def test_outputs_are_those_of_the_parallel_form(key):
    """Products of rotated queries and keys, decayed by the steps between them."""
    params = RETENTION.init(key, WIDTH)
    x = np.random.default_rng(0).normal(size=(LENGTH, WIDTH)).astype(np.float32)
    y, _ = jax.jit(RETENTION.apply)(params, x)
    q, k, v = (
        np.reshape(np.float64(x) @ params[f"{name}_kernel"], (LENGTH, HEADS, -1))
        for name in ("query", "key", "value")
    )
    q, k = (np.float64(rotate(np.float32(part))) for part in (q, k))
    between = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
    gamma = 1 - 2.0 ** (-5 - np.arange(HEADS))
    decays = np.where(between >= 0, gamma[:, None, None] ** np.abs(between), 0)
    expected = np.einsum("ihk,jhk,hij,jhv->ihv", q, k, decays, v) / 2
    np.testing.assert_allclose(y, expected.reshape(LENGTH, -1), atol=1e-5)


def test_keys_of_odd_size_are_refused(key):
    with refuses("d_key", 3, rule="even"):
        Retention(d_key=3)
    with refuses("d_key", 3, rule="even"):
        RETENTION.init(key, 6)
    with refuses("n_heads", 2, rule="7"):
        RETENTION.init(key, 7)
