"""A network of one recurrence and a head, without blocks."""

import contextlib
import functools

from flax import linen as nn

from ssm_jax.fields import Fraction
from ssm_jax.kernels.arguments import check_flags
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.layers.recurrent import Recurrent
from ssm_jax.layers.step_sizes import takes_dt
from ssm_jax.models.heads import LastHead
from ssm_jax.models.nonfinite import predict_segments
from ssm_jax.models.precision import ComputeDtype, call, lower, widen
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.sharding import sharded_length
from ssm_jax.sharding.axis import any_valid
from ssm_jax.types import (
    Array,
    Float,
    Inexact,
    Int,
    Method,
    PyTree,
    Steps,
    StepSizes,
)


class RecurrentNetwork(Module):
    """An optional encoder, a recurrence and a head: the models of the FRU's paper.

    Attributes:
      recurrence: Recurrence over time.
      head: Maps ``(*b, l, d_out)`` to predictions.
      encoder: Maps inputs to ``(*b, l, d_in)``. None passes the inputs unchanged.
      dropout: Probability of dropping an element of the input or of the output of the
        recurrence.
      method: Evaluation method of the recurrence; it changes the cost, not the values.
      dtype: Dtype of the computation; see `ComputeDtype`. Predictions are float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from ssm_jax.models import LastHead
      >>> from ssm_jax.recurrences import GRU
      >>> model = RecurrentNetwork(GRU(d_state=8), LastHead(d_output=3))
      >>> x = jnp.ones((2, 32, 1))
      >>> variables = jax.jit(model.init)(jax.random.key(0), x)
      >>> predictions, state = jax.jit(model.apply)(variables, x)
      >>> predictions.shape, state.shape
      ((2, 3), (2, 8))

    References:
      Zhang, Lin, Song and Dhillon, `Learning Long Term Dependencies via Fourier
      Recurrent Units <https://arxiv.org/abs/1803.06585>`_, 2018, section 6
    """

    recurrence: Recurrence
    head: nn.Module
    encoder: nn.Module | None = None
    dropout: Fraction = 0.0
    method: Method = "auto"
    dtype: ComputeDtype = "float32"

    @property
    def takes_dt(self) -> bool:
        """Whether the recurrence takes the sizes of steps, ``dt``."""
        return takes_dt(self.recurrence)

    def initial_state(self, batch_shape: tuple[int, ...]) -> PyTree:
        """Returns the initial state.

        Raises:
          ValueError: There is no encoder, so the width of the inputs is unknown.
        """
        if self.encoder is None:
            raise ValueError(
                "`encoder` must be given where states are carried, got None; a "
                "`VectorEncoder` or a `TokenEncoder` determines the input width."
            )
        return self.recurrence.initial_state(batch_shape, self.encoder.d_model)

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b l f"] | Int[Array, "*b l"],
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
        dt: StepSizes | None = None,
    ) -> tuple[Inexact[Array, "..."], PyTree]:
        """Maps inputs to ``(predictions, state)``, as `SequenceModel` does."""
        check_flags("reset", reset)
        check_flags("mask", mask)

        def encode(inputs):
            x = lower(self.dtype, inputs)
            return x if self.encoder is None else call(self.dtype, self.encoder, x)

        recurrent = Recurrent(self.recurrence, self.method, name="recurrent")
        # One module called twice; each call draws its own masks.
        dropout = functools.partial(RowDropout(self.dropout), train=train)
        # A nonlinear recurrence computes its last output at less cost than all outputs.
        last = isinstance(self.head, LastHead)

        def predict(x, state):
            flags = {"reset": reset, "mask": mask, "last_only": last, "dt": dt}
            y, state = recurrent(dropout(x), state, **flags)
            # Of the last step that is left: valid if the row has a valid step.
            valid = any_valid(mask) if last and mask is not None else mask
            # The one step that is left is the same on all devices.
            with sharded_length(None) if last else contextlib.nullcontext():
                y = call(self.dtype, self.head, dropout(y), mask=valid, train=train)
            return y, state

        y, state = predict_segments(
            encode, predict, inputs, state, reset, mask, head=self.head
        )
        return widen(self.dtype, (y, state))
