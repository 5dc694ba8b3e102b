"""What several recurrences do with their parameters: checks, draws, bounded maps."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_size
from ssm_jax.kernels.arguments import check_floating, is_array
from ssm_jax.types import Array, Complex, Float, PRNGKey, PyTree


def in_float32(params: PyTree) -> Any:
    """Parameters in the dtype that decays and states are computed in.

    Rounded to bfloat16 a decay of 0.999 would be 1.

    Args:
      params: Floating-point arrays of any dtypes.

    Returns:
      The same numbers in one dtype: float32, or float64 where one of them is.

    Raises:
      ValueError: A parameter is not a real floating-point array.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        check_floating(f"params{jax.tree_util.keystr(path)}", leaf)
    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)


def check_draw(key: PRNGKey, d_in: int) -> None:
    """Checks what parameters are drawn from and for.

    Args:
      key: A key of `jax.random`, typed or raw.
      d_in: Width of the inputs.

    Raises:
      ValueError: ``key`` is no key, or ``d_in`` no positive integer.
    """
    if not is_array(key) or not (
        jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32
    ):
        raise ValueError(
            f"`key` must be a key of jax.random, got {key!r}; `jax.random.key(0)` "
            "makes one."
        )
    check_size("d_in", d_in)


MAX_EXPONENT = 30.0
"""Upper bound of the exponents of decay rates, steps, phases and gains.

``exp(30)``, about 1e13, is far beyond the use of any of them, and a product of two such
numbers, a length of ``2**24`` and its square is still a float32, so that no gradient is
infinity times zero.
"""


def validate_dt_range(dt_min: float, dt_max: float, consequence: str) -> None:
    """Checks the bounds of a step size, which is drawn log-uniformly between them.

    Args:
      dt_min: Least step at the start.
      dt_max: Greatest step at the start.
      consequence: What equal bounds give, for the message.

    Raises:
      ValueError: ``dt_min`` is not positive or exceeds ``dt_max``.
    """
    if not 0 < dt_min <= dt_max:
        raise ValueError(
            f"`dt_min` must be in (0, dt_max], got {dt_min} with dt_max {dt_max}; "
            f"equal values give {consequence}."
        )


def validate_even_state(d_state: int) -> None:
    """Checks the number of states that come in conjugate pairs.

    Args:
      d_state: The number.

    Raises:
      ValueError: It is odd or not positive.
    """
    if d_state < 2 or d_state % 2:
        raise ValueError(
            f"`d_state` must be even and positive, got {d_state}; states come in "
            "conjugate pairs, the published size is 64."
        )


def log_uniform(
    key: PRNGKey, shape: tuple[int, ...], minimum: float, maximum: float
) -> Float[jax.Array, "..."]:
    """Logarithms of numbers whose logarithm is uniform in ``[least, greatest]``.

    Args:
      key: Where the randomness comes from.
      shape: Shape of the result.
      least: Least number, positive.
      greatest: Greatest number.

    Returns:
      The logarithms, float32.
    """
    low, high = math.log(minimum), math.log(maximum)
    return jax.random.uniform(key, shape, minval=low, maxval=high)


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
    scale = jax.lax.reduce_precision(size, exponent_bits, 0)
    return jax.lax.stop_gradient(jnp.where(size > 2.0**15, scale, 1))


def scaled(z: Complex[Array, "*n"], factor: Float[Array, "*n"]) -> Complex[Array, "*n"]:
    """``z factor`` by real products: a complex one would form infinity times zero.

    Args:
      z: ``(*n,)``.
      factor: ``(*n,)``.

    Returns:
      ``(*n,)``.
    """
    return jax.lax.complex(jnp.real(z) * factor, jnp.imag(z) * factor)


def divided(
    one: Complex[Array, "*#n"] | Float[Array, "*#n"] | float, z: Complex[Array, "*#n"]
) -> Complex[Array, "*n"]:
    """``one / z`` also where ``|z|**2``, which the division forms, would overflow.

    Args:
      one: ``(*n,)``.
      z: ``(*n,)``, not 0.

    Returns:
      ``(*n,)``; where ``|z|`` is less than ``2**15`` that of ``one / z``, bit for bit.
    """
    factor = 1 / power_of_two(z)
    return scaled(one / scaled(z, factor), factor)


def split_complex(name: str, values: Complex[Array, "..."]) -> dict[str, Array]:
    """Complex numbers as two parameters, ``name_re`` and ``name_im``."""
    return {f"{name}_re": jnp.real(values), f"{name}_im": jnp.imag(values)}


def join_complex(params: Mapping[str, Array], name: str) -> Complex[Array, "..."]:
    """The complex numbers that `split_complex` split."""
    return jax.lax.complex(params[f"{name}_re"], params[f"{name}_im"])


def matmul_f32(
    x: Float[Array, "... d"], kernel: Float[Array, "d n"]
) -> Float[Array, "... n"]:
    """The matrix product in full float32, on GPUs and TPUs too."""
    return jnp.matmul(x, kernel, precision="highest")
