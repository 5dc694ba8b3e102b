"""The models of Hugging Face that are read and written, a table for each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ssm_jax.fields import (
    Depth,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
)
from ssm_jax.layers import Mamba, Mamba2
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import TokenEncoder
from ssm_jax.models.heads import StepHead
from ssm_jax.models.stack import SequenceModel
from ssm_jax.recurrences import SSD, SelectiveSSM

_OptionalSize = PositiveInt | None


class Layout(NamedTuple):
    """Maps between an array of a file and the parameter that it is here.

    Attributes:
      load: From that of the file.
      save: Its inverse.
    """

    load: Callable[[np.ndarray], np.ndarray]
    save: Callable[[np.ndarray], np.ndarray]


_SAME = Layout(lambda array: array, lambda array: array)
# Kernels of linear maps are (d_in, d_out) here and (d_out, d_in) there.
_TRANSPOSED = Layout(np.transpose, np.transpose)
# A depthwise kernel has one input channel per group, the axis of size 1 of (d, 1, k).
_TAPS = Layout(lambda array: array[:, 0].T, lambda array: array.T[:, None])


class Weight(NamedTuple):
    """Where a weight of a file is in the parameters.

    Attributes:
      path: Path of the parameter.
      layout: How the arrays differ.
      columns: The indices in the last axis of the parameter that the weight has, in its
        order; other weights have the others. None: it has all, in their order.
    """

    path: str
    layout: Layout = _SAME
    columns: np.ndarray | None = None


@dataclass(frozen=True)
class Format:
    """The files of a model: fields of its config, and names of its weights.

    Attributes:
      architecture: The class of ``transformers``.
      fixed: Fields that must have these values, because the layers implement no others;
        they may be absent.
      fields: Other fields that are read, with their annotations.
      defaults: Values of those of them and of `SHARED` fields that may be absent.
      build: The model of a config with these fields, which raises a ValueError that
        names fields that do not fit each other.
      describe: The fields of the config of a model, but for those of `SHARED` and
        ``fixed``; None for a model of other layers.
      embedding: Name of the embedding table.
      norm: Name and layout of the scale of the last normalization.
      prefix: Prefix of the names of a layer, before its number.
      layer: The weights of a layer, from its block and the width of the model.
    """

    architecture: str
    fixed: dict[str, Any]
    fields: dict[str, Any]
    defaults: dict[str, Any]
    build: Callable[[Mapping[str, Any]], SequenceModel]
    describe: Callable[[SequenceModel], dict[str, Any] | None]
    layer: Callable[[Block, int], Mapping[str, Weight]]
    embedding: str = "backbone.embeddings.weight"
    norm: tuple[str, Layout] = ("backbone.norm_f.weight", _SAME)
    prefix: str = "backbone.layers."

    def weights(self, model: SequenceModel) -> dict[str, Weight]:
        """Returns the weights of a model by their names in the files."""
        name, layout = self.norm
        weights = {
            self.embedding: Weight(TABLE),
            name: Weight("norm/rms/scale", layout),
        }
        if model.head is not None:
            weights[READOUT] = Weight("head/linear/dense/kernel", _TRANSPOSED)
        for i, block in enumerate(model.blocks):
            for name, weight in self.layer(block, model.encoder.d_model).items():
                path = f"block_{i}/{weight.path}"
                weights[f"{self.prefix}{i}.{name}"] = weight._replace(path=path)
        return weights


TABLE = "encoder/table/embedding"

READOUT = "lm_head.weight"

SHARED = {
    "vocab_size": PositiveInt,
    "hidden_size": PositiveInt,
    "num_hidden_layers": Depth,
    "tie_word_embeddings": bool,
}
"""Fields of every config that are read."""


def _model(config, block, encoder, **options):
    vocabulary = config["vocab_size"]
    tied = config["tie_word_embeddings"]
    return SequenceModel(
        encoder=encoder,
        block=block,
        n_layers=config["num_hidden_layers"],
        head=None if tied else StepHead(vocabulary, use_bias=False),
        **options,
    )


def _encoder(config):
    return TokenEncoder(config["hidden_size"], config["vocab_size"], std=0.02)


def _table(weights):
    """The weights of any layer."""
    return lambda block, d_model: weights


# Mamba. In all three, biases of linear maps and other activations are not implemented.
_FIXED = {"use_bias": False, "use_conv_bias": True, "hidden_act": "silu"}

_MAMBA_FIELDS: dict[str, Any] = {
    "state_size": PositiveInt,
    "expand": PositiveInt,
    "intermediate_size": _OptionalSize,
    "conv_kernel": PositiveInt,
    "time_step_rank": PositiveInt | Literal["auto"],
    "layer_norm_epsilon": PositiveFloat,
}

_MAMBA_DEFAULTS = {
    "intermediate_size": None,
    "time_step_rank": "auto",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}


def _build_mamba(config, **options):
    d, rank = config["hidden_size"], config["time_step_rank"]
    # Published configs have both, and the weights are those of the width.
    d_inner = config["intermediate_size"] or config["expand"] * d
    if d_inner % d:
        raise ValueError(f"intermediate_size = {d_inner} that is no multiple of {d}")
    # None for the default rank, so that equal models compare equal.
    is_default = rank in ("auto", -(-d // 16))
    layer = Mamba(
        recurrence=SelectiveSSM(
            d_state=config["state_size"],
            dt_rank=None if is_default else rank,
            **options,
        ),
        expand=d_inner // d,
        d_conv=config["conv_kernel"],
        n_layers=config["num_hidden_layers"],
    )
    epsilon = config["layer_norm_epsilon"]
    block = Block(layer, norm="rms", prenorm=True, rms_epsilon=epsilon)
    return _model(config, block, _encoder(config))


def _describe_mamba(model):
    # The first, of several different ones: the model is compared with its config.
    block, d = model.blocks[0], model.encoder.d_model
    layer = block.layer
    if not isinstance(layer, Mamba) or not isinstance(layer.recurrence, SelectiveSSM):
        return None
    rank = layer.recurrence.dt_rank
    return {
        "intermediate_size": layer.expand * d,
        "state_size": layer.recurrence.d_state,
        "time_step_rank": -(-d // 16) if rank is None else rank,
        "expand": layer.expand,
        "conv_kernel": layer.d_conv,
        "layer_norm_epsilon": block.rms_epsilon,
        # A constant of the modules here, so it is not read from a field.
        "residual_in_fp32": True,
    }


_MAMBA_LAYER = {
    "norm.weight": Weight("norm/rms/scale"),
    "mixer.in_proj.weight": Weight("layer/in/dense/kernel", _TRANSPOSED),
    "mixer.conv1d.weight": Weight("layer/convolution/kernel", _TAPS),
    "mixer.conv1d.bias": Weight("layer/convolution/bias"),
    "mixer.x_proj.weight": Weight(
        "layer/recurrent/recurrence/input_kernel", _TRANSPOSED
    ),
    "mixer.dt_proj.weight": Weight(
        "layer/recurrent/recurrence/step_kernel", _TRANSPOSED
    ),
    "mixer.dt_proj.bias": Weight("layer/recurrent/recurrence/step_bias"),
    "mixer.A_log": Weight("layer/recurrent/recurrence/log_rate"),
    "mixer.D": Weight("layer/recurrent/recurrence/feedthrough"),
    "mixer.out_proj.weight": Weight("layer/out/dense/kernel", _TRANSPOSED),
}

_MAMBA = Format(
    architecture="MambaForCausalLM",
    fixed=_FIXED,
    fields=_MAMBA_FIELDS,
    defaults=_MAMBA_DEFAULTS,
    build=_build_mamba,
    describe=_describe_mamba,
    layer=_table(_MAMBA_LAYER),
)


# Falcon-Mamba, a Mamba with normalized inputs of the recurrence.
def _build_falcon_mamba(config):
    return _build_mamba(config, rms_epsilon=config["mixer_rms_eps"])


def _describe_falcon_mamba(model):
    if (fields := _describe_mamba(model)) is None:
        return None
    # None in a Mamba, which the other format represents.
    epsilon = model.blocks[0].layer.recurrence.rms_epsilon
    return None if epsilon is None else fields | {"mixer_rms_eps": epsilon}


_FALCON_MAMBA = Format(
    architecture="FalconMambaForCausalLM",
    fixed=_FIXED,
    fields=_MAMBA_FIELDS | {"mixer_rms_eps": PositiveFloat},
    defaults=_MAMBA_DEFAULTS | {"mixer_rms_eps": 1e-6},
    build=_build_falcon_mamba,
    describe=_describe_falcon_mamba,
    layer=_table(_MAMBA_LAYER),
)


# Mamba-2.
def _build_mamba2(config):
    d, expand, n_groups = (
        config[name] for name in ("hidden_size", "expand", "n_groups")
    )
    n_heads, d_head = config["num_heads"], config["head_dim"]
    if n_heads * d_head != expand * d:
        raise ValueError(
            f"num_heads = {n_heads} and head_dim = {d_head}, whose product is not "
            f"{expand * d}, expand times hidden_size"
        )
    if n_heads % n_groups:
        raise ValueError(f"n_groups = {n_groups} that does not divide {n_heads} heads")
    layer = Mamba2(
        recurrence=SSD(
            d_head=d_head,
            d_state=config["state_size"],
            n_groups=n_groups,
            step_limits=config["time_step_limit"],
        ),
        expand=expand,
        d_conv=config["conv_kernel"],
        n_layers=config["num_hidden_layers"],
    )
    block = Block(layer, norm="rms", prenorm=True)
    return _model(config, block, _encoder(config))


def _describe_mamba2(model):
    layer, d = model.blocks[0].layer, model.encoder.d_model
    if not isinstance(layer, Mamba2):
        return None
    ssd = layer.recurrence
    return {
        "state_size": ssd.d_state,
        "num_heads": layer.expand * d // ssd.d_head,
        "head_dim": ssd.d_head,
        "n_groups": ssd.n_groups,
        "expand": layer.expand,
        "conv_kernel": layer.d_conv,
        "time_step_limit": ssd.step_limits,
        "residual_in_fp32": True,
    }


_MAMBA2_LAYER = {
    "norm.weight": Weight("norm/rms/scale"),
    "mixer.in_proj.weight": Weight("layer/in/dense/kernel", _TRANSPOSED),
    "mixer.conv1d.weight": Weight("layer/convolution/kernel", _TAPS),
    "mixer.conv1d.bias": Weight("layer/convolution/bias"),
    "mixer.dt_bias": Weight("layer/recurrent/recurrence/step_bias"),
    "mixer.A_log": Weight("layer/recurrent/recurrence/log_rate"),
    "mixer.D": Weight("layer/recurrent/recurrence/feedthrough"),
    "mixer.norm.weight": Weight("layer/norm/scale"),
    "mixer.out_proj.weight": Weight("layer/out/dense/kernel", _TRANSPOSED),
}

_MAMBA2 = Format(
    architecture="Mamba2ForCausalLM",
    # `norm_before_gate` is in published configs, but this class does not read it.
    fixed=_FIXED | {"layer_norm_epsilon": 1e-5},
    fields={
        "state_size": PositiveInt,
        "num_heads": PositiveInt,
        "head_dim": PositiveInt,
        "n_groups": PositiveInt,
        "expand": PositiveInt,
        "conv_kernel": PositiveInt,
        "time_step_limit": tuple[NonNegativeFloat, PositiveFloat | None],
    },
    defaults={"time_step_limit": (0.0, None), "tie_word_embeddings": False},
    build=_build_mamba2,
    describe=_describe_mamba2,
    layer=_table(_MAMBA2_LAYER),
)


FORMATS: dict[str, Format] = {
    "mamba": _MAMBA,
    "mamba2": _MAMBA2,
    "falcon_mamba": _FALCON_MAMBA,
}
"""Formats by the ``model_type`` of their configs."""
