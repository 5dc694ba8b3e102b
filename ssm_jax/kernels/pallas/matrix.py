"""The recurrence of matrices in one kernel: its states stay on the chip."""

import math
from typing import Any

import jax

from ssm_jax.kernels.pallas import dispatch
from ssm_jax.kernels.pallas.devices import on_each_device
from ssm_jax.types import Array, Float, Steps


def matrix_scan(
    q: Float[Array, "*b l g k"],
    k: Float[Array, "*b l g k"],
    v: Float[Array, "*b l h v"],
    log_decay: Float[Array, "*b l h"] | Float[Array, "*b l g k"] | None,
    beta: Float[Array, "*b l h"] | None,
    state: Float[Array, "*b h k v"],
    reset: Steps | None,
    mask: Steps | None,
) -> tuple[Float[jax.Array, "*b l h v"], Float[jax.Array, "*b h k v"]]:
    """Evaluates `matrix_recurrence`.

    The kernel reads the arrays once and writes the outputs, and for the gradient the
    state before each chunk. The backward pass, a kernel too, evaluates chunks again.
    There is no forward-mode derivative.

    Args:
      q: Queries, ``(*b, l, g, k)``.
      k: Keys, ``(*b, l, g, k)``.
      v: Values, ``(*b, l, h, v)``.
      log_decay: Log decays, ``(*b, l, h)`` or ``(*b, l, g, k)``. None: no decay.
      beta: Weights of the delta rule, ``(*b, l, h)``. None: values are added.
      state: State before the first step, ``(*b, h, k, v)``, in whose dtype sums are.
      reset: True where a segment starts, ``(*b, l)``. None means one segment.
      mask: True at valid steps, ``(*b, l)``. None means all.

    Returns:
      ``(o, last)``: outputs in the dtype of ``v`` and the state after the last step.
      Both are NaN where what is not finite reaches them.
    """
    arrays = q, k, v, log_decay, beta, state
    # The first has the axes by which the rows are divided: (*b, l, h).
    return on_each_device(_scan_rows, (), (v[..., 0], arrays, (reset, mask)))


def _scan_rows(_, like, arrays, flags):
    batch = like.shape[:-2]

    def one_axis(x):
        return x.reshape(math.prod(batch), *x.shape[len(batch) :])

    o, last = _scan(*jax.tree.map(one_axis, (arrays, flags)))
    return tuple(x.reshape(*batch, *x.shape[1:]) for x in (o, last))


@jax.custom_vjp
def _scan(arrays: Any, flags: Any):
    o, last, _ = dispatch.matrix().forward(*arrays, *flags, with_starts=False)
    return o, last


def _forward(arrays, flags):
    kernel = dispatch.matrix()
    o, last, starts = kernel.forward(*arrays, *flags, with_starts=True)
    return (o, last), (arrays, flags, starts)


def _backward(residuals, cotangents):
    (*arrays, _), flags, starts = residuals
    return dispatch.matrix().backward(*arrays, *flags, starts, *cotangents), None


_scan.defvjp(_forward, _backward)
