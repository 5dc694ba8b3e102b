"""Flax modules that own the parameters of a recurrence."""

from collections.abc import Iterator
from typing import Any

from flax import linen as nn, struct
from flax.core import meta

from ssm_jax.kernels.arguments import check_floating
from ssm_jax.kernels.fusion import materialize
from ssm_jax.layers.channel_mixing import ChannelMixing
from ssm_jax.layers.module import Module
from ssm_jax.layers.step_sizes import check_takes_dt, takes_dt
from ssm_jax.metrics import Mean, log_metric
from ssm_jax.recurrences.families.base import ParamGroup, Recurrence
from ssm_jax.recurrences.families.nonfinite import isolate_segments
from ssm_jax.recurrences.families.nonlinear import Nonlinear
from ssm_jax.sharding import LengthSharded
from ssm_jax.sharding.axis import last_output, length_axis
from ssm_jax.types import (
    Activations,
    Array,
    Float,
    Method,
    Outputs,
    PyTree,
    Steps,
    StepSizes,
)


class LabelledParam(struct.PyTreeNode, meta.AxisMetadata[Any]):
    """A boxed parameter labelled with its optimizer group.

    ``init`` of a model returns boxed parameters; `flax.core.meta.unbox` removes the
    boxes. ``apply`` accepts parameters with and without boxes.

    Attributes:
      value: The parameter.
      group: Learning rate multiplier, weight decay and kind of the parameter.
    """

    value: Any
    group: ParamGroup = struct.field(pytree_node=False)

    @classmethod
    def from_nnx_metadata(cls, metadata: dict[str, Any]) -> "LabelledParam":
        """Returns the box of an NNX variable; `flax.nnx.bridge.ToNNX` calls it."""
        return cls(metadata["value"], metadata["group"])

    def unbox(self) -> Any:
        """Returns the parameter."""
        return self.value

    def replace_boxed(self, val: Any) -> "LabelledParam":
        """Returns a box with the same group and another value."""
        return self.replace(value=val)

    def add_axis(self, index: int, params: dict[Any, Any]) -> "LabelledParam":
        """Returns the box unchanged: a group does not depend on the axes."""
        del index, params
        return self

    def remove_axis(self, index: int, params: dict[Any, Any]) -> "LabelledParam":
        """Returns the box unchanged: a group does not depend on the axes."""
        del index, params
        return self


class Recurrent(Module):
    """A Flax module that evaluates a recurrence and owns its parameters.

    In a block of its own it is a layer without a nonlinearity and without an output
    projection, such as the linear DLR of the paper's language models;
    `RecurrentLayer` has both.

    Attributes:
      recurrence: The recurrence.
      method: Evaluation method; it changes the cost, not the values.

    Parameters:
      recurrence: The dict returned by ``recurrence.init``; parameters that
        ``recurrence.groups()`` names are boxed as `LabelledParam`.

    Example:
      >>> import jax
      >>> from ssm_jax.recurrences import DLR
      >>> layer = Recurrent(DLR(d_state=4))
      >>> x = jax.numpy.ones((2, 8, 3))
      >>> variables = jax.jit(layer.init)(jax.random.key(0), x)
      >>> y, state = jax.jit(layer.apply)(variables, x)
      >>> y.shape, state.shape
      ((2, 8, 3), (2, 3, 4))
    """

    recurrence: Recurrence
    method: Method = "auto"

    @property
    def takes_dt(self) -> bool:
        """Whether the recurrence takes the sizes of steps, ``dt``."""
        return takes_dt(self.recurrence)

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
        dt: StepSizes | None = None,
    ) -> tuple[Float[Array, "*b k o"], PyTree]:
        """Maps a sequence to a sequence.

        Args:
          x: Input, ``(*b, l, d_in)``.
          state: Initial state, as returned by `initial_state` or by a previous call.
            None means `initial_state`.
          reset: True where a segment starts, ``(*b, l)``. None means a single segment.
          mask: True at valid steps, ``(*b, l)``. None means that all steps are valid.
          train: Unused; a recurrence is evaluated the same way in training.
          last_only: Whether to return only the output of the last valid step, which is
            cheaper for nonlinear recurrences.
          dt: Factor of the size of each step, ``(*b, l)``, of an S5, S4D or
            SelectiveSSM. None means 1.

        Returns:
          ``(y, state)``: output in the dtype of ``x``, ``(*b, l, d_out)``, or ``(*b, 1,
          d_out)`` if ``last_only``; and the final state.

        Raises:
          ValueError: A shape or a dtype does not fit, ``dt`` is given to another
            recurrence, or ``recurrence.groups()`` names a parameter that
            ``recurrence.init`` does not return.
        """
        del train
        check_floating("x", x)
        params = self.param("recurrence", self._init, x.shape[-1])
        options = {"reset": reset, "mask": mask, "method": self.method}
        check_takes_dt(self, dt)
        if dt is not None:
            options["dt"] = dt
        recurrence, axis = self.recurrence, length_axis()
        # Models are initialized on whole sequences.
        if axis is not None and not self.is_initializing():
            recurrence = LengthSharded(recurrence, axis)
        if not isinstance(recurrence, Nonlinear):
            y, state = recurrence.apply(params, x, state, **options)
            # A linear recurrence computes all outputs in parallel, so the last one is
            # selected.
            if last_only:
                return last_output(y, mask), state
            # Each kernel of the layers above would compute the last operations of the
            # recurrence again. A single step is less work than a branch.
            return (materialize(y) if y.shape[-2] != 1 else y), state
        y, state, stats = recurrence.solve(
            params, x, state, last_only=last_only, **options
        )
        log_metric(self, "solver_iterations", Mean(stats.iterations))
        log_metric(self, "solver_fallbacks", Mean(~stats.converged))
        return y, state

    def _init(self, key, d_in) -> Any:
        params = self.recurrence.init(key, d_in)
        groups = self.recurrence.groups()
        # A misspelled name would leave its parameter in the default group.
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
    """A recurrence over time followed by channel mixing (GELU, dropout, linear or GLU).

    Attributes:
      recurrence: Recurrence over time.
      mixing: Map over the channels of each step; its output has the width of ``x``.
      method: Evaluation method of the recurrence; it changes the cost, not the values.

    References:
      Gupta, Mehta and Berant, `Simplifying and Understanding State Space Models with
      Diagonal Linear RNNs <https://arxiv.org/abs/2212.00768>`_, 2022, section 2.3
    """

    recurrence: Recurrence
    mixing: ChannelMixing
    method: Method = "auto"

    @property
    def takes_dt(self) -> bool:
        """Whether the recurrence takes the sizes of steps, ``dt``."""
        return takes_dt(self.recurrence)

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
        dt: StepSizes | None = None,
    ) -> tuple[Outputs, PyTree]:
        """Maps ``x`` ``(*b, l, d)`` to ``(y, state)``, as `Recurrent` does."""
        recurrent = Recurrent(self.recurrence, self.method, name="recurrent")

        def run(x, state):
            y, state = recurrent(x, state, reset=reset, mask=mask, dt=dt)
            return self.mixing(y, x.shape[-1], train=train), state

        return isolate_segments(run, x, state, reset, mask, axis_name=length_axis())


def recurrences_of(params: PyTree) -> Iterator[PyTree]:
    """Yields the parameters of each recurrence of a model, in the order of its layers.

    Args:
      params: Parameters of the model.
    """
    # By length first, so that block_2 comes before block_10.
    for name in sorted(params, key=lambda name: (len(name), name)):
        if name == "recurrence":
            yield params[name]
        elif isinstance(params[name], dict):
            yield from recurrences_of(params[name])
