"""What a recurrence is, and the one that does not change in time."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from ssm_jax.fields import check_choice, check_fields
from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.kernels.powers import check_log_decay, decay_powers
from ssm_jax.recurrences.families.evaluation import evaluate
from ssm_jax.recurrences.families.initializers import in_float32
from ssm_jax.recurrences.families.modes import Modes, to_real_readout
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.types import (
    Activations,
    Array,
    Float,
    Method,
    Outputs,
    PRNGKey,
    PyTree,
    Steps,
)

Params = Mapping[str, Float[Array, "..."]]


@dataclass(frozen=True)
class ParamGroup:
    """How the optimizer treats a parameter.

    Attributes:
      weight_decay: Whether weight decay acts on it.
      lr_multiplier: Factor on the learning rate, from 0 on.

    Raises:
      ValueError: A field is of another type, or the factor is negative.
    """

    weight_decay: bool = True
    lr_multiplier: float = 1.0

    def __post_init__(self):
        """Checks the numbers."""
        check_fields(self)
        if self.lr_multiplier < 0:
            raise ValueError(
                f"`lr_multiplier` must be at least 0, got {self.lr_multiplier}; 0 "
                "leaves the parameter as it is."
            )


@runtime_checkable
class Recurrence(Protocol):
    """A map of sequences with a state, as pure functions of its parameters."""

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Draws the parameters for inputs of width ``d_in``: float32 arrays by name."""
        ...

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """The state before the first step, batch axes first."""
        ...

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
        """Maps a sequence to a sequence.

        Args:
          params: What `init` draws, in any floating-point dtype: decays and states are
            computed in float32, and in float64 where a parameter is float64.
          x: Input, ``(*b, l, d_in)``, of any floating-point dtype. Sums and states are
            float32 also for bfloat16.
          state: State before the first step, as `initial_state` makes it and the last
            call returned it. None means that of a fresh start, zeros.
          reset: True where a segment starts, ``(*b, l)`` or, for all rows, ``(l,)``,
            boolean; nothing passes its border.
          mask: Boolean, true where a step is data, ``(*b, l)`` or ``(l,)``; the others
            are as if they were not there and give zeros. None means all are.
          method: How it is evaluated; changes cost, not values. Each recurrence says
            what it knows, and what ``"auto"`` chooses.

        Returns:
          ``(y, state)``: output, ``(*b, l, d_out)`` in the dtype of ``x``, and the
          state after the last step; as the next call's ``state`` it continues the
          sequence. None in its place where the recurrence runs in two directions.

        Raises:
          ValueError: A shape does not fit or has an empty axis, ``x``, ``state`` or a
            parameter is not floating-point, a flag is not boolean, a recurrence of two
            directions is given a state, or ``method`` cannot do what is asked.

        Note:
          Under `jax.pmap` and `jax.shard_map` rows of the batch may be divided over
          devices. The length may not: each device would evaluate its piece of every
          sequence as a sequence of its own, from a zero state, and nothing could tell.
        """
        ...

    def d_out(self, d_in: int) -> int:
        """Width of the output for inputs of width ``d_in``."""
        ...

    def groups(self) -> Mapping[str, ParamGroup]:
        """The parameters that the optimizer treats in their own way."""
        ...


