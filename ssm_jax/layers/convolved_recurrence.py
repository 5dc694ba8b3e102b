"""The base class of layers with a short convolution before their recurrence."""

import abc
from typing import TYPE_CHECKING, Any

from flax import linen as nn

from ssm_jax.kernels.arguments import check_flags, check_floating
from ssm_jax.layers.module import Module
from ssm_jax.layers.segments import mix_segments
from ssm_jax.layers.short_convolution import ShortConvolution
from ssm_jax.layers.step_sizes import check_takes_dt
from ssm_jax.types import Activations, Outputs, PyTree, Steps, StepSizes


class ConvolvedRecurrence(Module):
    """A layer whose state is ``(window, h)``, of a convolution and of a recurrence.

    A subclass defines `d_inner` and `mix`, and the fields ``recurrence``, the
    recurrence over time, and ``d_conv``, the taps of the convolution; and
    `d_recurrence`, if inputs of the recurrence do not pass the convolution.
    """

    if TYPE_CHECKING:  # Not fields, whose order is that of the subclass.
        recurrence: Any  # A Recurrence; subclasses may need one of a class.
        d_conv: int

    @property
    def takes_dt(self) -> bool:
        """Whether `mix` takes the sizes of steps, ``dt``; by default it does not."""
        return False

    @abc.abstractmethod
    def d_inner(self, d_model: int) -> int:
        """Returns the width of the convolution."""

    def d_recurrence(self, d_model: int) -> int:
        """Returns the width of the inputs of the recurrence; by default the same."""
        return self.d_inner(d_model)

    @abc.abstractmethod
    def mix(
        self,
        x: Activations,
        window: Any,
        h: Any,
        *,
        reset: Steps | None,
        mask: Steps | None,
    ) -> tuple[Outputs, Any, Any]:
        """Maps ``x`` and both states to ``(y, window, h)``.

        Args:
          x: Input, ``(*b, l, d)``, zero at padding.
          window: State of the convolution, or None.
          h: State of the recurrence, or None.
          reset: Resets of both.
          mask: Mask of both.

        A layer with `takes_dt` also takes ``dt``, the factors of the sizes of steps,
        ``(*b, l)``, or None.
        """

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """Returns the initial window (zeros) and the state of the recurrence."""
        # Detached: a submodule may only be created inside `setup` or a compact method.
        convolution = ShortConvolution(self.d_conv, parent=None)
        window = convolution.initial_state(batch_shape, self.d_inner(d_model))
        d_in = self.d_recurrence(d_model)
        return window, self.recurrence.initial_state(batch_shape, d_in)

    @nn.compact
    def __call__(
        self,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
        dt: StepSizes | None = None,
    ) -> tuple[Outputs, PyTree]:
        """Maps ``x`` ``(*b, l, d)`` to ``(y, state)``, as `Recurrent` does."""
        del train
        check_floating("x", x)
        check_flags("mask", mask, x.shape[:-1], x.shape[-2:-1])
        check_takes_dt(self, dt)
        if state is not None and not (isinstance(state, tuple) and len(state) == 2):
            raise ValueError(
                "`state` must be the pair (window, h), got "
                f"{type(state).__name__}; `initial_state` returns one."
            )
        sizes = {} if dt is None else {"dt": dt}

        def mix(x, state):
            window, h = (None, None) if state is None else state
            y, window, h = self.mix(x, window, h, reset=reset, mask=mask, **sizes)
            return y, (window, h)

        return mix_segments(mix, x, state, reset, mask)
