"""Elementwise functions and products that keep their digits in float32.

Each is finite, in value and derivative, for all arguments that parameters can reach.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels import parts
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.axes import by_rows
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.kernels.sharding import gather_explicit
from ssm_jax.types import Array, Complex, Float, Inexact, PyTree

MAX_EXPONENT = 30.0
"""Upper bound of the exponents of decay rates, steps, phases and gains.

``exp(30)``, about 1e13, is far beyond the use of any of them, and a product of two such
numbers, a length of ``2**24`` and its square is still a float32, so that no gradient is
infinity times zero.
"""


def in_float32(params: PyTree) -> Any:
    """Parameters in the dtype that decays and states are computed in.

    Rounded to bfloat16 a decay of 0.999 would be 1. Those that are sharded over
    explicit axes of a mesh are gathered.

    Args:
      params: Floating-point arrays of any dtypes.

    Returns:
      The same numbers in one dtype: float32, or float64 where one of them is.

    Raises:
      ValueError: A parameter is not a real floating-point array.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        check_floating(f"params{jax.tree_util.keystr(path)}", leaf)
    dtype = common_dtype(jnp.float32, *jax.tree.leaves(params))
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)
    return gather_explicit(params)


def bounded_exp(
    exponent: Float[Array, "*n"], *, lower: float | None = None
) -> Float[Array, "*n"]:
    """``exp(min(exponent, MAX_EXPONENT))``; the gradient beyond the bound is 0.

    Args:
      exponent: ``(*n,)``; up to the bound the value is that of ``exp``, bit for bit.
      lower: Lower bound of the exponent. None: there is none.

    Returns:
      ``(*n,)``, at most ``exp(30)``.
    """
    return jnp.exp(jnp.clip(exponent, lower, MAX_EXPONENT))


@jax.custom_jvp
def sigmoid(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The logistic sigmoid with a derivative that is accurate where it is near 1.

    The value is that of `jax.nn.sigmoid`, bit for bit. Its derivative there, ``y (1 -
    y)``, loses all digits of ``1 - y`` to rounding (1.5 % at ``x = 12``); here it is
    ``sigmoid(x) sigmoid(-x)``.

    Args:
      x: ``(*n,)``.

    Returns:
      ``(*n,)``, in [0, 1].
    """
    return jax.nn.sigmoid(x)


sigmoid.defjvps(lambda x_dot, y, x: x_dot * (y * sigmoid(-x)))


def power_of_two(z: Complex[Array, "*n"]) -> Float[Array, "*n"]:
    """A scale that makes large complex numbers small enough to be squared.

    Args:
      z: ``(*n,)``.

    Returns:
      ``(*n,)``: where ``|z|`` is more than ``2**15`` a power of two near it, else 1,
      so that division by it is exact and numbers of ordinary size stay as they are. It
      has no derivative: what is scaled must be scaled back.
    """
    size = jnp.maximum(jnp.abs(jnp.real(z)), jnp.abs(jnp.imag(z)))
    exponent_bits = jnp.finfo(size.dtype).nexp
    power = jax.lax.reduce_precision(size, exponent_bits, 0)
    return jax.lax.stop_gradient(jnp.where(size > 2.0**15, power, 1))


def scale(
    z: Complex[Array, "*#n"], factor: Float[Array, "*#n"]
) -> Complex[Array, "*n"]:
    """``z factor`` by real products: a complex one would form infinity times zero.

    Args:
      z: ``(*n,)``.
      factor: ``(*n,)``; both broadcast.

    Returns:
      ``(*n,)``.
    """
    return jax.lax.complex(jnp.real(z) * factor, jnp.imag(z) * factor)


def divide(
    x: Complex[Array, "*#n"] | Float[Array, "*#n"] | float, z: Complex[Array, "*#n"]
) -> Complex[Array, "*n"]:
    """``x / z`` also where ``|z|**2``, which the division forms, would overflow.

    Args:
      x: ``(*n,)``.
      z: ``(*n,)``, not 0.

    Returns:
      ``(*n,)``; where ``|z|`` is less than ``2**15`` that of ``x / z``, bit for bit.
    """
    if not isinstance(x, float | int):
        x = x.astype(z.dtype)
    factor = 1 / power_of_two(z)
    return scale(x / scale(z, factor), factor)


def einsum_f32(formula: str, *arrays: Array) -> jax.Array:
    """Returns `jax.numpy.einsum` in full float32, on GPUs and TPUs too.

    They multiply matrices of float32 in lower precision by default.

    Args:
      formula: Its subscripts.
      *arrays: Its operands.

    Example:
      >>> print(einsum_f32("nd,n->d", jnp.ones((3, 2)), jnp.arange(3.0)))
      [3. 3.]
    """
    return jnp.einsum(formula, *arrays, precision="highest")


def matmul_f32(
    x: Float[Array, "*b d"], kernel: Float[Array, "d n"] | Float[Array, " d"]
) -> Float[jax.Array, "*b n"] | Float[jax.Array, "*b"]:
    """The matrix product in full float32, on GPUs and TPUs too.

    Args:
      x: ``(*b, d)``.
      kernel: A matrix, ``(d, n)``, or a vector, ``(d,)``.
    """

    def product(x):
        return jnp.matmul(x, kernel, precision="highest")

    return product(x) if kernel.ndim == 1 else by_rows(product, x)


def affine_f32(
    x: Float[Array, "*b d"], kernel: Float[Array, "d n"], bias: Float[Array, " n"]
) -> Float[Array, "*b n"]:
    """Returns ``x W + b`` in full float32, on GPUs and TPUs too.

    Args:
      x: ``(*b, d)``.
      kernel: ``W``, ``(d, n)``.
      bias: ``b``, ``(n,)``.
    """
    y = matmul_f32(x, kernel)
    return y + promoted_like(bias, y)


def project_in(
    x: Float[Array, "*b d"], B: Complex[Array, "n d"]
) -> Complex[Array, "*b n"]:
    """Returns the inputs of the modes, ``sum_d B_nd x_d``.

    Args:
      x: Input, ``(*b, d)``, real.
      B: Input projection, ``(n, d)``.
    """
    # Two real products cost half of a complex one.
    return parts.join(tuple(matmul_f32(x, part.T) for part in parts.split(B)))


def read_out(
    h: Inexact[Array, "*b n"], w: Inexact[Array, "o n"] | Inexact[Array, " n"]
) -> Float[Array, "*b o"] | Float[Array, "*b"]:
    """Returns ``Re sum_n w_n h_n``.

    Args:
      h: States, ``(*b, n)``; complex if ``w`` is.
      w: Weights of the modes, ``(o, n)`` or ``(n,)``.
    """
    # Two real products: the imaginary part of the sum is never computed.
    re, *im = (
        matmul_f32(part, weights.T)
        for part, weights in zip(parts.split(h), parts.split(w), strict=False)
    )
    return re - im[0] if im else re
