"""Real and imaginary parts, split and joined as by JAX in value and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ssm_jax.kernels import parts
from tests.compilation import strict_promotion

Z = jax.lax.complex(*jax.random.normal(jax.random.key(0), (2, 4, 5, 3)))


def by_parts(z):
    re, im = parts.split(z)
    return parts.join((2 * re + im, im * re))


def by_jax(z):
    return jax.lax.complex(2 * z.real + z.imag, z.imag * z.real)


def cubes(function):
    return lambda z: jnp.sum(jnp.abs(function(z)) ** 3)


def second_derivative(function):
    return lambda z: jax.jvp(jax.grad(cubes(function)), (z,), (1j * z,))[1]


PROGRAMS = {
    "value": lambda function: function,
    "gradient": lambda function: jax.grad(cubes(function)),
    "tangent": lambda function: lambda z: jax.jvp(function, (z,), (1j * z,))[1],
    "second": second_derivative,
    "vmap": lambda function: jax.vmap(jax.vmap(function, 1, 0)),
    "gradients": lambda function: jax.vmap(jax.grad(cubes(function)), 2, 1),
    "checkpoint": lambda function: jax.grad(cubes(jax.checkpoint(function))),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_parts_are_those_of_jax(program):
    of = PROGRAMS[program]
    with strict_promotion():
        found = [of(by_parts)(Z), jax.jit(of(by_parts))(Z)]
    for values in found:
        np.testing.assert_allclose(values, of(by_jax)(Z), rtol=2e-5)


def test_gradient_of_one_part_is_that_of_jax():
    found = jax.grad(lambda z: jnp.sum(parts.split(z)[1] ** 2))(Z)
    np.testing.assert_allclose(found, -2j * Z.imag, rtol=1e-6)


def test_parts_of_which_one_is_mapped_are_those_of_jax():
    found = jax.vmap(lambda re: parts.join((re, Z[0].imag)))(Z.real)
    np.testing.assert_array_equal(found, Z.real + 1j * Z[0].imag)


@pytest.mark.full
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_sharded_parts_are_those_of_one_device(kind):
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(kind,))
    spec = PartitionSpec("rows")
    with jax.set_mesh(mesh):
        z = jax.device_put(Z, NamedSharding(mesh, spec))
        mapped = jax.shard_map(by_parts, in_specs=spec, out_specs=spec)
        for function in (by_parts, mapped):
            for program in ("value", "gradient"):
                found = jax.jit(PROGRAMS[program](function))(z)
                expected = PROGRAMS[program](by_jax)(Z)
                np.testing.assert_allclose(found, expected, rtol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("axes", [(None, 0), (0, None)])
def test_one_of_sharded_parts_may_be_mapped(axes):
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Explicit,))

    def gradients(join, re, im):
        def loss(re, im):
            return jnp.sum(jnp.abs(jax.vmap(join, axes)(re, im)) ** 2)

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(re, im)

    with jax.set_mesh(mesh):
        sharding = NamedSharding(mesh, PartitionSpec("rows"))
        values = [
            Z[0, 0].real if axis is None else jax.device_put(Z[:, 0].imag, sharding)
            for axis in axes
        ]
        expected = gradients(jax.lax.complex, *values)
        found = gradients(lambda *values: parts.join(values), *values)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
        assert jax.typeof(x) == jax.typeof(y)


@pytest.mark.full
def test_a_part_may_be_equal_on_all_devices():
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("rows")

    def join(re, im):
        def loss(re, im):
            return jnp.sum(jnp.abs(parts.join((re, im))) ** 2)

        return jax.grad(loss, argnums=(0, 1))(re, im)

    mapped = jax.shard_map(
        join,
        mesh=mesh,
        in_specs=(spec, PartitionSpec()),
        out_specs=(spec, PartitionSpec()),
    )
    of_re, of_im = mapped(Z.real, Z[:1].imag)
    np.testing.assert_allclose(of_re, 2 * Z.real, rtol=1e-5)
    np.testing.assert_allclose(of_im, 8 * Z[:1].imag, rtol=1e-5)
