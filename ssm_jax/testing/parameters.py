"""The contract of the parameters of a recurrence."""

import jax
import jax.numpy as jnp

from ssm_jax.recurrences import ParamGroup, Recurrence
from ssm_jax.recurrences.families.base import Params
from ssm_jax.testing.comparison import check, check_close


def check_params(recurrence: Recurrence, name: str, d_in: int) -> Params:
    """Returns initial parameters, which are float32, and grouped by `groups`.

    Args:
      recurrence: The recurrence.
      name: What messages call it.
      d_in: Width of the inputs.

    Raises:
      AssertionError: They are not.
    """
    params, same = (recurrence.init(jax.random.key(0), d_in) for _ in range(2))
    dtypes = {key: leaf.dtype for key, leaf in params.items()}
    check(
        set(dtypes.values()) == {jnp.dtype(jnp.float32)},
        f"{name}: parameters must be float32, got {dtypes}",
        "give real and imaginary parts names of their own",
    )
    check_close(
        params, same, 0.0, f"{name}: `init` must be a function of its key", "see `key`"
    )
    groups = recurrence.groups()
    check(
        groups.keys() <= params.keys()
        and all(isinstance(group, ParamGroup) for group in groups.values()),
        f"{name}: `groups` must map parameters to `ParamGroup`, got {groups}",
        f"the parameters are {sorted(params)}",
    )
    return params
