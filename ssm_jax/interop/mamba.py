"""Conversion of Mamba models from and to the format of Hugging Face.

Requires the package ``safetensors`` (extra ``[interop]``) and no other framework.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.core import meta

from ssm_jax.layers import Mamba
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import SelectiveSSM
from ssm_jax.types import PyTree

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

# Fields that must have these values, because `Mamba` implements no others.
_FIXED = {
    "model_type": "mamba",
    "use_bias": False,
    "use_conv_bias": True,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "layer_norm_epsilon": 1e-5,
}

_LAYER = {
    "norm.weight": ("norm", "rms", "scale"),
    "mixer.in_proj.weight": ("layer", "in", "dense", "kernel"),
    "mixer.conv1d.weight": ("layer", "convolution", "kernel"),
    "mixer.conv1d.bias": ("layer", "convolution", "bias"),
    "mixer.x_proj.weight": ("layer", "recurrent", "recurrence", "input_kernel"),
    "mixer.dt_proj.weight": ("layer", "recurrent", "recurrence", "step_kernel"),
    "mixer.dt_proj.bias": ("layer", "recurrent", "recurrence", "step_bias"),
    "mixer.A_log": ("layer", "recurrent", "recurrence", "log_rate"),
    "mixer.D": ("layer", "recurrent", "recurrence", "feedthrough"),
    "mixer.out_proj.weight": ("layer", "out", "dense", "kernel"),
}


def load_mamba(
    folder: str | os.PathLike[str],
) -> tuple[SequenceModel, dict[str, Any]]:
    """Loads a Mamba model saved by Hugging Face's ``MambaForCausalLM``.

    Args:
      folder: Directory with ``config.json`` and the weights in one or several
        ``.safetensors`` files.

    Returns:
      ``(model, variables)``: the model, which predicts the next token at each step, and
      its parameters as float32 numpy arrays.

    Raises:
      FileNotFoundError: A file does not exist.
      ValueError: The config describes another model, or the weights do not fit it.

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023
    """
    # Imported here, because the package is optional.
    from safetensors.numpy import load_file

    folder = Path(folder)
    model = _model(json.loads((folder / CONFIG).read_text()), folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"`folder` must hold .safetensors files, got none in {folder}; older "
            "checkpoints are pickles, which `transformers` can convert."
        )
    # Large models are published in several files, whose names do not overlap.
    weights = {name: array for file in files for name, array in load_file(file).items()}
    weights.pop("lm_head.weight", None)  # tied: a copy of the embedding table
    params = _template(model)
    paths = _paths(model.n_layers)
    if weights.keys() != paths.keys():
        different = sorted(weights.keys() ^ paths.keys())
        raise ValueError(
            f"`folder` must hold the weights of {model.n_layers} layers of Mamba, got "
            f"missing or unexpected weights {different[:3]} in {folder}."
        )
    for name, path in paths.items():
        *parents, last = path
        parent = params
        for key in parents:
            parent = parent[key]
        # Published weights may be in bfloat16 or float16; parameters are float32.
        value = _from_hf(name, weights[name].astype(np.float32))
        if value.shape != parent[last].shape:
            raise ValueError(
                f"`folder` must hold {parent[last].shape} for {name}, as its config "
                f"says, got {value.shape} in {folder}."
            )
        parent[last] = value
    return model, {"params": params}


def save_mamba(
    model: SequenceModel, variables: PyTree, folder: str | os.PathLike[str]
) -> None:
    """Saves a Mamba model in the format of Hugging Face's ``MambaForCausalLM``.

    Args:
      model: A model of blocks of `Mamba`, as `load_mamba` returns it.
      variables: Its parameters.
      folder: Directory to write ``config.json`` and ``model.safetensors`` to; created
        if missing.

    Raises:
      ValueError: The format cannot represent the model.
    """
    from safetensors.numpy import save_file

    config = _config(model)
    # Converting back detects every field that the format cannot represent.
    if _model(config, Path(folder)) != model:
        raise ValueError(
            "`model` must be a `SequenceModel` of prenorm RMS blocks of `Mamba` and a "
            f"`TokenEncoder`, without a head, got {model}; the format represents no "
            "other model."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for name, path in _paths(model.n_layers).items():
        value: Any = variables["params"]
        for key in path:
            value = value[key]
        # safetensors writes the buffer of an array and ignores its strides.
        arrays[name] = np.ascontiguousarray(_to_hf(name, np.asarray(value)))
    # `transformers` refuses files whose metadata do not name the framework.
    save_file(arrays, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _model(config: Mapping[str, Any], folder: Path) -> SequenceModel:
    """The model that a Hugging Face config describes."""
    for name, required in _FIXED.items():
        if (value := config.get(name, required)) != required:
            raise ValueError(
                f"`folder` must hold a Mamba with {name} = {required!r}, got {value!r} "
                f"in {folder / CONFIG}."
            )
    d, n_layers = config["hidden_size"], config["num_hidden_layers"]
    rank = config.get("time_step_rank", "auto")
    # None for the default rank, so that equal models compare equal.
    is_default = rank in ("auto", -(-d // 16))
    recurrence = SelectiveSSM(
        d_state=config["state_size"], dt_rank=None if is_default else rank
    )
    layer = Mamba(
        recurrence=recurrence,
        expand=config["expand"],
        d_conv=config["conv_kernel"],
        n_layers=n_layers,
    )
    return SequenceModel(
        encoder=TokenEncoder(d_model=d, vocabulary=config["vocab_size"], std=0.02),
        block=Block(layer, norm="rms", prenorm=True),
        n_layers=n_layers,
        head=None,
    )


def _config(model):
    """The Hugging Face config of a model."""
    layer, encoder = model.block.layer, model.encoder
    if not isinstance(layer, Mamba) or not isinstance(encoder, TokenEncoder):
        raise ValueError(
            "`model` must have blocks of `Mamba` and a `TokenEncoder`, got "
            f"{type(layer).__name__} and {type(encoder).__name__}."
        )
    recurrence = layer.recurrence
    rank = getattr(recurrence, "dt_rank", None)
    return _FIXED | {
        "architectures": ["MambaForCausalLM"],
        "vocab_size": encoder.vocabulary,
        "hidden_size": encoder.d_model,
        "intermediate_size": layer.expand * encoder.d_model,
        "state_size": getattr(recurrence, "d_state", None),
        "time_step_rank": -(-encoder.d_model // 16) if rank is None else rank,
        "num_hidden_layers": model.n_layers,
        "expand": layer.expand,
        "conv_kernel": layer.d_conv,
        # A constant of the modules here, so it is not read from a field.
        "residual_in_fp32": True,
    }


def _template(model):
    """Nested dicts of the shapes of the parameters, to be filled with arrays."""
    # `eval_shape` allocates no array.
    tokens = np.zeros((1, 1), np.int32)
    return meta.unbox(jax.eval_shape(model.init, jax.random.key(0), tokens))["params"]


def _paths(n_layers):
    """Maps the names of Hugging Face's weights to paths in the parameters."""
    paths = {
        "backbone.embeddings.weight": ("encoder", "table", "embedding"),
        "backbone.norm_f.weight": ("norm", "rms", "scale"),
    }
    for i in range(n_layers):
        for name, path in _LAYER.items():
            paths[f"backbone.layers.{i}.{name}"] = (f"block_{i}", *path)
    return paths


def _from_hf(name, value):
    """Transposes linear kernels (out, in) and convolution kernels (d, 1, k)."""
    if name.endswith("conv1d.weight"):
        # A depthwise kernel has one input channel per group, the axis of size 1.
        return value[:, 0].T
    return value.T if name.endswith("proj.weight") else value


def _to_hf(name, value):
    """Inverse of `_from_hf`."""
    if name.endswith("conv1d.weight"):
        return value.T[:, None]
    return value.T if name.endswith("proj.weight") else value
