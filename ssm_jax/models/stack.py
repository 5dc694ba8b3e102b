"""`SequenceModel`: an encoder, a stack of blocks and a head."""

import functools

import jax
from flax import linen as nn

from ssm_jax.fields import Depth, Fraction
from ssm_jax.kernels.arguments import check_flags
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import PositionalEmbedding, TokenEncoder
from ssm_jax.models.nonfinite import predict_segments
from ssm_jax.models.norm import AxisName, Norm
from ssm_jax.models.precision import ComputeDtype, call, widen
from ssm_jax.models.repeat import apply_blocks, can_scan, init_blocks
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.types import Array, Float, Inexact, Int, PyTree, Steps

# On CPUs, fewer blocks compile about as fast one after the other, and their steps take
# less time (suites `depth` and `training_steps`).
_SCAN_FROM_ON_CPU = 8


class SequenceModel(Module):
    """An encoder, ``n_layers`` blocks with separate parameters, and a head.

    Attributes:
      encoder: Maps inputs to ``(*b, l, d_model)``.
      block: Block to repeat. With ``block.prenorm`` a final normalization follows the
        last block.
      n_layers: Number of blocks.
      head: Maps ``(*b, l, d_model)`` to predictions. None uses `TokenEncoder.attend`
        with the table of the encoder; after a normalization the initial logits have
        standard deviation 1 if that of the table is ``d_model ** -0.5``.
      positions: Adds learned positional embeddings to the encoded inputs. None means no
        positional embeddings.
      normed_encoder: Whether to apply the blocks' kind of normalization to the encoded
        inputs.
      encoder_dropout: Probability of dropping an element of the input of the first
        block, after that normalization.
      axis_name: Mapped axis over which the batch is sharded; BatchNorm shares its
        moments over it. None means that the batch is not sharded.
      dtype: Dtype of the computation; see `ComputeDtype`. Predictions are float32.
      remat: Whether the activations within each block are computed again for the
        gradient instead of stored, which takes one more evaluation of the blocks and
        memory for the activations of one block only.
      scan_blocks: Whether the blocks are evaluated by one `jax.lax.scan` over their
        stacked parameters, so that the program contains one block, whatever the depth;
        it holds a second copy of the parameters, and copies what the gradient needs
        into stacked arrays. None: yes, but for fewer than 8 blocks without ``remat`` on
        CPUs. In calls of a single step, and where states differ in structure, blocks
        are applied one after the other.

    Several blocks are initialized by one scan in any case. No number drawn, for
    parameters or dropout, depends on ``scan_blocks`` or ``remat``.

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
      >>> variables = jax.jit(model.init)(jax.random.key(0), x)
      >>> whole, _ = jax.jit(model.apply)(variables, x)
      >>> first, state = jax.jit(model.apply)(variables, x[:, :20])
      >>> second, _ = jax.jit(model.apply)(variables, x[:, 20:], state)
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
    axis_name: AxisName = None
    dtype: ComputeDtype = "float32"
    remat: bool = False
    scan_blocks: bool | None = None

    @property
    def recurrence(self) -> Recurrence | None:
        """The recurrence of the layers; None if they have none."""
        # Attention layers have no such field.
        return getattr(self.block.layer, "recurrence", None)

    def initial_state(self, batch_shape: tuple[int, ...]) -> PyTree:
        """Returns the initial states, one per layer."""
        state = self.block.layer.initial_state(batch_shape, self.encoder.d_model)
        # Immutable arrays, so one state can be shared by all layers.
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
          inputs: Inputs of the encoder, ``(*b, l, f)``, or tokens, ``(*b, l)``.
          state: Initial states of all layers, as returned by `initial_state` or by a
            previous call. None means `initial_state`.
          reset: True where a segment starts, ``(*b, l)``. None means a single segment.
          mask: True at valid steps, ``(*b, l)``. None means that all steps are valid.
          train: Whether dropout is active and BatchNorm uses the moments of the batch.

        Returns:
          ``(predictions, state)``: output of the head, and the final states.

        Raises:
          ValueError: ``state`` does not hold one state per layer, or is given to a
            model with positional embeddings, whose positions count from the first step
            of a call; or ``head`` is None and the encoder is not a `TokenEncoder`.
        """
        check_flags("reset", reset)
        check_flags("mask", mask)
        if state is not None and not isinstance(state, tuple | list):
            raise ValueError(
                f"`state` must hold {self.n_layers} states, one per layer, got "
                f"{type(state).__name__}; `initial_state` returns them."
            )
        states = (None,) * self.n_layers if state is None else state
        if len(states) != self.n_layers:
            raise ValueError(
                f"`state` must hold {self.n_layers} states, one per layer, got "
                f"{len(states)}; `initial_state` returns them."
            )
        # The moments of a batch are those of all segments.
        coupled = train and self.block.norm == "batch"
        # Layers without a state return None, which may be passed back.
        if self.positions is not None and jax.tree.leaves(state):
            raise ValueError(
                "`state` must be None for a model with positions, got one; positions "
                "count from the first step of a call."
            )
        flags = {"reset": reset, "mask": mask, "train": train}
        predictions, states = predict_segments(
            functools.partial(self._call, self.encoder),
            functools.partial(self._predict, **flags),
            inputs,
            states,
            None if coupled else reset,
            mask,
            head=self.head,
            bidirectional=getattr(self.block.layer, "bidirectional", None),
        )
        # Losses and carried states are float32.
        return widen(self.dtype, (predictions, states))

    def _predict(self, x, states, *, reset, mask, train):
        """Maps the output of the encoder to predictions and final states."""
        if self.positions is not None:
            x = self._call(self.positions, x, reset=reset, mask=mask)
        if self.normed_encoder:
            norm = Norm(self.block.norm, self.axis_name, name="encoder_norm")
            x = self._call(norm, x, mask=mask, train=train)
        x = RowDropout(self.encoder_dropout)(x, train=train)
        x, states = self._blocks(x, states, reset=reset, mask=mask, train=train)
        if self.block.prenorm:
            # The residual stream of pre-norm blocks grows with the depth.
            norm = Norm(self.block.norm, self.axis_name, name="norm")
            x = self._call(norm, x, mask=mask, train=train)
        return self._head(x, mask, train), states

    def _blocks(self, x, states, **flags):
        """Applies the blocks; returns the last output and the final states."""
        names = [f"block_{index}" for index in range(self.n_layers)]
        block = self.block.clone(parent=None, name=None, axis_name=self.axis_name)
        scan = (
            self.n_layers > 1
            and (self.is_initializing() or self._scans_blocks(x.shape[-2]))
            and can_scan(self.variables, names, states)
        )
        if not self.is_initializing():
            options = {"dtype": self.dtype, "remat": self.remat, "scan": scan}
            return apply_blocks(self, block, names, x, states, **options, **flags)
        if scan:
            return init_blocks(self, block, names, x, states, **flags)
        final_states = []
        for name, initial in zip(names, states, strict=True):
            # A copy per layer, because one shared module would share its parameters.
            block = self.block.copy(name=name, axis_name=self.axis_name)
            x, final = self._call(block, x, state=initial, **flags)
            final_states.append(final)
        return x, tuple(final_states)

    def _scans_blocks(self, length):
        # A single step is cheap to compile, and stacking the parameters would take more
        # time than the step.
        if length == 1:
            return False
        if self.scan_blocks is not None:
            return self.scan_blocks
        # On CPUs, XLA computes only the blocks of a scan again when they are needed.
        few = self.n_layers < _SCAN_FROM_ON_CPU and not self.remat
        return not few or target_platform() != "cpu"

    def _call(self, module, *args, **flags):
        return call(self.dtype, module, *args, **flags)

    def _head(self, x, mask, train):
        if self.head is not None:
            return self._call(self.head, x, mask=mask, train=train)
        if not isinstance(self.encoder, TokenEncoder):
            raise ValueError(
                "`head` must be given unless the encoder is a `TokenEncoder`, got None "
                f"with {type(self.encoder).__name__}; `StepHead` predicts at each step."
            )
        return self._call(self.encoder, x, method="attend")
