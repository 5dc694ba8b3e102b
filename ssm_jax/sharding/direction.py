"""The two directions of a bidirectional recurrence, each as a causal one."""

from dataclasses import dataclass

import jax.numpy as jnp

from ssm_jax.kernels.axes import valid_steps
from ssm_jax.kernels.promotion import common_dtype, promoted_like
from ssm_jax.kernels.shift import shift_right
from ssm_jax.recurrences.families.base import Params
from ssm_jax.recurrences.families.modes import MIMOModes, SISOModes, to_real_readout
from ssm_jax.recurrences.families.padding import apply_to_valid_steps
from ssm_jax.recurrences.families.time_invariant import TimeInvariant
from ssm_jax.types import Activations, Method, Outputs, PRNGKey, PyTree, Steps


@dataclass(frozen=True)
class Direction(TimeInvariant):
    """One direction of a bidirectional recurrence, whose outputs add up to those of it.

    Attributes:
      whole: The bidirectional recurrence.
      backward: Whether it is the backward direction, as a map of reversed sequences;
        the forward direction has the feedthrough.
    """

    whole: TimeInvariant
    backward: bool = False

    @property
    def bounded_decay(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the recurrence has bounded decays."""
        return self.whole.bounded_decay

    def init(self, key: PRNGKey, d_in: int) -> Params:
        """Initializes the parameters of both directions."""
        return self.whole.init(key, d_in)

    def modes(self, params: Params) -> SISOModes | MIMOModes:
        """Returns the modes of this direction."""
        modes = self.whole.modes(params)
        if isinstance(modes, MIMOModes):
            C = modes.C_backward if self.backward else modes.C
            assert C is not None
            directed = modes._replace(C=C, C_backward=None)
        elif self.backward:
            directed = modes.backward()
        else:
            directed = modes._replace(w_backward=None, log_decay_backward=None)
        if self.backward:
            directed = directed._replace(feedthrough=jnp.zeros_like(modes.feedthrough))
        return directed

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
        """Maps a sequence to a sequence; see `TimeInvariant.apply`."""
        modes = self.modes(params)

        def evaluate(x, state, reset, mask):
            return super(Direction, self).apply(
                params, x, state, reset=reset, mask=mask, method=method
            )

        if isinstance(modes, MIMOModes) or not self.backward:
            return evaluate(x, state, reset, mask)
        weights = to_real_readout(modes).w

        # The backward direction of `SISOModes` excludes the present step: the output
        # at a step is that of the valid step before it.
        def run(x, state, reset, lengths):
            mask = None
            if lengths is not None:
                mask = valid_steps(lengths, x.shape[-2])
                # A reset on aligned padding would clear the final state.
                reset = None if reset is None else reset & mask
            y, last = evaluate(x, state, reset, mask)
            state_output = None
            if state is not None:
                state = jnp.asarray(state, common_dtype(state, weights))
                read = promoted_like(weights, state) * state
                state_output = jnp.sum(jnp.real(read), -1)
            return shift_right(y, state_output, reset), last

        return apply_to_valid_steps(run, x, state, reset, mask, per_channel=True)
