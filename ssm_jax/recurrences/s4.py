"""S4: structured state spaces initialized from HiPPO-LegS."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import check_fields
from ssm_jax.kernels.arguments import check_draw
from ssm_jax.kernels.dense import block_by_block, step_by_step
from ssm_jax.kernels.fft import causal_convolution
from ssm_jax.kernels.plan import dense_method
from ssm_jax.kernels.precision import MAX_EXPONENT, bounded_exp, in_float32
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.kernels.shift import shift_left
from ssm_jax.recurrences.families import nplr
from ssm_jax.recurrences.families.base import ParamGroup, Params, Recurrence, check
from ssm_jax.recurrences.families.hippo import legs
from ssm_jax.recurrences.families.initializers import (
    join_complex,
    log_uniform,
    validate_dt_range,
    validate_even_state,
)
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.types import Activations, Method, Outputs, PRNGKey, PyTree, Steps


@dataclass(frozen=True, kw_only=True)
class S4(Recurrence):
    r"""State space of each channel, with a normal plus rank-one matrix.

    .. math::
      h' = (\operatorname{diag}(\lambda) - p p^*) h + B x, \qquad
      y = 2 \operatorname{Re}(C h) + D x

    discretized by the bilinear rule with a step ``Delta`` per channel. The state is
    ``(*b, d, d_state)``, float32: real parts of the pairs, then imaginary parts.

    Attributes:
      d_state: Number of states per channel, ``N`` in the paper, even; one member of
        each of the ``N / 2`` conjugate pairs is stored.
      bidirectional: Adds a backward convolution over future steps, with the same
        matrix and its own ``C``.
      dt_min: Minimum initial step size.
      dt_max: Maximum initial step size.
      lr_multiplier: Factor on the learning rate of matrix, steps and ``B``.

    Parameters, float32, for inputs of width ``d``, ``n = d_state / 2``:
      log_rate: ``(d, n)``, ``Re lam = -exp(log_rate)``, initialized to -1/2.
      frequency: ``(d, n)``, ``Im lam``, initialized from HiPPO-LegS.
      p_re, p_im: ``(d, n)``, likewise.
      B_re, B_im: ``(d, n)``, likewise.
      log_dt: ``(d,)``, the step ``Delta``, log-uniform in ``[dt_min, dt_max]``.
      C_re, C_im: ``(d, n)``, normal of variance 1/2.
      C_backward_re, C_backward_im: Likewise, only if bidirectional.
      feedthrough: ``(d,)``, ``D``, standard normal.

    Raises:
      ValueError: ``d_state`` is odd or not positive, or ``dt_min`` exceeds ``dt_max``.

    Example:
      >>> s4 = S4(d_state=8)
      >>> params = s4.init(jax.random.key(0), d_in=2)
      >>> y, state = jax.jit(s4.apply)(params, jnp.ones((8, 2)))
      >>> y.shape, state.shape
      ((8, 2), (2, 8))

    Note:
      Rates are at most ``exp(30)`` and steps between ``exp(-30)`` and ``exp(30)``, so
      that values and gradients are finite. The authors learn ``C (I - A_bar**L)`` for
      one length ``L``; here ``C`` itself is learned, which does not depend on the
      length. Weight decay is not applied to the parameters other than ``C`` and ``D``,
      which have their own learning rate (1e-3), as published.

    References:
      Gu, Goel and Ré, `Efficiently Modeling Long Sequences with Structured State Spaces
      <https://arxiv.org/abs/2111.00396>`_, 2021, section 3
    """

    d_state: int = 64
    bidirectional: bool = False
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    lr_multiplier: float = 1.0

    def __post_init__(self):
        check_fields(self)
        validate_even_state(self.d_state)
        validate_dt_range(self.dt_min, self.dt_max, "all channels one step size")

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters; see the class for their shapes."""
        check_draw(key, d_in)
        key_dt, key_c, key_through = jax.random.split(key, 3)
        # The same HiPPO-LegS for all channels; they differ in dt, C and D.
        hippo = legs(self.d_state)
        start = {"frequency": np.imag(hippo.lam), "log_rate": np.log(0.5)}
        for name, values in (("p", hippo.p), ("B", hippo.B)):
            start |= {f"{name}_re": np.real(values), f"{name}_im": np.imag(values)}
        shape = (d_in, self.d_state // 2)
        names = [f"{name}_{part}" for name in self._outputs() for part in ("re", "im")]
        # Variance 1/2 for each part, that is, 1 for C.
        drawn = np.sqrt(0.5) * jax.random.normal(key_c, (len(names), *shape))
        return {
            "log_dt": log_uniform(key_dt, (d_in,), self.dt_min, self.dt_max),
            "feedthrough": jax.random.normal(key_through, (d_in,)),
            **{
                name: jnp.broadcast_to(jnp.float32(value), shape)
                for name, value in start.items()
            },
            **dict(zip(names, drawn, strict=True)),
        }

    def _outputs(self):
        return ["C", "C_backward"] if self.bidirectional else ["C"]

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns zeros, ``(*batch_shape, d_in, d_state)``; None if bidirectional."""
        if self.bidirectional:
            return None
        return jnp.zeros((*batch_shape, d_in, self.d_state))

    def systems(self, params: Params) -> list[nplr.NPLR]:
        """Returns the system of each direction."""
        params = in_float32(params)
        lam = jax.lax.complex(-bounded_exp(params["log_rate"]), params["frequency"])
        # At z = 1 the generating function divides by the step.
        dt = bounded_exp(params["log_dt"], lower=-MAX_EXPONENT)
        p, B, *outputs = (
            join_complex(params, name) for name in ("p", "B", *self._outputs())
        )
        return [nplr.NPLR(lam, p, B, C, dt) for C in outputs]

    def apply(
        self,
        params: Params,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
    ) -> tuple[Outputs, PyTree]:
        """Maps a sequence to a sequence; see `Recurrence.apply` for the arguments.

        ``"sequential"`` evaluates step by step. ``"chunked"`` uses matrix products of
        blocks, or evaluates step by step if there are resets. ``"fft"`` convolves with
        the kernel computed from its generating function, as published. ``"auto"`` is
        ``"sequential"`` for a single step, else ``"chunked"``.
        """
        params = in_float32(params)
        d, feedthrough = len(params["log_dt"]), params["feedthrough"]
        shape = None if self.bidirectional else (d, self.d_state)
        check(x, state, reset, mask, d=d, state_shape=shape, method=method)
        method = _choose_method(method, x, reset)

        def run(x, state, reset, lengths):
            x = x.astype(feedthrough.dtype)
            ahead, *behind = self.systems(params)
            if state is not None:
                state = state.astype(x.dtype)
            y, state = _evaluate(ahead, x, state, reset, lengths, method)
            # Once, not per direction.
            y += promoted_like(feedthrough, x) * x
            for system in behind:
                y, state = y + _evaluate_backward(system, x, reset, method), None
            return y, state

        return apply_to_valid_steps(run, x, state, reset, mask, per_channel=True)

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns optimizer groups for matrix, step sizes and ``B``."""
        group = ParamGroup(weight_decay=False, lr_multiplier=self.lr_multiplier)
        names = ["log_rate", "frequency", "log_dt", "p_re", "p_im", "B_re", "B_im"]
        return dict.fromkeys(names, group)


def _choose_method(method, x, reset):
    refused = ("associative", "pallas", *["fft"] * (reset is not None))
    if method in refused:
        raise ValueError(
            "`method` must be 'sequential' or 'chunked' for a dense matrix, or 'fft' "
            f"without `reset`, got {method!r}; 'auto' chooses by length."
        )
    # A block has one Toeplitz matrix, which a reset within the block would change.
    if reset is not None:
        return "sequential"
    return dense_method(x.shape[-2]) if method == "auto" else method


def _evaluate(system, x, state, reset, lengths, method):
    steps = nplr.discretized(system)
    if method == "sequential":
        return step_by_step(steps, x, state, reset=reset, lengths=lengths)
    # The FFT gives no state. With "fft" the outputs of this call are not used, and XLA
    # removes them.
    y, last = block_by_block(steps, x, state, lengths=lengths)
    if method == "chunked":
        return y, last
    y = causal_convolution(x, nplr.kernel(system, x.shape[-2]))
    if state is not None:
        # The convolution starts from a zero state.
        y += block_by_block(steps, jnp.zeros_like(x), state)[0]
    return y, last


def _evaluate_backward(system, x, reset, method):
    """Evaluates the backward direction over future steps."""
    # Reversed rows begin with padding, where a zero state remains zero. In reverse a
    # segment begins at its last step, one before the next reset.
    reset_reversed = None if reset is None else jnp.flip(jnp.roll(reset, -1, -1), -1)
    y, _ = _evaluate(system, jnp.flip(x, -2), None, reset_reversed, None, method)
    # The backward direction excludes the present step.
    return shift_left(jnp.flip(y, -2), reset)
