"""The models of Hugging Face that are read and written, a table for each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from ssm_jax.fields import (
    Depth,
    Interval,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    check_value,
)
from ssm_jax.layers import GatedMLP, Griffin, Mamba, Mamba2, SlidingAttention
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import TokenEncoder
from ssm_jax.models.heads import StepHead
from ssm_jax.models.stack import SequenceModel
from ssm_jax.recurrences import RGLRU, SSD, SelectiveSSM

_OptionalSize = PositiveInt | None
_OptionalFields = dict[str, Any] | None


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
# Files have the difference of a scale from 1.
_LESS_ONE = Layout(lambda array: 1 + array, lambda array: array - 1)
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


# RecurrentGemma. Both kinds of layers have the same feed-forward layers.
_KINDS = {"recurrent": Griffin, "attention": SlidingAttention}


def _build_recurrent_gemma(config):
    d, d_mlp = config["hidden_size"], config["intermediate_size"]
    n_heads, n_kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    d_head = config["head_dim"] or d // n_heads
    for name, value, divisor in (
        # Twice the width of a feed-forward layer.
        ("intermediate_size", d_mlp, 2),
        ("hidden_size", d, 1 if config["head_dim"] else n_heads),
        ("lru_width", config["lru_width"] or d, n_heads),
        ("num_attention_heads", n_heads, n_kv_heads or n_heads),
    ):
        if value % divisor:
            raise ValueError(f"{name} = {value} that is no multiple of {divisor}")
    n_layers, period = config["num_hidden_layers"], config["block_types"]
    if {*period[:n_layers]} != {*_KINDS}:
        raise ValueError(f"block_types = {period!r}, without one of both kinds")
    share = _rotated_share(config)
    # Rounded down, as there.
    d_rotary = int(share * d_head)
    if d_rotary % 2 or d_rotary == 0:
        raise ValueError(
            f"partial_rotary_factor = {share} of {d_head} channels, no even number"
        )
    griffin = Griffin(
        RGLRU(n_heads=n_heads), width=config["lru_width"], d_conv=config["conv1d_width"]
    )
    attention = SlidingAttention(
        n_heads=n_heads,
        window=config["attention_window_size"],
        n_kv_heads=n_kv_heads,
        d_head=config["head_dim"],
        d_rotary=None if share == 1 else d_rotary,
    )
    blocks = tuple(
        Block(
            layer,
            norm="rms",
            prenorm=True,
            feedforward=GatedMLP(d_mlp // 2),
            rms_epsilon=config["rms_norm_eps"],
        )
        for layer in (griffin, attention)
    )
    # The authors round the factor of the embedded tokens to bfloat16.
    scale = float(jnp.bfloat16(d**0.5))
    return _model(
        config,
        blocks,
        TokenEncoder(d, config["vocab_size"], std=d**-0.5, scale=scale),
        pattern="".join("ab"[[*_KINDS].index(kind)] for kind in period),
        logit_cap=config["logits_soft_cap"],
    )


def _rotated_share(config):
    """The share of the channels of a head that are rotated."""
    rope = {name: config[name] for name in ("rope_theta", "partial_rotary_factor")}
    # Newer files have one field with both.
    rope = {"rope_type": "default"} | rope | (config["rope_parameters"] or {})
    share = rope.pop("partial_rotary_factor")
    if rope != {"rope_type": "default", "rope_theta": 10_000.0}:
        raise ValueError(
            f"rope_theta = {config['rope_theta']} and rope_parameters = "
            f"{config['rope_parameters']}, another rotation than the published one"
        )
    check_value("partial_rotary_factor", share, Annotated[float, Interval(gt=0, le=1)])
    return share


def _describe_recurrent_gemma(model):
    d, period = model.encoder.d_model, model.pattern or model.blocks
    layers = [block.layer for block in model.blocks[: len(period)]]
    kinds = [
        kind for layer in layers for kind, of in _KINDS.items() if isinstance(layer, of)
    ]
    if {*kinds} != {*_KINDS} or len(kinds) != len(layers):
        return None
    griffin, attention = (layers[kinds.index(kind)] for kind in _KINDS)
    block, d_head = model.blocks[0], attention.d_head or d // attention.n_heads
    if not isinstance(block.feedforward, GatedMLP):
        return None
    fields = {
        "intermediate_size": 2 * block.feedforward.d_hidden,
        "num_attention_heads": attention.n_heads,
        "num_key_value_heads": attention.n_kv_heads,
        "lru_width": griffin.width,
        "attention_window_size": attention.window,
        "conv1d_width": griffin.d_conv,
        "logits_soft_cap": model.logit_cap,
        "rms_norm_eps": block.rms_epsilon,
        "block_types": tuple(kinds),
        "partial_rotary_factor": (attention.d_rotary or d_head) / d_head,
        "rope_theta": 10_000.0,
    }
    # Unlike for other fields, `transformers` takes no null for its default.
    return fields | ({"head_dim": d_head} if attention.d_head else {})


def _linear(name, path):
    return {
        f"{name}.weight": Weight(f"{path}/dense/kernel", _TRANSPOSED),
        f"{name}.bias": Weight(f"{path}/dense/bias"),
    }


_RECURRENT_GEMMA_BLOCK = {
    "temporal_pre_norm.weight": Weight("norm/rms/scale", _LESS_ONE),
    "channel_pre_norm.weight": Weight("feedforward_norm/rms/scale", _LESS_ONE),
    **_linear("mlp_block.gate_proj", "feedforward/gate"),
    **_linear("mlp_block.up_proj", "feedforward/in"),
    **_linear("mlp_block.down_proj", "feedforward/out"),
}


def _recurrent_gemma_layer(block, d_model):
    """The weights of a layer of either kind."""
    weights = _griffin if isinstance(block.layer, Griffin) else _attention
    return _RECURRENT_GEMMA_BLOCK | {
        f"temporal_block.{name}": weight._replace(path=f"layer/{weight.path}")
        for name, weight in weights(block.layer, d_model).items()
    }


def _griffin(layer, d_model):
    del d_model
    n_heads = layer.recurrence.n_heads
    by_heads = Layout(np.ravel, lambda array: array.reshape(n_heads, -1))
    unit = "recurrent/recurrence"
    return {
        **_linear("linear_x", "in"),
        **_linear("linear_y", "gate"),
        **_linear("linear_out", "out"),
        "conv_1d.weight": Weight("convolution/kernel", _TAPS),
        "conv_1d.bias": Weight("convolution/bias"),
        "rg_lru.recurrent_param": Weight(f"{unit}/inverse_softplus_rate"),
        # Unlike those of linear maps these are (d_in, d_out) there, too.
        "rg_lru.input_gate_weight": Weight(f"{unit}/input_gate_kernel"),
        "rg_lru.input_gate_bias": Weight(f"{unit}/input_gate_bias", by_heads),
        "rg_lru.recurrent_gate_weight": Weight(f"{unit}/decay_gate_kernel"),
        "rg_lru.recurrent_gate_bias": Weight(f"{unit}/decay_gate_bias", by_heads),
    }


def _attention(layer, d_model):
    n_heads, n_kv_heads = layer.n_heads, layer.n_kv_heads or layer.n_heads
    d_head = layer.d_head or d_model // n_heads
    n_rotated = layer.d_rotary or d_head
    # The channels that are rotated together are neighbours here; there the first half
    # of those that are rotated has the first of each pair.
    rotated = np.r_[0:n_rotated:2, 1:n_rotated:2, n_rotated:d_head]
    weights, first = _linear("o_proj", "out"), 0
    for name, n, channels in (
        ("q_proj", n_heads, rotated),
        ("k_proj", n_kv_heads, rotated),
        ("v_proj", n_kv_heads, np.arange(d_head)),
    ):
        heads = np.arange(first, first + n)
        columns = (d_head * heads[:, None] + channels).ravel()
        weights[f"{name}.weight"] = Weight("in/dense/kernel", _TRANSPOSED, columns)
        first += n
    return weights


_RECURRENT_GEMMA = Format(
    architecture="RecurrentGemmaForCausalLM",
    fixed={
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "embeddings_scale_by_sqrt_dim": True,
    },
    fields={
        "intermediate_size": PositiveInt,
        "num_attention_heads": PositiveInt,
        "num_key_value_heads": _OptionalSize,
        "head_dim": _OptionalSize,
        "lru_width": _OptionalSize,
        "attention_window_size": PositiveInt,
        "conv1d_width": PositiveInt,
        "logits_soft_cap": PositiveFloat,
        "rms_norm_eps": PositiveFloat,
        "block_types": tuple[Literal["recurrent", "attention"], ...],
        "partial_rotary_factor": PositiveFloat,
        "rope_theta": PositiveFloat,
        "rope_parameters": _OptionalFields,
    },
    defaults={
        "num_key_value_heads": None,
        "head_dim": None,
        "lru_width": None,
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "rms_norm_eps": 1e-6,
        "block_types": ("recurrent", "recurrent", "attention"),
        "partial_rotary_factor": 0.5,
        "rope_theta": 10_000.0,
        "rope_parameters": None,
        "tie_word_embeddings": True,
    },
    build=_build_recurrent_gemma,
    describe=_describe_recurrent_gemma,
    layer=_recurrent_gemma_layer,
    embedding="model.embed_tokens.weight",
    norm=("model.final_norm.weight", _LESS_ONE),
    prefix="model.layers.",
)


FORMATS: dict[str, Format] = {
    "mamba": _MAMBA,
    "mamba2": _MAMBA2,
    "falcon_mamba": _FALCON_MAMBA,
    "recurrent_gemma": _RECURRENT_GEMMA,
}
"""Formats by the ``model_type`` of their configs."""
