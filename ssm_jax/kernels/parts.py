"""Complex arithmetic on real and imaginary parts.

Pallas has no complex numbers: a kernel reads and writes the parts. `split` and `join`
undo each other also in reverse mode, so that XLA removes both where a product of real
matrices meets a kernel, and no complex array is formed.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, primitives
from jax.interpreters import ad, batching, mlir

from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.kernels.sharding import reshard_like
from ssm_jax.types import Array

Parts = tuple[jax.Array, ...]
"""A complex array as ``(re, im)``, or a real one as ``(x,)``."""


def split(x: Array) -> Parts:
    """Returns the parts of an array."""
    x = jnp.asarray(x)
    return tuple(_split.bind(x)) if jnp.iscomplexobj(x) else (x,)


def join(parts: Parts) -> jax.Array:
    """Returns the array of the parts."""
    return _join.bind(*match_varying_axes(*parts))[0] if len(parts) == 2 else parts[0]


def _linear_primitive(name, function, types, transpose):
    """Returns a primitive of parts with a transpose of its own."""
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(jax.jit(function))
    primitive.def_abstract_eval(types)
    ad.deflinear2(primitive, transpose)
    batching.primitive_batchers[primitive] = partial(_batch, primitive)
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=True))
    return primitive


def _batch(primitive, values, axes):
    pairs = [*zip(values, axes, strict=True)]
    like = next(jnp.moveaxis(x, axis, 0) for x, axis in pairs if axis is not None)
    values = [
        reshard_like(jnp.broadcast_to(x, like.shape), like)
        if axis is None
        else jnp.moveaxis(x, axis, 0)
        for x, axis in pairs
    ]
    results = primitive.bind(*values)
    return results, [0] * len(results)


def _type_of_split(x):
    part, _ = primitives.real_p.abstract_eval(x)
    return part, part


def _type_of_join(re, im):
    whole, _ = primitives.complex_p.abstract_eval(re, im)
    return (whole,)


def _transpose_of_split(cotangents, _):
    re, im = map(ad.instantiate_zeros, cotangents)
    return _join.bind(re, -im)


def _transpose_of_join(cotangents, *_):
    re, im = _split.bind(*map(ad.instantiate_zeros, cotangents))
    return re, -im


# The transposes of `jax.lax.real`, `imag` and `complex` add and negate complex arrays,
# which XLA forms.
_split = _linear_primitive(
    "split_complex",
    lambda x: (jnp.real(x), jnp.imag(x)),
    _type_of_split,
    _transpose_of_split,
)
_join = _linear_primitive(
    "join_complex",
    lambda re, im: (jax.lax.complex(re, im),),
    _type_of_join,
    _transpose_of_join,
)


def conjugate(x: Parts) -> Parts:
    """Returns the complex conjugate."""
    return (x[0], *(-part for part in x[1:]))


def multiply(x: Parts, y: Parts) -> Parts:
    """Returns ``x * y``."""
    if len(x) == 1:
        return tuple(x[0] * part for part in y)
    if len(y) == 1:
        return multiply(y, x)
    (x_re, x_im), (y_re, y_im) = x, y
    return x_re * y_re - x_im * y_im, x_re * y_im + x_im * y_re


def add(x: Parts, y: Parts) -> Parts:
    """Returns ``x + y``, both real or both complex."""
    return tuple(map(jnp.add, x, y))


def zero_unless(condition: Array, x: Parts) -> Parts:
    """Returns ``x`` where the condition holds, else 0."""
    return tuple(jnp.where(condition, part, 0) for part in x)


def multiply_carry(x: Parts, y: Parts) -> Parts:
    """Returns ``x * y``, and 0 where ``y`` is 0, even if ``x`` is not finite."""
    not_zero = y[0] != 0
    if len(y) == 2:
        not_zero |= y[1] != 0
    return zero_unless(not_zero, multiply(x, y))
