"""`SequenceModel`: an encoder, a stack of blocks and a head."""

import functools
import string
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from ssm_jax.fields import Depth, Fraction, PositiveFloat
from ssm_jax.kernels.arguments import check_flags
from ssm_jax.kernels.platforms import target_platform
from ssm_jax.layers.dropout import RowDropout
from ssm_jax.layers.module import Module
from ssm_jax.layers.step_sizes import check_takes_dt
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import PositionalEmbedding, TokenEncoder
from ssm_jax.models.nonfinite import predict_segments
from ssm_jax.models.norm import AxisName, Norm
from ssm_jax.models.precision import ComputeDtype, call, widen
from ssm_jax.models.repeat import (
    Periods,
    apply_blocks,
    block_kinds,
    find_periods,
    init_blocks,
)
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.sharding.parameters import has_shards
from ssm_jax.types import Array, Float, Inexact, Int, PyTree, Steps, StepSizes

# On CPUs, fewer blocks compile about as fast one after the other, and their steps take
# less time (suites `depth` and `training_steps`).
_SCAN_FROM_ON_CPU = 8


class SequenceModel(Module):
    """An encoder, ``n_layers`` blocks with separate parameters, and a head.

    Attributes:
      encoder: Maps inputs to ``(*b, l, d_model)``.
      block: Block to repeat, or several different ones, see ``pattern``. With
        ``prenorm`` of the blocks a final normalization follows the last one.
      n_layers: Number of layers, each a block with its own parameters and state.
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
        into stacked arrays. None: yes, but for fewer than 8 layers without ``remat`` on
        CPUs. In calls of a single step, and where states differ in structure, blocks
        are applied one after the other. With different blocks the scan is one over the
        periods of the pattern, and the layers of a cut period follow it.
      pattern: The block of each layer, by letters: ``"a"`` is the first of ``block``,
        ``"b"`` the second. The pattern is repeated over the layers and cut at the end:
        ``"aab"`` with 8 layers means ``"aabaabaa"``. One of ``n_layers`` letters names
        each layer; what repeats in it is evaluated by scans, too. None: each block
        once, in their order, and again.
      logit_cap: Bound ``c`` of the predictions ``p``, which become ``c tanh(p / c)``,
        in float32. None means no bound.

    Several blocks are initialized by scans in any case. No number drawn, for
    parameters or dropout, depends on ``scan_blocks`` or ``remat``.

    Raises:
      ValueError: A field has the wrong type or is out of range; ``pattern`` has a
        letter without a block, or leaves out a block; or blocks differ in ``prenorm``,
        or in ``norm`` where the final or the encoder's normalization is of their kind.

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

      Two recurrences, then attention in windows; the second period is cut:

      >>> from ssm_jax.layers import RotaryAttention
      >>> attention = Block(RotaryAttention(n_heads=2, window=4))
      >>> hybrid = model.clone(
      ...     block=(model.block, attention), pattern="aab", n_layers=5
      ... )
      >>> [type(block.layer).__name__ for block in hybrid.blocks[2:]]
      ['RotaryAttention', 'RecurrentLayer', 'RecurrentLayer']
      >>> states = hybrid.initial_state((2,))
      >>> keys, values, position = states[2]
      >>> states[1].shape, keys.shape
      ((2, 8, 16), (2, 8, 2, 4))
    """

    encoder: nn.Module
    block: Block | tuple[Block, ...]
    n_layers: Depth
    head: nn.Module | None
    positions: PositionalEmbedding | None = None
    normed_encoder: bool = False
    encoder_dropout: Fraction = 0.0
    axis_name: AxisName = None
    dtype: ComputeDtype = "float32"
    remat: bool = False
    scan_blocks: bool | None = None
    pattern: str | None = None
    logit_cap: PositiveFloat | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_pattern()
        self._check_norms()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block of each layer."""
        return tuple(self._different[i] for i in self._order)

    @property
    def block_names(self) -> tuple[str, ...]:
        """Names of the parameters of each layer, which may be sharded (`Shard`)."""
        return tuple(f"block_{index}" for index in range(self.n_layers))

    @property
    def recurrence(self) -> Recurrence | None:
        """The recurrence of all layers that have one; None without, or with several.

        `layer_recurrences` returns that of each layer.
        """
        # Attention layers have no such field.
        layers = [block.layer for block in self._different]
        first, *others = [
            layer.recurrence for layer in layers if hasattr(layer, "recurrence")
        ] or [None]
        return first if all(other == first for other in others) else None

    @property
    def takes_dt(self) -> bool:
        """Whether a layer takes the sizes of steps, ``dt``."""
        return any(block.takes_dt for block in self._different)

    def initial_state(self, batch_shape: tuple[int, ...]) -> PyTree:
        """Returns the initial states, one per layer."""
        d_model = self.encoder.d_model
        # Immutable arrays, so one state can be shared by all layers of a block.
        states = [
            block.layer.initial_state(batch_shape, d_model) for block in self._different
        ]
        return tuple(states[i] for i in self._order)

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
        """Maps inputs to predictions.

        Args:
          inputs: Inputs of the encoder, ``(*b, l, f)``, or tokens, ``(*b, l)``.
          state: Initial states of all layers, as returned by `initial_state` or by a
            previous call. None means `initial_state`.
          reset: True where a segment starts, ``(*b, l)``. None means a single segment.
          mask: True at valid steps, ``(*b, l)``. None means that all steps are valid.
          train: Whether dropout is active and BatchNorm uses the moments of the batch.
          dt: Factor of the size of each step, ``(*b, l)``, for the layers that take it;
            see `Block`. None means 1.

        Returns:
          ``(predictions, state)``: output of the head, and the final states.

        Raises:
          ValueError: ``state`` does not hold one state per layer, or is given to a
            model with positional embeddings, whose positions count from the first step
            of a call; ``head`` is None and the encoder is not a `TokenEncoder`; or
            ``dt`` is given and no layer takes it.
        """
        check_flags("reset", reset)
        check_flags("mask", mask)
        check_takes_dt(self, dt)
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
        coupled = train and any(block.norm == "batch" for block in self._different)
        # Layers without a state return None, which may be passed back.
        if self.positions is not None and jax.tree.leaves(state):
            raise ValueError(
                "`state` must be None for a model with positions, got one; positions "
                "count from the first step of a call."
            )
        flags: dict[str, Any] = {"reset": reset, "mask": mask, "train": train}
        if dt is not None:
            flags["dt"] = dt
        predictions, states = predict_segments(
            functools.partial(self._call, self.encoder),
            functools.partial(self._predict, **flags),
            inputs,
            states,
            None if coupled else reset,
            mask,
            head=self.head,
            bidirectional=None if reset is None else self._is_bidirectional(),
        )
        # Losses and carried states are float32.
        return widen(self.dtype, (predictions, states))

    def _predict(self, x, states, *, reset, mask, train, **sizes):
        """Maps the output of the encoder to predictions and final states."""
        if self.positions is not None:
            x = self._call(self.positions, x, reset=reset, mask=mask)
        if self.normed_encoder:
            norm = self._norm("encoder_norm")
            x = self._call(norm, x, mask=mask, train=train)
        x = RowDropout(self.encoder_dropout)(x, train=train)
        flags = {"reset": reset, "mask": mask, "train": train, **sizes}
        x, states = self._blocks(x, states, **flags)
        if self._different[0].prenorm:
            # The residual stream of pre-norm blocks grows with the depth.
            x = self._call(self._norm("norm"), x, mask=mask, train=train)
        predictions = self._head(x, mask, train)
        if self.logit_cap is not None:
            predictions = widen(self.dtype, predictions)
            predictions = self.logit_cap * jnp.tanh(predictions / self.logit_cap)
        return predictions, states

    def _blocks(self, x, states, **flags):
        """Applies the blocks; returns the last output and the final states."""
        names = self.block_names
        detached = [
            block.clone(parent=None, name=None, axis_name=self.axis_name)
            for block in self._different
        ]
        blocks = [detached[i] for i in self._order]
        periods = [Periods(index, 1, 1) for index in range(self.n_layers)]
        if self.is_initializing() or self._scans_blocks(x.shape[-2]):
            periods = find_periods(block_kinds(blocks, self.variables, names, states))
        options = {"periods": periods, **flags}
        if not self.is_initializing():
            options |= {"dtype": self.dtype, "remat": self.remat}
            return apply_blocks(self, blocks, names, x, states, **options)
        if isinstance(self.block, tuple) or len(periods) == 1 < self.n_layers:
            return init_blocks(self, blocks, names, x, states, **options)
        final_states = []
        for name, initial in zip(names, states, strict=True):
            # A copy per layer, because one shared module would share its parameters.
            block = self.block.copy(name=name, axis_name=self.axis_name)
            x, final = self._call(block, x, state=initial, **flags)
            final_states.append(final)
        return x, tuple(final_states)

    @property
    def _different(self):
        """The different blocks, in the order of their letters."""
        return self.block if isinstance(self.block, tuple) else (self.block,)

    @property
    def _order(self):
        """The index of the block of each layer."""
        letters = string.ascii_lowercase
        order = range(len(self._different))
        if self.pattern is not None:
            order = [letters.index(letter) for letter in self.pattern]
        return [order[i % len(order)] for i in range(self.n_layers)]

    def _is_bidirectional(self):
        """Whether outputs depend on later steps; None if the states tell."""

        def looks_ahead(layer):
            flag = getattr(layer, "bidirectional", None)
            if flag is None:
                d_model = self.encoder.d_model
                # Shapes only: no array is allocated.
                state = jax.eval_shape(lambda: layer.initial_state((1,), d_model))
                leaves = jax.tree.leaves(state, is_leaf=lambda leaf: leaf is None)
                flag = not leaves or any(leaf is None for leaf in leaves)
            return flag

        first, *others = self._different
        if not others:
            return getattr(first.layer, "bidirectional", None)
        # Causal attention over all steps has no state, and would tell the opposite.
        return any(looks_ahead(block.layer) for block in self._different)

    def _check_pattern(self):
        n, pattern = len(self._different), self.pattern
        if n == 0:
            raise ValueError(
                "`block` must be a block or a tuple of at least one, got (); `Block` "
                "describes one."
            )
        letters = string.ascii_lowercase[:n]
        if pattern is not None and not set(pattern) <= set(letters) or pattern == "":
            raise ValueError(
                f"`pattern` must be of the letters {letters!r}, one for each of the "
                f"{n} blocks, got {pattern!r}; give `block` a block for each letter."
            )
        if unused := sorted(set(range(n)) - set(self._order)):
            shown = letters if pattern is None else pattern
            raise ValueError(
                f"`pattern` must name every block in the first {self.n_layers} layers, "
                f"got {shown!r} without block {unused[0]} of {n}; leave the block out, "
                "or take more layers."
            )

    def _check_norms(self):
        prenorm = [block.prenorm for block in self._different]
        if len(set(prenorm)) > 1:
            raise ValueError(
                "`block` must hold blocks of one `prenorm`, because a normalization "
                f"follows the last block of prenorm ones alone, got {prenorm}; set all "
                "to the same."
            )
        norms = [(block.norm, block.rms_epsilon) for block in self._different]
        if len(set(norms)) > 1 and (prenorm[0] or self.normed_encoder):
            raise ValueError(
                "`block` must hold blocks of one `norm` and `rms_epsilon`, because the "
                f"normalization outside of them has those, got {norms}; set all to the "
                "same."
            )

    def _norm(self, name):
        block = self._different[0]
        return Norm(block.norm, self.axis_name, block.rms_epsilon, name=name)

    def _scans_blocks(self, length):
        # A single step is cheap to compile, and stacking the parameters would take more
        # time than the step.
        if length == 1:
            return False
        if self.scan_blocks is not None:
            return self.scan_blocks
        # On CPUs, XLA computes only the blocks of a scan again when they are needed.
        again = self.remat or has_shards(self.variables)
        few = self.n_layers < _SCAN_FROM_ON_CPU and not again
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
