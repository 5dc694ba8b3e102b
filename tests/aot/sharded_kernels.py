"""Compiles gradients through kernels in Pallas within `jax.shard_map`.

    python -m tests.aot.sharded_kernels TARGET

Prints the number of collectives of each program.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from ssm_jax import aot
from ssm_jax.kernels import compiling_for, linear_recurrence, matrix_recurrence
from ssm_jax.recurrences import SelectiveSSM

SELECTIVE = SelectiveSSM()


def of_decay(a, b, reset):
    """The gradient of the states in a decay that all devices share."""

    def loss(a):
        h, last = linear_recurrence(a, b, reset=reset, method="pallas")
        return jnp.sum(h**2) + jnp.sum(last)

    return jax.grad(loss)(a)


def of_params(params, x, reset):
    """The gradient of the selective recurrence in parameters that all share."""

    def loss(params):
        return jnp.sum(SELECTIVE.apply(params, x, reset=reset, method="pallas")[0] ** 2)

    return jax.grad(loss)(params)


def of_rate(rate, q, reset):
    """The gradient of recurrences of matrices in a log decay that all share."""

    def loss(rate):
        x = q.reshape(*q.shape[:2], -1, 128)
        total = 0
        for shape in (x.shape[:3], x.shape):
            log_decay = jnp.broadcast_to(rate, shape)
            beta = jnp.exp(jnp.broadcast_to(rate, x.shape[:3]))
            o, last = matrix_recurrence(
                x, x, x, log_decay, beta, reset=reset, method="pallas"
            )
            total += jnp.sum(o**2) + jnp.sum(last)
        return total

    return jax.grad(loss)(rate)


def main(text):
    """Compiles both for all devices of a target."""
    target = aot.parse_target(text)
    aot.prepare(target)
    devices = aot.topology_devices(target)
    mesh, rows_of = Mesh(np.array(devices), ("data",)), P("data")

    def shape(size, spec=rows_of, dtype: Any = jnp.float32):
        return jax.ShapeDtypeStruct(size, dtype, sharding=NamedSharding(mesh, spec))

    # In one block, the gradient of so many channels would not fit in VMEM.
    rows, length, width = len(devices), 300, 1664
    params = jax.eval_shape(lambda: SELECTIVE.init(jax.random.key(0), width))
    x = shape((rows, length, width))
    reset = shape((rows, length), dtype=jnp.bool_)
    programs = [
        (of_decay, shape((width,), P())),
        (of_params, jax.tree.map(lambda leaf: shape(leaf.shape, P()), params)),
    ]
    if target.device.platform == "tpu":
        programs.append((of_rate, shape((), P())))
    for gradient, shared in programs:
        sharded = jax.shard_map(
            gradient, mesh=mesh, in_specs=(P(), rows_of, rows_of), out_specs=P()
        )
        with compiling_for(target.device.platform):
            compiled: Any = jax.jit(sharded).lower(shared, x, reset).compile()
        found = aot.traffic(compiled.as_text()).collectives
        print(gradient.__name__, [one.kind for one in found])


if __name__ == "__main__":
    main(sys.argv[1])
