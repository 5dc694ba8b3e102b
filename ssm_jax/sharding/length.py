"""A recurrence over a sequence whose length is sharded over devices."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ssm_jax.kernels.axes import match_varying_axes
from ssm_jax.kernels.nonfinite import last_of_segments
from ssm_jax.recurrences.families.base import ParamGroup, Params, Recurrence
from ssm_jax.recurrences.families.input_dependent import InputDependent
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.sharding.boundaries import boundary_state, broadcast_last
from ssm_jax.sharding.direction import Direction
from ssm_jax.types import Activations, Method, Outputs, PRNGKey, PyTree, Steps


@dataclass(frozen=True)
class LengthSharded(Recurrence):
    """Evaluates a recurrence inside `jax.shard_map` on a piece of each sequence.

    The device of index ``i`` along the axis has the ``i``-th of equally long pieces of
    the inputs, resets and masks; outputs are sharded likewise. Values and gradients are
    those of the recurrence on the whole sequence. Only states travel between devices.

    A time-invariant or input-dependent recurrence is evaluated twice: for the final
    states of the pieces, which a prefix scan over the ``n`` devices combines, and from
    the resulting initial states for the outputs. Any other (nonlinear ones, S4, finite
    kernels) is evaluated ``n`` times: the memory is shared by the devices, but they
    gain no time.

    Attributes:
      recurrence: The recurrence, causal or time-invariant.
      axis_name: Name of the mesh axis that the length is sharded over.

    Example:
      >>> from functools import partial
      >>> from jax.sharding import PartitionSpec as P
      >>> from ssm_jax.recurrences import DLR
      >>> dlr = DLR(d_state=4)
      >>> params = dlr.init(jax.random.key(0), 3)
      >>> x = jnp.ones((2, 16, 3))
      >>> mesh = jax.sharding.Mesh(jax.devices(), ("seq",))
      >>> apply = jax.shard_map(
      ...     LengthSharded(dlr, "seq").apply,
      ...     mesh=mesh,
      ...     in_specs=(P(), P(None, "seq")),
      ...     out_specs=(P(None, "seq"), P()),
      ... )
      >>> y, state = jax.jit(apply)(params, x)
      >>> whole, _ = dlr.apply(params, x)
      >>> bool(jnp.allclose(y, whole, atol=1e-5))
      True
    """

    recurrence: Recurrence
    axis_name: str

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters, those of the recurrence."""
        return self.recurrence.init(key, d_in)

    def initial_state(self, batch_shape: tuple[int, ...], d_in: int) -> PyTree:
        """Returns the state before the whole sequence."""
        return self.recurrence.initial_state(batch_shape, d_in)

    def d_out(self, d_in: int) -> int:
        """Returns the output width of the recurrence."""
        return self.recurrence.d_out(d_in)

    def groups(self) -> dict[str, ParamGroup]:
        """Returns the optimizer groups of the recurrence."""
        return dict(self.recurrence.groups())

    def apply(
        self,
        params: Params,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        method: Method = "auto",
        **options: Any,
    ) -> tuple[Outputs, PyTree]:
        """Maps a piece of a sequence; see `Recurrence.apply` for the arguments.

        Args:
          params: Parameters, the same on all devices.
          x: This device's piece of the input, ``(*b, l / n, d_in)``.
          state: State before the whole sequence, the same on all devices.
          reset: This device's piece of the resets.
          mask: This device's piece of the mask.
          method: Evaluation method of the pieces.
          options: Further arguments of the recurrence that are sharded like ``x``.

        Returns:
          ``(y, state)``: this device's piece of the output, and the state after the
          whole sequence, the same on all devices.

        Raises:
          ValueError: As for the recurrence; or it has no state and is not
            time-invariant.
        """
        whole = self.recurrence
        params, x, reset, mask, options = match_varying_axes(
            params, x, reset, mask, options
        )
        if whole.initial_state((), x.shape[-1]) is None:
            if options.get("dt") is not None:
                raise ValueError(
                    "`dt` must be None for a bidirectional recurrence, got one; the "
                    "time since the previous step is not that until the next one."
                )
            if not isinstance(whole, TimeInvariant) or whole.max_kernel_length:
                raise ValueError(
                    "`recurrence` must be causal or time-invariant with a kernel of "
                    f"unlimited length, got {whole}; shard the batch instead."
                )
            forward, backward = Direction(whole), Direction(whole, backward=True)
            y, _ = self._causal(
                forward, params, x, None, reset=reset, mask=mask, method=method
            )
            # In reverse order a segment starts at its last step.
            last = None if reset is None else last_of_segments(reset, self.axis_name)
            flags = jax.tree.map(
                lambda flag: jnp.flip(flag, -1),
                {"reset": last, "mask": mask},
            )
            y_backward, _ = self._causal(
                backward,
                params,
                jnp.flip(x, -2),
                None,
                reverse=True,
                method=method,
                **flags,
            )
            return y + jnp.flip(y_backward, -2), None
        return self._causal(
            whole, params, x, state, reset=reset, mask=mask, method=method, **options
        )

    def _causal(self, recurrence, params, x, state, *, reverse=False, **options):
        if state is None:
            state = recurrence.initial_state(x.shape[:-2], x.shape[-1])
        diagonal = isinstance(recurrence, InputDependent) and recurrence.diagonal
        if isinstance(recurrence, TimeInvariant):
            diagonal = not recurrence.max_kernel_length
        state_options = dict(options)
        convolves = options["reset"] is None and options.get("dt") is None
        if isinstance(recurrence, TimeInvariant) and convolves:
            # The final state of a convolution is a sum over the steps, and the
            # convolution itself is not computed where only the state is used. With
            # resets, or `dt`, by which the decay depends on the step, there is none.
            state_options["method"] = "fft"

        def final_state(state):
            return recurrence.apply(params, x, state, **state_options)[1]

        state, x = match_varying_axes(state, x)
        before = boundary_state(
            final_state,
            state,
            self.axis_name,
            diagonal=diagonal,
            reset=options["reset"],
            reverse=reverse,
        )
        y, last = recurrence.apply(params, x, before, **options)
        return y, None if reverse else broadcast_last(last, self.axis_name)
