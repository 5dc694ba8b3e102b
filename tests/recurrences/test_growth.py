"""Convolution by FFT for decays that may exceed 1, and for others."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ssm_jax.kernels import LogDecay
from ssm_jax.recurrences import SISOModes, TimeInvariant
from tests.recurrences.table import ROWS
from tests.tiers import tiered

LENGTH, WIDTH = 64, 2
RNG = np.random.default_rng(0)
X, C = RNG.normal(size=(2, 1, LENGTH, WIDTH)).astype(np.float32)


@dataclass(frozen=True)
class Free(TimeInvariant):
    """Modes of any modulus; the backward direction has its own modes."""

    bidirectional: bool = False

    def init(self, key, d_in):
        del key
        shape = d_in, 2
        names = ("log_abs", "phase", "w", "log_abs_backward", "w_backward")
        return {name: jnp.ones(shape) for name in names}

    def modes(self, params):
        w, zeros = params["w"], jnp.zeros(len(params["w"]))
        modes = SISOModes(LogDecay(params["log_abs"], params["phase"]), w, zeros)
        if not self.bidirectional:
            return modes
        behind = LogDecay(params["log_abs_backward"], params["phase"])
        back = params["w_backward"]
        return modes._replace(w_backward=back, log_decay_backward=behind)

    def groups(self):
        return {}


def params_of(growth):
    drawn = RNG.normal(size=(2, WIDTH, 2)).astype(np.float32)
    log_abs = np.log(np.float32([[growth, 0.9], [0.5, 1.0]]))
    return {
        "log_abs": log_abs,
        "phase": np.abs(drawn[0]),
        "w": drawn[1],
        "log_abs_backward": log_abs[::-1],
        "w_backward": drawn[0],
    }


def evaluate(free, method):
    @jax.jit
    def run(params, x):
        def loss(params, x):
            y, last = free.apply(params, x, method=method)
            return jnp.sum(C * y), (y, last)

        grads, out = jax.grad(loss, (0, 1), has_aux=True)(params, x)
        return out, grads

    return run


def defined(params, x, bidirectional):
    """The outputs in float64, from the taps of the kernels."""
    params = {name: np.float64(value) for name, value in params.items()}

    def convolved(x, log_abs, w):
        lam = np.exp(log_abs + 1j * params["phase"])
        taps = [np.real(np.sum(w * lam**lag, -1)) for lag in range(LENGTH)]
        pairs = ((t, s) for t in range(LENGTH) for s in range(t + 1))
        y = np.zeros_like(x)
        for t, s in pairs:
            y[:, t] += taps[t - s] * x[:, s]
        return y

    x = np.float64(x)
    y = convolved(x, params["log_abs"], params["w"])
    if bidirectional:
        back = params["log_abs_backward"], params["w_backward"]
        later = convolved(x[:, ::-1], *back)[:, ::-1]
        y[:, :-1] += later[:, 1:]
    return y


@pytest.mark.full
@pytest.mark.parametrize("bidirectional", tiered([False, True], (True,), full=(True,)))
def test_fft_of_growing_modes_equals_the_definition(bidirectional):
    free = Free(bidirectional)
    fft, by_states = evaluate(free, "fft"), evaluate(free, "sequential")
    for growth in (1.1, 2.0, 0.7):
        params = params_of(growth)
        (y, last), grads = fft(params, X)
        expected = defined(params, X, bidirectional)
        scale = np.maximum.accumulate(np.abs(expected), 1)
        if bidirectional:
            scale = np.maximum(scale, np.maximum.accumulate(scale[:, ::-1], 1)[:, ::-1])
        if growth < 1:
            # By the FFT itself, whose errors at all steps are those of the largest.
            scale = np.max(scale)
        assert np.max(np.abs(y - expected) / scale) < 5e-6
        if bidirectional:
            continue
        (_, last_wanted), grads_wanted = by_states(params, X)
        for given, other in zip(
            jax.tree.leaves((last, grads)),
            jax.tree.leaves((last_wanted, grads_wanted)),
            strict=True,
        ):
            atol = 1e-4 * np.max(np.abs(other))
            np.testing.assert_allclose(given, other, rtol=0, atol=atol)


@pytest.mark.full
def test_rows_of_vmap_that_grow_spoil_no_gradient():
    # Both branches are evaluated; the unused one is infinite for 40**64.
    many = [params_of(growth) for growth in (0.5, 40.0)]
    both = jax.tree.map(lambda *leaves: np.stack(leaves), *many)
    run = evaluate(Free(), "fft")
    small = np.where(np.arange(LENGTH)[:, None] < 4, X, 0)
    _, (of_params, of_x) = jax.vmap(run, in_axes=(0, None))(both, small)
    _, (alone, of_x_alone) = run(many[0], small)
    for name, expected in alone.items():
        np.testing.assert_allclose(of_params[name][0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(of_x[0], of_x_alone, rtol=1e-4, atol=1e-4)


BOUNDED = {
    type(row.recurrence): (name, row.recurrence)
    for name, row in ROWS.items()
    if isinstance(row.recurrence, TimeInvariant) and row.recurrence.bounded_decay
}


@pytest.mark.parametrize(
    "name", tiered([name for name, _ in BOUNDED.values()], 2, full=4)
)
def test_bounded_decays_are_bounded_for_all_parameters(name):
    recurrence = ROWS[name].recurrence

    @jax.jit
    def largest(key):
        params = recurrence.init(key, WIDTH)
        leaves, tree = jax.tree.flatten(params)
        keys = jax.random.split(key, len(leaves))
        moved = [
            leaf + 20 * jax.random.normal(k, leaf.shape)
            for leaf, k in zip(leaves, keys, strict=True)
        ]
        return jnp.nanmax(recurrence.modes(tree.unflatten(moved)).log_decay.log_abs)

    assert max(float(largest(jax.random.key(seed))) for seed in range(20)) <= 1e-6
