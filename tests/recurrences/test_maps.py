"""Every recurrence on several devices, with the methods selected on accelerators."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding

from tests.recurrences.cases import problem, rows
from tests.tiers import tiered

pytestmark = pytest.mark.full  # Two devices.

N_DEVICES = 2
LENGTH = 17  # A convolution, where one is chosen at all.
RESET = np.zeros((N_DEVICES, LENGTH), bool)
RESET[1, 5] = True


@pytest.fixture(autouse=True)
def on_accelerators(monkeypatch):
    """Makes ``method="auto"`` select the methods of GPUs and TPUs."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


# One of each evaluation; the others share it.
_MAPPED = ("dlr", "selective", "gru")


def pmapped(step):
    """Maps over shards of the rows with `jax.pmap`; parameters are replicated."""
    return jax.pmap(step, axis_name="data", in_axes=(None, 0, 0, 0), out_axes=None)


def shard_mapped(step, axis_type):
    """The same with `jax.shard_map`, which checks varying axes."""
    mesh = jax.make_mesh((N_DEVICES,), ("data",), axis_types=(axis_type,))
    same, rows = jax.P(), jax.P("data")

    def of_device(params, x, c, reset):
        return step(params, x[0], c[0], None if reset is None else reset[0])

    mapped = jax.shard_map(
        of_device,
        mesh=mesh,
        in_specs=(same, rows, rows, rows),
        out_specs=same,
        check_vma=True,
    )

    def run(params, *arrays):
        sharded = jax.device_put(arrays, NamedSharding(mesh, rows))
        return jax.jit(mapped)(params, *sharded)

    return run


@functools.cache
def problem_and_gradient(row):
    """Resets where no convolution is lost by them, and what one device gives."""
    p = problem(row, LENGTH)
    reset = None if "fft" in row.methods else RESET
    expected = jax.value_and_grad(functools.partial(loss, row, method="sequential"))
    return p, reset, jax.jit(expected)(p.params, p.x, p.weights[0], reset)


def loss(row, params, x, c, reset, *, method):
    y, _ = row.recurrence.apply(params, x, reset=reset, method=method)
    return jnp.sum(c * y)


def check(row, mapped, reduce):
    p, reset, expected = problem_and_gradient(row)

    def step(params, x, c, reset):
        def total(params):
            value = loss(row, params, x, c, reset, method="auto")
            return jax.lax.psum(value, "data")

        value, of_params = jax.value_and_grad(total)(params)
        return value, reduce(of_params)

    of_devices = jax.tree.map(lambda v: v[:, None], (p.x, p.weights[0], reset))
    given = mapped(step)(p.params, *of_devices)
    chex.assert_trees_all_close(given, expected, rtol=1e-4, atol=1e-4)


@rows(full=("dlr",))
def test_pmap_gives_the_gradient_of_one_device(row):
    check(row, pmapped, lambda grads: jax.lax.pmean(grads, "data"))


@pytest.mark.parametrize(
    "axis_type", tiered([AxisType.Explicit, AxisType.Auto], 0, full=1), ids=str
)
@rows(brief=True, full=_MAPPED)
def test_shard_map_gives_the_gradient_of_one_device(row, axis_type):
    """Which adds up the gradient of what does not vary over the devices itself."""
    mapped = functools.partial(shard_mapped, axis_type=axis_type)
    check(row, mapped, lambda grads: grads)
