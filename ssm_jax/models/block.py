"""Residual blocks: a layer with normalization, dropout and a residual connection."""

import functools
from typing import Any

from flax import linen as nn

from ssm_jax.fields import Fraction, PositiveFloat
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.layers.step_sizes import takes_dt
from ssm_jax.models.norm import AxisName, Norm, NormKind
from ssm_jax.types import Activations, PyTree, Steps, StepSizes


class Block(Module):
    """A residual block, ``norm(x + dropout(layer(x)))``.

    With ``prenorm`` it computes ``x + dropout(layer(norm(x)))`` instead. A
    ``feedforward`` module adds a second residual connection of the same form after the
    first, as in a Transformer block.

    Attributes:
      layer: Module with the signature
        ``(x, state, *, reset, mask, train) -> (y, state)``. One whose attribute
        ``takes_dt`` is true is also called with ``dt``, where that is given.
      norm: Kind of normalization; see `Norm`.
      prenorm: Whether to normalize the input of the layer instead of the sum.
      dropout: Probability of dropping a channel of the layer's output at all steps of a
        sequence.
      axis_name: Mapped axis over which the batch is sharded; BatchNorm shares its
        moments over it. None means that the batch is not sharded.
      feedforward: Module with the signature ``(x, *, mask, train) -> y``, such as `MLP`
        or `ExpertChoiceMLP`, with a residual connection and a normalization of its own.
        None means no such module.
      rms_epsilon: Constant of an RMSNorm; see `Norm`.

    Example:
      >>> import jax
      >>> from ssm_jax.layers import MLP, Attention
      >>> attention = Attention(n_heads=2, bidirectional=True)
      >>> block = Block(attention, prenorm=True, feedforward=MLP(d_hidden=16))
      >>> x = jax.numpy.ones((2, 8, 4))
      >>> variables = jax.jit(block.init)(jax.random.key(0), x)
      >>> sorted(variables["params"])
      ['feedforward', 'feedforward_norm', 'layer', 'norm']
    """

    layer: nn.Module
    norm: NormKind = "layer"
    prenorm: bool = False
    dropout: Fraction = 0.0
    axis_name: AxisName = None
    feedforward: nn.Module | None = None
    rms_epsilon: PositiveFloat = 1e-5

    @property
    def takes_dt(self) -> bool:
        """Whether the layer takes the sizes of steps, ``dt``."""
        return takes_dt(self.layer)

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
    ) -> tuple[Activations, PyTree]:
        """Maps ``x`` ``(*b, l, d)`` to ``(y, state)``; ``y`` has the shape of ``x``.

        A layer that does not take ``dt`` is called without it.
        """
        check_floating("x", x)

        def residual(sublayer, x, name):
            norm = Norm(self.norm, self.axis_name, self.rms_epsilon, name=name)
            norm = functools.partial(norm, mask=mask, train=train)
            y, state = sublayer(norm(x) if self.prenorm else x)
            # One dropout mask for all steps: the length axis (-2) is broadcast.
            dropout = RowDropout(self.dropout, broadcast_dims=(-2,))
            y = x + dropout(y, train=train)
            # One `norm`, before or after: its parameters have the same name in both
            # forms.
            return y if self.prenorm else norm(y), state

        flags: dict[str, Any] = {"reset": reset, "mask": mask, "train": train}
        if dt is not None and self.takes_dt:
            flags["dt"] = dt
        x, state = residual(lambda x: self.layer(x, state, **flags), x, "norm")
        if (feedforward := self.feedforward) is not None:
            # It has no state; experts that choose among steps need to know the padding.
            x, _ = residual(
                lambda x: (feedforward(x, mask=mask, train=train), None),
                x,
                "feedforward_norm",
            )
        return x, state
