"""The model: an encoder, blocks, a head; the states of all layers go through it."""

import jax
from flax import linen as nn

from ssm_jax.fields import Depth, Fraction
from ssm_jax.kernels.arguments import check_flags
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import PositionalEmbedding, TokenEncoder
from ssm_jax.models.norm import Norm
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.types import Array, Float, Inexact, Int, PyTree, Steps


class SequenceModel(Module):
    """Encoder, ``n_layers`` equal blocks (each with parameters of its own), head.

    Attributes:
      encoder: Maps inputs to ``(*b, l, d_model)``.
      block: What is repeated. With ``prenorm`` a last normalisation follows the blocks.
      n_layers: Number of blocks.
      head: Maps ``(*b, l, d_model)`` to predictions. None: the encoder's own table does
        so at every step, as `TokenEncoder.attend` says; after a normalisation its
        logits start with the deviation 1 if the table does with ``d_model ** -0.5``.
      positions: Adds learned positions to what the encoder gives. None: no positions.
      normed_encoder: Whether a normalisation as the blocks' follows the encoder.
      encoder_dropout: Probability that a number is dropped of what enters the first
        block, after that normalisation.
      axis_name: Mapped axis that the batch is spread over, whose devices share the
        moments of BatchNorm. None: none.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from ssm_jax.layers import ChannelMixing, RecurrentLayer
      >>> from ssm_jax.models import Block, SequenceModel, StepHead, VectorEncoder
      >>> from ssm_jax.recurrences import DLR
      >>> model = SequenceModel(
      ...     encoder=VectorEncoder(d_model=8),
      ...     block=Block(RecurrentLayer(DLR(d_state=16), ChannelMixing())),
      ...     n_layers=2,
      ...     head=StepHead(d_output=1),
      ... )
      >>> x = jnp.ones((2, 32, 3))
      >>> variables = model.init(jax.random.key(0), x)
      >>> whole, _ = model.apply(variables, x)
      >>> first, state = model.apply(variables, x[:, :20])
      >>> second, _ = model.apply(variables, x[:, 20:], state)
      >>> bool(jnp.allclose(whole[:, 20:], second, atol=1e-5))
      True
    """

    encoder: nn.Module
    block: Block
    n_layers: Depth
    head: nn.Module | None
    positions: PositionalEmbedding | None = None
    normed_encoder: bool = False
    encoder_dropout: Fraction = 0.0
    axis_name: str | None = None

    @property
    def recurrence(self) -> Recurrence | None:
        """That of each layer; None where layers have none."""
        return getattr(self.block.layer, "recurrence", None)

    def initial_state(self, batch_shape: tuple[int, ...]) -> PyTree:
        """The states of all layers before the first step, one a layer."""
        state = self.block.layer.initial_state(batch_shape, self.encoder.d_model)
        return (state,) * self.n_layers

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "*b l f"] | Int[Array, "*b l"],
        state: PyTree = None,
        *,
        reset: Steps | None = None,
        mask: Steps | None = None,
        train: bool = False,
    ) -> tuple[Inexact[Array, "..."], PyTree]:
        """Maps inputs to predictions.

        Args:
          inputs: What the encoder takes, ``(*b, l, f)`` or tokens ``(*b, l)``.
          state: States of all layers before the first step, as `initial_state` makes
            them and the last call returned them. None means a fresh start.
          reset: True where a segment starts, ``(*b, l)``. None means one segment.
          mask: True where a step is data, ``(*b, l)``. None means all are.
          train: Whether dropout drops and BatchNorm takes the batch's moments.

        Returns:
          ``(predictions, state)``: what the head makes, and the states to go on from.

        Raises:
          ValueError: ``state`` is not one state a layer, or is given to a model with
            positions, which count from the first step of a call; or there is no head,
            and no table either.
        """
        check_flags("reset", reset)
        check_flags("mask", mask)
        if state is not None and not isinstance(state, tuple | list):
            raise ValueError(
                f"`state` must hold {self.n_layers} states, one a layer, got "
                f"{type(state).__name__}; `initial_state` makes them."
            )
        states = (None,) * self.n_layers if state is None else state
        if len(states) != self.n_layers:
            raise ValueError(
                f"`state` must hold {self.n_layers} states, one a layer, got "
                f"{len(states)}; `initial_state` makes them."
            )
        x = self.encoder(inputs)
        if self.positions is not None:
            if jax.tree.leaves(state):
                raise ValueError(
                    "`state` must be None for a model with positions, got one; they "
                    "count from the first step of a call."
                )
            x = self.positions(x, reset=reset, mask=mask)
        if self.normed_encoder:
            norm = Norm(self.block.norm, self.axis_name, name="encoder_norm")
            x = norm(x, mask=mask, train=train)
        x = RowDropout(self.encoder_dropout)(x, train=train)
        carried = []
        for index, before in enumerate(states):
            block = self.block.copy(name=f"block_{index}", axis_name=self.axis_name)
            x, after = block(x, before, reset=reset, mask=mask, train=train)
            carried.append(after)
        if self.block.prenorm:
            norm = Norm(self.block.norm, self.axis_name, name="norm")
            x = norm(x, mask=mask, train=train)
        return self._predictions(x, mask, train), tuple(carried)

    def _predictions(self, x, mask, train):
        if self.head is not None:
            return self.head(x, mask=mask, train=train)
        if not isinstance(self.encoder, TokenEncoder):
            raise ValueError(
                "`head` must be given unless the encoder is a `TokenEncoder`, got None "
                f"with {type(self.encoder).__name__}; `StepHead` predicts at each step."
            )
        return self.encoder.attend(x)
