"""The protocol of a recurrence, its defaults and the validation of its arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from ssm_jax.fields import check_choice, check_fields
from ssm_jax.kernels.arguments import check_flags, check_floating
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


ParamKind = Literal[
    "matrix", "embedding", "head", "convolution", "vector", "recurrence"
]
"""What a parameter is to an optimizer.

``"matrix"``: a matrix ``W`` of a hidden map ``x W``, ``(..., d_in, d_out)``.
``"embedding"``: a map of the inputs of a model, and positional embeddings.
``"head"``: a map to predictions. ``"convolution"``: a kernel of a convolution.
``"vector"``: a norm scale, a bias or a feedthrough. ``"recurrence"``: a decay, a phase,
a step size, a weight of a state.
"""


@dataclass(frozen=True)
class ParamGroup:
    """Optimizer settings of a parameter.

    Attributes:
      weight_decay: Whether weight decay is applied to the parameter.
      lr_multiplier: Factor on the learning rate, at least 0.
      kind: What the parameter is to an optimizer that treats kinds differently, such as
        Muon. None: by its path and shape; see `ssm_jax.training.groups.groups_of`.
        Settings that differ in it alone are equal.

    Raises:
      ValueError: A field has the wrong type, or ``lr_multiplier`` is negative.
    """

    weight_decay: bool = True
    lr_multiplier: float = 1.0
    kind: ParamKind | None = field(default=None, compare=False)

    def __post_init__(self):
        check_fields(self)
        if self.lr_multiplier < 0:
            raise ValueError(
                f"`lr_multiplier` must be at least 0, got {self.lr_multiplier}; 0 "
                "freezes the parameter."
            )


@runtime_checkable
class Recurrence(Protocol):
    """A sequence map with a state, given by pure functions of its parameters.

    A subclass inherits default implementations of `d_out` and `groups`.
    """

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters for inputs of width ``d_in``: float32 by name."""
        ...

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns the state before the first step, batch axes first."""
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
          params: Parameters, as returned by `init`, of any floating-point dtype. Decays
            and states are computed in float32, or in float64 if a parameter is float64.
          x: Input, ``(*b, l, d_in)``, of any floating-point dtype. Sums and states are
            float32 also for bfloat16 inputs.
          state: State before the first step, as returned by `initial_state` or by the
            previous call. None means zeros.
          reset: Boolean, true where a segment starts, ``(*b, l)`` or, for all rows,
            ``(l,)``. The state is reset to zero before such a step. With resets, a
            value of ``x`` or ``state`` that is not finite makes outputs NaN up to the
            end of its segment, and leaves the values and gradients of other segments
            as they are.
          mask: Boolean, true at valid steps, ``(*b, l)`` or ``(l,)``. Padded steps do
            not affect other outputs or the state; their own outputs are zero. None
            means that all steps are valid.
          method: Evaluation method; it changes the cost, not the values. Each
            recurrence documents the methods it supports and the choice of ``"auto"``.

        Returns:
          ``(y, state)``: output, ``(*b, l, d_out)`` in the dtype of ``x``, and the
          state after the last step, which continues the sequence as ``state`` of the
          next call. The state of a bidirectional recurrence is None.

        Raises:
          ValueError: A shape does not fit or has an empty axis, ``x``, ``state`` or a
            parameter is not floating-point, a flag is not boolean, a bidirectional
            recurrence is given a state, or ``method`` does not support the arguments.

        Note:
          Outside of `jax.jit` most recurrences, and all with ``mask``, are compiled
          again at every call.

          ``"chunked"`` of time-invariant recurrences, which ``"auto"`` chooses on CPUs
          for at most 8 modes per channel, has no derivative in forward mode, as in
          `jax.jvp`, `jax.jacfwd` and `jax.hessian`; ``"fft"`` has.

          Rows may be sharded over a mesh, with explicit or automatic axes; where
          channels are independent of each other, these too. Parameters may not.

          Under `jax.pmap` and `jax.shard_map` the batch axes may be sharded over
          devices, but not the length: each device would evaluate its part of every
          sequence as a separate sequence from a zero state, without an error.
          `LengthSharded` shards the length.
        """
        ...

    def d_out(self, d_in: int) -> int:
        """Returns the output width for input width ``d_in``; by default the same."""
        return d_in

    def groups(self) -> Mapping[str, ParamGroup]:
        """Returns the optimizer groups of parameters by name; by default none."""
        return {}


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
    """Validates the shapes and dtypes of the arguments of a recurrence.

    Args:
      x: Input of `Recurrence.apply`.
      state: State of `Recurrence.apply`.
      reset: Resets of `Recurrence.apply`.
      mask: Mask of `Recurrence.apply`.
      d: Input width that the parameters were initialized for.
      state_shape: Shape of the state of one sequence; None if bidirectional.
      complex_state: Whether the state may be complex.
      method: Method of `Recurrence.apply`.

    Raises:
      ValueError: A shape or a dtype does not fit, a bidirectional recurrence is given a
        state, or ``method`` is unknown.
    """
    # Only static shapes and dtypes are read, so that the checks also run under `jit`.
    check_choice("method", method, Method, "'auto' chooses by platform and length")
    check_floating("x", x)
    if x.ndim < 2 or x.shape[-1] != d or x.shape[-2] == 0:
        raise ValueError(
            f"`x` must be (*b, l, {d}) with l > 0, got {x.shape}; the width is the one "
            "that the parameters were initialized for."
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
    # A backward direction depends on future inputs, which no state can summarize.
    if state_shape is None:
        raise ValueError(
            "`state` must be None for a bidirectional recurrence, got one; its "
            "backward direction starts at the end of the sequence."
        )
    # A real recurrence would silently drop the imaginary part of a complex state.
    check_floating("state", state, may_be_complex=complex_state)
    if state.shape != (*x.shape[:-2], *state_shape):
        raise ValueError(
            f"`state` must be {(*x.shape[:-2], *state_shape)}, got {state.shape}; "
            "`initial_state` returns one."
        )
