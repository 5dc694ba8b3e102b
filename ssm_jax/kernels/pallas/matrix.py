"""The recurrence of matrices in one kernel: its states stay on the chip."""

import math
from typing import Any, NamedTuple

import jax

from ssm_jax.kernels.pallas import dispatch
from ssm_jax.kernels.pallas.devices import on_each_device
from ssm_jax.types import Array, Bool, Float, Steps


class Flags(NamedTuple):
    """What steps are part of the sums.

    Attributes:
      q: Which queries are not zero, ``(*b, l, g)``.
      k: Which keys are not, ``(*b, l, g)``.
      v: Which values are not, ``(*b, l, h)``.
      reset: True where a segment starts, ``(*b, l)``. None means one segment.
    """

    q: Bool[Array, "*b l g"]
    k: Bool[Array, "*b l g"]
    v: Bool[Array, "*b l h"]
    reset: Steps | None


def matrix_scan(
    q: Float[Array, "*b l g k"],
    k: Float[Array, "*b l g k"],
    v: Float[Array, "*b l h v"],
    log_decay: Float[Array, "*b l h"] | None,
    state: Float[Array, "*b h k v"],
    flags: Flags,
) -> tuple[Float[jax.Array, "*b l h v"], Float[jax.Array, "*b h k v"]]:
    """Evaluates `matrix_recurrence` without the delta rule, with decays of heads.

    The kernel reads the arrays once and writes the outputs, and for the gradient the
    state before each chunk. The backward pass, a kernel too, evaluates chunks again.
    There is no forward-mode derivative.

    Args:
      q: Queries, ``(*b, l, g, k)``.
      k: Keys, ``(*b, l, g, k)``.
      v: Values, ``(*b, l, h, v)``.
      log_decay: Log decays, ``(*b, l, h)``, finite and zero at padding. None: no decay.
      state: State before the first step, ``(*b, h, k, v)``.
      flags: What is replaced by zeros, and the segments.

    Returns:
      ``(o, last)``: outputs and the state after the last step.
    """
    arrays = q, k, v, log_decay, state
    # The first has the axes by which the rows are divided: (*b, l, g).
    return on_each_device(_scan_rows, (), (flags.q, flags, arrays))


def _scan_rows(_, like, flags, arrays):
    batch = like.shape[:-2]

    def one_axis(x):
        return x.reshape(math.prod(batch), *x.shape[len(batch) :])

    flags, arrays = jax.tree.map(one_axis, (flags, arrays))
    return tuple(x.reshape(*batch, *x.shape[1:]) for x in _scan(arrays, flags))


@jax.custom_vjp
def _scan(arrays: Any, flags: Flags):
    o, last, _ = dispatch.matrix().forward(*arrays, flags, with_starts=False)
    return o, last


def _forward(arrays, flags):
    kernel = dispatch.matrix()
    o, last, starts = kernel.forward(*arrays, flags, with_starts=True)
    return (o, last), (arrays, flags, starts)


def _backward(residuals, cotangents):
    (*arrays, _), flags, starts = residuals
    return dispatch.matrix().backward(*arrays, flags, starts, *cotangents), None


_scan.defvjp(_forward, _backward)
