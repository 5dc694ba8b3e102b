"""Initial values of parameters, and the maps from parameters to decays."""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from ssm_jax.kernels.precision import sigmoid
from ssm_jax.types import Array, Complex, Float, PRNGKey


def validate_dt_range(dt_min: float, dt_max: float, consequence: str) -> None:
    """Validates the bounds of a log-uniform initialization of step sizes.

    Args:
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      consequence: Effect of equal bounds, for the error message.

    Raises:
      ValueError: ``dt_min`` is not positive or exceeds ``dt_max``.
    """
    if not 0 < dt_min <= dt_max:
        raise ValueError(
            f"`dt_min` must be in (0, dt_max], got {dt_min} with dt_max {dt_max}; "
            f"equal values give {consequence}."
        )


def validate_even_state(d_state: int) -> None:
    """Validates the number of states in conjugate pairs.

    Args:
      d_state: Number of states.

    Raises:
      ValueError: It is odd or not positive.
    """
    if d_state < 2 or d_state % 2:
        raise ValueError(
            f"`d_state` must be even and positive, got {d_state}; states come in "
            "conjugate pairs, the published size is 64."
        )


def inverse_softplus(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Returns ``log(exp(x) - 1)`` without cancellation.

    Args:
      x: Positive, ``(*n,)``.
    """
    return x + jnp.log(-jnp.expm1(-x))


def log_uniform(
    key: PRNGKey, shape: tuple[int, ...], minimum: float, maximum: float
) -> Float[jax.Array, "..."]:
    """Samples logarithms of values log-uniform in ``[minimum, maximum]``.

    Args:
      key: PRNG key.
      shape: Shape of the result.
      minimum: Lower bound, positive.
      maximum: Upper bound.

    Returns:
      Logarithms of the samples, float32.
    """
    # The logarithm is not exponentiated: step sizes are learned as logarithms.
    low, high = math.log(minimum), math.log(maximum)
    return jax.random.uniform(key, shape, minval=low, maxval=high)


def log_damped(
    smoothing: Float[Array, "*n"], damping: Float[Array, "*n"]
) -> Float[Array, "*n"]:
    """Returns ``log(1 - sigmoid(a) sigmoid(b))`` to float32 rounding everywhere.

    Args:
      smoothing: ``a``.
      damping: ``b``.
    """
    product = sigmoid(smoothing) * sigmoid(damping)
    # `log1p` is accurate for small products; the clip keeps the unselected branch
    # finite.
    slow = jnp.log1p(-jnp.minimum(product, 0.5))
    # Near 1: 1 - s(a) s(b) = s(-a) + s(a) s(-b), a sum of positive terms in log space.
    fast = jnp.logaddexp(
        jax.nn.log_sigmoid(-smoothing),
        jax.nn.log_sigmoid(smoothing) + jax.nn.log_sigmoid(-damping),
    )
    return jnp.where(product < 0.5, slow, fast)


def split_complex(name: str, values: Complex[Array, "..."]) -> dict[str, Array]:
    """Returns complex values as two parameters, ``name_re`` and ``name_im``."""
    # Parameters are real: optimizers differ in how they treat complex ones.
    return {f"{name}_re": jnp.real(values), f"{name}_im": jnp.imag(values)}


def join_complex(params: Mapping[str, Array], name: str) -> Complex[Array, "..."]:
    """Returns the complex values that `split_complex` split."""
    return jax.lax.complex(params[f"{name}_re"], params[f"{name}_im"])
