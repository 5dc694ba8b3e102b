"""A block: a layer inside its residual connection, normalisation and dropout."""

from flax import linen as nn

from ssm_jax.models.norm import Norm, NormKind
from ssm_jax.types import Activations, PyTree, Steps


class Block(nn.Module):
    """``x + dropout(layer(x))``, normalised before the layer or after the sum.

    Attributes:
      layer: Module of the call ``(x, state, *, reset, mask, train) -> (y, state)``.
      norm: Which normalisation.
      prenorm: Normalises what enters the layer; else what leaves the sum.
      dropout: Probability that a channel of the layer's output is dropped, at all
        steps of a sequence.
      axis_name: Mapped axis over which BatchNorm shares its moments. None: none.
    """

    layer: nn.Module
    norm: NormKind = "layer"
    prenorm: bool = False
    dropout: float = 0.0
    axis_name: str | None = None

    @nn.compact
    def __call__(
        self,
        x: Activations,
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
    ) -> tuple[Activations, PyTree]:
        """Maps ``x`` ``(*b, l, d)`` to ``(y, state)`` of the same width."""
        norm = Norm(self.norm, self.axis_name, name="norm")
        entering = norm(x, mask=mask, train=train) if self.prenorm else x
        y, state = self.layer(entering, state, reset=reset, mask=mask, train=train)
        y = nn.Dropout(self.dropout, broadcast_dims=(-2,), deterministic=not train)(y)
        y = x + y
        return y if self.prenorm else norm(y, mask=mask, train=train), state