class TimeInvariant(abc.ABC):
    """A recurrence that says only its modes; every evaluation follows from them.

    Attributes:
      bounded_decay: Whether no decay exceeds 1, whatever the parameters are. If not,
        ``"fft"`` looks at the decays at run time: where they are too far above 1 for
        an FFT it goes step by step.
    """

    bounded_decay: bool = False

    @abc.abstractmethod
    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Draws the parameters for inputs of width ``d_in``."""

    @abc.abstractmethod
    def modes(self, params: Params) -> Modes:
        """The recurrence that the parameters describe."""

    @abc.abstractmethod
    def groups(self) -> Mapping[str, ParamGroup]:
        """The parameters that the optimizer treats in their own way."""

    def d_out(self, d_in: int) -> int:
        """The output is as wide as the input."""
        return d_in

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Zeros, batch axes first; None if it runs in two directions."""

        def one_state():
            modes = to_real_readout(self.modes(self.init(jax.random.key(0), d_in)))
            if modes.w_backward is not None:
                return None
            w = modes.w if modes.B is None else modes.w[0]
            return w * decay_powers(modes.log_decay, jnp.zeros((), jnp.int32))

        one = jax.eval_shape(one_state)
        return one and jnp.zeros((*batch_shape, *one.shape), one.dtype)

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
        """Maps a sequence to a sequence, as `Recurrence.apply` says.

        The state is ``(*b, d, n)``, or ``(*b, n)`` where channels share their modes. Of
        the methods ``"fft"`` is a convolution with the modes' kernel, and ``"chunked"``
        the same by blocks, where there are no resets and the states of all blocks fit;
        by blocks there is no forward-mode derivative. The others go through all states,
        by `linear_recurrence`, in slices of the modes, so that at most
        ``max(STATES_AT_ONCE, b l d)`` states exist at once. ``"auto"``: short sequences
        and such with resets through the states; few modes a channel, on CPUs,
        ``"chunked"``; else ``"fft"``. Modes that channels share always run through
        their states.
        """
        modes = self.modes(in_float32(params))
        check_log_decay(modes.log_decay)
        if modes.log_decay_backward is not None:
            check_log_decay(modes.log_decay_backward, "log_decay_backward")
        shape = modes.state_shape if modes.w_backward is None else None
        check(
            x,
            state,
            reset,
            mask,
            d=len(modes.w),
            state_shape=shape,
            complex_state=modes.log_decay.phase is not None,
            method=method,
        )

        def run(x, state, reset, lengths):
            x = x.astype(modes.feedthrough.dtype)
            bounded = self.bounded_decay
            return evaluate(modes, x, state, reset, lengths, method, bounded=bounded)

        return apply_to_valid_steps(run, x, state, reset, mask)


def check(
    x: Array,
    state: Array | None,
    reset: Array | None,
    mask: Array | None,
    *,
    d: int,
    state_shape: tuple[int, ...] | None,
    complex_state: bool = False,
    method: Method = "auto",
) -> None:
    """Checks the arguments of a recurrence by their shapes and dtypes.

    Args:
      x: As `Recurrence.apply` takes it.
      state: Likewise.
      reset: Likewise.
      mask: Likewise.
      d: Width that the parameters were drawn for.
      state_shape: Of the state of one sequence; None in two directions.
      complex_state: Whether the state may be complex.
      method: As `Recurrence.apply` takes it.

    Raises:
      ValueError: A shape or a dtype does not fit, there is a state and must be none, or
        ``method`` is unknown.
    """
    check_choice("method", method, Method, "'auto' chooses by platform and length")
    check_floating("x", x)
    if x.ndim < 2 or x.shape[-1] != d or x.shape[-2] == 0:
        raise ValueError(
            f"`x` must be (*b, l, {d}) with l > 0, got {x.shape}; the width is the one "
            "that `init` drew parameters for."
        )
    if 0 in x.shape:
        raise ValueError(
            f"`x` must have at least one row, got {x.shape}; there is nothing to "
            "evaluate."
        )
    for name, flags in (("reset", reset), ("mask", mask)):
        check_flags(name, flags, x.shape[:-1], x.shape[-2:-1])
    if state is None:
        return
    if state_shape is None:
        raise ValueError(
            "`state` must be None for a recurrence in two directions, got one; the "
            "second direction starts where the sequence ends."
        )
    check_floating("state", state, may_be_complex=complex_state)
    if state.shape != (*x.shape[:-2], *state_shape):
        raise ValueError(
            f"`state` must be {(*x.shape[:-2], *state_shape)}, got {state.shape}; "
            "`initial_state` makes one."
        )
