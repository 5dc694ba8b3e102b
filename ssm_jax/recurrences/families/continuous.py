"""Time-invariant systems in continuous time, whose steps may differ in size."""

import abc

import jax
import jax.numpy as jnp

from ssm_jax.kernels.input_dependent import ChunkedForm
from ssm_jax.kernels.precision import divide, in_float32, project_in, read_out
from ssm_jax.kernels.promotion import promoted_like
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.discretization import Discretization, discretize
from ssm_jax.recurrences.families.input_dependent import apply_form
from ssm_jax.recurrences.families.modes import MIMOModes, SISOModes
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import (
    Activations,
    Array,
    Complex,
    Float,
    Method,
    Outputs,
    PyTree,
    Steps,
)


class Continuous(TimeInvariant, abc.ABC):
    r"""Modes of ``h' = lam h + B x``, discretized with a step ``Delta``.

    With ``dt`` the step ``t`` has the size ``dt_t Delta``, where ``B`` is that of
    `modes` and ``g`` the gain of `discretize`:

    .. math::
      h_t = \exp(\lambda \Delta\, dt_t) h_{t-1}
      + \frac{g(\lambda \Delta, dt_t)}{g(\lambda \Delta, 1)} B x_t

    Attributes:
      discretization: ``"zoh"`` or ``"bilinear"``; see `discretize`. The exponential
        above is the one of ``"zoh"``.
    """

    takes_dt = True
    discretization: Discretization = "zoh"

    @abc.abstractmethod
    def scaled_eigenvalues(
        self, params: Params
    ) -> Complex[Array, " n"] | Complex[Array, "d n"]:
        """Returns ``lam Delta``, in the shape of the decays of `modes`."""

    def apply(
        self,
        params: Params,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
        dt: Float[Array, "*#b l"] | None = None,
    ) -> tuple[Outputs, PyTree]:
        """Maps a sequence to a sequence; see `TimeInvariant.apply`.

        Args:
          params: Parameters; this and the next five arguments are those of
            `TimeInvariant.apply`.
          x: Input.
          state: State before the first step; the same with and without ``dt``.
          reset: True where a segment starts.
          mask: True at valid steps.
          method: Evaluation method; with ``dt`` not ``"fft"``.
          dt: Factor of the size of each step, at least 0, ``(*b, l)`` or, for all rows,
            ``(l,)``: for irregular samples the time since the previous one in units of
            the mean interval. That of a padded step has no effect. None means 1. With
            it the decays depend on the step, and are evaluated by chunks, as those of
            `InputDependent`.

        Returns:
          ``(y, state)``.

        Raises:
          ValueError: As `TimeInvariant.apply`; or ``dt`` has another shape or dtype, is
            negative (where its values are known outside of `jax.jit`), or is given with
            ``"fft"`` or to a bidirectional recurrence.
        """
        if dt is None:
            return super().apply(
                params, x, state, reset=reset, mask=mask, method=method
            )
        params = in_float32(params)
        modes = self.modes(params)
        if modes.bidirectional:
            raise ValueError(
                "`dt` must be None for a bidirectional recurrence, got one; the time "
                "since the previous step is not that until the next one."
            )
        zeros = jnp.zeros(modes.state_shape, modes.state_dtype)
        return apply_form(
            lambda params, x, dt, *_: self._chunked_form(params, x, dt),
            params,
            x,
            state,
            dt,
            zeros=zeros,
            d_in=len(modes.feedthrough),
            reset=reset,
            mask=mask,
            method=method,
            name=f"{type(self).__name__} with `dt`",
            per_channel=isinstance(modes, SISOModes),
        )

    def _chunked_form(self, params, x, dt):
        modes, z = self.modes(params), self.scaled_eigenvalues(params)
        _, unit_gain = discretize(self.discretization, z, jnp.ones(z.shape, dt.dtype))
        # The state of `SISOModes` is divide by B and the gain of a unit step.
        mimo = isinstance(modes, MIMOModes)
        B, C = (modes.B, modes.C) if mimo else (None, modes.w)

        def form(inputs):
            x, dt = inputs
            dt = jnp.expand_dims(dt, tuple(range(-z.ndim, 0)))
            log_decay, gain = discretize(self.discretization, z, dt)
            assert log_decay.phase is not None  # The eigenvalues are complex.
            decay = jnp.exp(jax.lax.complex(log_decay.log_abs, log_decay.phase))
            Bx = x[..., None].astype(gain.dtype) if B is None else project_in(x, B)
            # The quotient of two gains: Delta, which may underflow, is in neither.
            return decay, divide(gain, promoted_like(unit_gain, gain)) * Bx

        # Channels of `SISOModes` have their own states.
        read = read_out if mimo else jax.vmap(read_out, (-2, 0), -1)

        def output(inputs, h):
            x, _ = inputs
            return read(h, C) + promoted_like(modes.feedthrough, x) * x

        # B and C of `MIMOModes` are matrices, which a chunk multiplies at once.
        return ChunkedForm(form, output, (x, dt), by_steps=not mimo)
