"""A block: layers inside their residual connections, normalisation and dropout."""

import functools

from flax import linen as nn

from ssm_jax.fields import Fraction
from ssm_jax.kernels.arguments import check_floating
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.models.norm import Norm, NormKind
from ssm_jax.types import Activations, PyTree, Steps


class Block(Module):
    """``x + dropout(layer(x))``, normalised before the layer or after the sum.

    With a ``feedforward`` the same once more around it: a Transformer's block.

    Attributes:
      layer: Module of the call ``(x, state, *, reset, mask, train) -> (y, state)``.
      norm: Which normalisation.
      prenorm: Normalises what enters the layer; else what leaves the sum.
      dropout: Probability that a channel of a layer's output is dropped, at all steps
        of a sequence.
      axis_name: Mapped axis that the batch is spread over, whose devices share the
        moments of BatchNorm. None: none.
      feedforward: Module of the call ``(x, *, train) -> y``, such as an `MLP`, behind
        the layer, in a residual connection with a normalisation of its own. None: none.

    Example:
      >>> import jax
      >>> from ssm_jax.layers import MLP, Attention
      >>> attention = Attention(n_heads=2, bidirectional=True)
      >>> block = Block(attention, prenorm=True, feedforward=MLP(d_hidden=16))
      >>> x = jax.numpy.ones((2, 8, 4))
      >>> variables = block.init(jax.random.key(0), x)
      >>> sorted(variables["params"])
      ['feedforward', 'feedforward_norm', 'layer', 'norm']
    """

    layer: nn.Module
    norm: NormKind = "layer"
    prenorm: bool = False
    dropout: Fraction = 0.0
    axis_name: str | None = None
    feedforward: nn.Module | None = None

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
        check_floating("x", x)

        def around(sublayer, x, name):
            norm = Norm(self.norm, self.axis_name, name=name)
            norm = functools.partial(norm, mask=mask, train=train)
            y, state = sublayer(norm(x) if self.prenorm else x)
            drop = RowDropout(self.dropout, broadcast_dims=(-2,))
            y = x + drop(y, train=train)
            return y if self.prenorm else norm(y), state

        flags = {"reset": reset, "mask": mask, "train": train}
        x, state = around(lambda x: self.layer(x, state, **flags), x, "norm")
        if (feedforward := self.feedforward) is not None:
            x, _ = around(
                lambda x: (feedforward(x, train=train), None), x, "feedforward_norm"
            )
        return x, state
