"""Recurrences as Flax modules."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.core import meta

from ssm_jax.kernels.arguments import check_floating
from ssm_jax.layers.channel_mixing import ChannelMixing
from ssm_jax.layers.module import Module
from ssm_jax.recurrences.families.base import ParamGroup, Recurrence
from ssm_jax.recurrences.families.nonlinear import Nonlinear
from ssm_jax.recurrences.families.padding import last_valid
from ssm_jax.types import Activations, Array, Float, Method, Outputs, PyTree, Steps

MONITORS = "monitors"
"""The collection that layers sow in what training should show of them: ``sweeps``, as
many as a nonlinear recurrence took, and ``fallbacks``, 1 where they did not suffice."""


class LabelledParam(struct.PyTreeNode, meta.AxisMetadata[Any]):
    """A parameter in a box that says how the optimizer treats it.

    ``init`` of a model returns boxes, which `flax.core.meta.unbox` opens; ``apply``
    takes parameters with and without them.

    Attributes:
      value: The parameter.
      group: How the optimizer treats it.
    """

    value: Any
    group: ParamGroup = struct.field(pytree_node=False)

    def unbox(self) -> Any:
        """The parameter."""
        return self.value

    def replace_boxed(self, val: Any) -> "LabelledParam":
        """The same box around another value."""
        return self.replace(value=val)

    def add_axis(self, index: int, params: dict[Any, Any]) -> "LabelledParam":
        """A group holds for all axes."""
        del index, params
        return self

    def remove_axis(self, index: int, params: dict[Any, Any]) -> "LabelledParam":
        """A group holds for all axes."""
        del index, params
        return self


class Recurrent(Module):
    """Any recurrence as a Flax module.

    Attributes:
      recurrence: What is evaluated.
      method: How it is evaluated; changes cost, not values.

    Parameters:
      recurrence: The dict that ``recurrence.init`` draws, each in its optimizer group.

    Example:
      >>> import jax
      >>> from ssm_jax.recurrences import DLR
      >>> layer = Recurrent(DLR(d_state=4))
      >>> x = jax.numpy.ones((2, 8, 3))
      >>> variables = layer.init(jax.random.key(0), x)
      >>> y, state = layer.apply(variables, x)
      >>> y.shape, state.shape
      ((2, 8, 3), (2, 3, 4))
    """

    recurrence: Recurrence
    method: Method = "auto"

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """The state before the first step of inputs of width ``d_model``."""
        return self.recurrence.initial_state(batch_shape, d_model)

    @nn.compact
    def __call__(
        self,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
        last_only: bool = False,
    ) -> tuple[Float[Array, "*b k o"], PyTree]:
        """Maps a sequence to a sequence.

        Args:
          x: Input, ``(*b, l, d_in)``.
          state: State before the first step. None means that of a fresh start.
          reset: True where a segment starts, ``(*b, l)``. None means one segment.
          mask: True where a step is data, ``(*b, l)``. None means all are.
          train: Not read: a recurrence is the same in training.
          last_only: Whether only the output of the last step that is data is asked for,
            which nonlinear recurrences give for less.

        Returns:
          ``(y, state)``: output, ``(*b, l, d_out)``, or ``(*b, 1, d_out)`` if ``last_only``,
          and the state to go on from.
        """
        del train
        check_floating("x", x)
        params = self.param("recurrence", self._init, x.shape[-1])
        options = {"reset": reset, "mask": mask, "method": self.method}
        if not isinstance(self.recurrence, Nonlinear):
            y, state = self.recurrence.apply(params, x, state, **options)
            return (last_valid(y, mask) if last_only else y), state
        y, state, sweeps = self.recurrence.solve(
            params, x, state, last_only=last_only, **options
        )
        if not self.is_initializing():
            self.sow(MONITORS, "sweeps", jnp.float32(sweeps.iterations))
            self.sow(MONITORS, "fallbacks", jnp.float32(~sweeps.converged))
        return y, state

    def _init(self, key, d_in) -> Any:
        params = self.recurrence.init(key, d_in)
        groups = self.recurrence.groups()
        if unknown := set(groups) - set(params):
            raise ValueError(
                f"`groups` must name parameters of the recurrence, got {unknown}; "
                f"{type(self.recurrence).__name__} has {sorted(params)}."
            )
        return {
            name: LabelledParam(value, groups[name]) if name in groups else value
            for name, value in params.items()
        }


class RecurrentLayer(Module):
    """A recurrence over time, then GELU, dropout and a map over channels.

    Attributes:
      recurrence: What runs over time.
      mixing: What follows it, channel by channel; its output is as wide as ``x``.
      method: How the recurrence is evaluated; changes cost, not values.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 2.3
    """

    recurrence: Recurrence
    mixing: ChannelMixing
    method: Method = "auto"

    def initial_state(self, batch_shape: tuple[int, ...], d_model: int) -> PyTree:
        """The state before the first step of inputs of width ``d_model``."""
        return self.recurrence.initial_state(batch_shape, d_model)

    @nn.compact
    def __call__(
        self,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
    ) -> tuple[Outputs, PyTree]:
        """Maps ``x`` ``(*b, l, d)`` to ``(y, state)``, as `Recurrent` does."""
        recurrent = Recurrent(self.recurrence, self.method, name="recurrent")
        y, state = recurrent(x, state, reset=reset, mask=mask)
        return self.mixing(y, x.shape[-1], train=train), state


def recurrences_of(params: PyTree) -> Iterator[PyTree]:
    """Yields the parameters of each recurrence in a model, first layer first.

    Args:
      params: The model's parameters.
    """
    # block_2 comes before block_10.
    for name in sorted(params, key=lambda name: (len(name), name)):
        if name == "recurrence":
            yield params[name]
        elif isinstance(params[name], dict):
            yield from recurrences_of(params[name])
