"""Mamba in Hugging Face's files: a folder becomes a model, and a model a folder.

Needs the package ``safetensors`` (extra ``[interop]``) and no other framework.
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

# What a config must say, for nothing else is there to be read.
_FIXED = {
    "model_type": "mamba",
    "use_bias": False,
    "use_conv_bias": True,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
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
    """Reads a published Mamba.

    Args:
      folder: Holds ``config.json`` and the weights, one ``.safetensors`` file or many,
        as Hugging Face's ``MambaForCausalLM`` writes them.

    Returns:
      ``(model, variables)``: the model, which predicts the next token at each step, and
      its parameters, float32 numpy arrays.

    Raises:
      FileNotFoundError: A file is not there.
      ValueError: The config is of another model, or the weights do not fit it.

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023
    """
    from safetensors.numpy import load_file

    folder = Path(folder)
    model = _model(json.loads((folder / CONFIG).read_text()), folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"`folder` must hold .safetensors files, got none in {folder}; older "
            "checkpoints come as pickles, which `transformers` can write anew."
        )
    found = {name: array for file in files for name, array in load_file(file).items()}
    found.pop("lm_head.weight", None)  # the table of the tokens once more
    params = _template(model)
    paths = _paths(model.n_layers)
    if found.keys() != paths.keys():
        different = sorted(found.keys() ^ paths.keys())
        raise ValueError(
            f"`folder` must hold the weights of {model.n_layers} layers of Mamba, got "
            f"{different[:3]} that are missing or too many in {folder}."
        )
    for name, path in paths.items():
        *parents, last = path
        place = params
        for parent in parents:
            place = place[parent]
        value = _ours(name, found[name].astype(np.float32))
        if value.shape != place[last].shape:
            raise ValueError(
                f"`folder` must hold {place[last].shape} for {name}, as its config "
                f"says, got {value.shape} in {folder}."
            )
        place[last] = value
    return model, {"params": params}


def save_mamba(
    model: SequenceModel, variables: PyTree, folder: str | os.PathLike[str]
) -> None:
    """Writes a Mamba as `load_mamba` and Hugging Face's library read it.

    Args:
      model: A model of blocks of `Mamba`, as `load_mamba` makes it.
      variables: Its parameters.
      folder: Where ``config.json`` and ``model.safetensors`` go.

    Raises:
      ValueError: The model has no place in the format.
    """
    from safetensors.numpy import save_file

    config = _config(model)
    if _model(config, Path(folder)) != model:
        raise ValueError(
            "`model` must be a `SequenceModel` of prenormalised RMS blocks of `Mamba` "
            f"and a `TokenEncoder`, without a head, got {model}; the format has no "
            "place for others."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for name, path in _paths(model.n_layers).items():
        value: Any = variables["params"]
        for key in path:
            value = value[key]
        arrays[name] = np.ascontiguousarray(_theirs(name, np.asarray(value)))
    save_file(arrays, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _model(config: Mapping[str, Any], folder: Path) -> SequenceModel:
    for name, wanted in _FIXED.items():
        if (value := config.get(name, wanted)) != wanted:
            raise ValueError(
                f"`folder` must hold a Mamba with {name} = {wanted!r}, got {value!r} "
                f"in {folder / CONFIG}."
            )
    d, n_layers = config["hidden_size"], config["num_hidden_layers"]
    rank = config.get("time_step_rank", "auto")
    usual = rank in ("auto", -(-d // 16))
    selective = SelectiveSSM(
        d_state=config["state_size"], dt_rank=None if usual else rank
    )
    layer = Mamba(
        recurrence=selective,
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
    """The fields of a config that say what the model is."""
    layer, encoder = model.block.layer, model.encoder
    if not isinstance(layer, Mamba) or not isinstance(encoder, TokenEncoder):
        raise ValueError(
            "`model` must be of blocks of `Mamba` behind a `TokenEncoder`, got "
            f"{type(layer).__name__} behind {type(encoder).__name__}."
        )
    selective = layer.recurrence
    rank = getattr(selective, "dt_rank", None)
    return _FIXED | {
        "architectures": ["MambaForCausalLM"],
        "vocab_size": encoder.vocabulary,
        "hidden_size": encoder.d_model,
        "intermediate_size": layer.expand * encoder.d_model,
        "state_size": getattr(selective, "d_state", None),
        "time_step_rank": -(-encoder.d_model // 16) if rank is None else rank,
        "num_hidden_layers": model.n_layers,
        "expand": layer.expand,
        "conv_kernel": layer.d_conv,
        "layer_norm_epsilon": 1e-5,
        "residual_in_fp32": True,
    }


def _template(model):
    """The parameters' shapes, in dicts that may be filled."""
    tokens = np.zeros((1, 1), np.int32)
    return meta.unbox(jax.eval_shape(model.init, jax.random.key(0), tokens))["params"]


def _paths(n_layers):
    """Where each of their names is in our parameters."""
    paths = {
        "backbone.embeddings.weight": ("encoder", "table", "embedding"),
        "backbone.norm_f.weight": ("norm", "rms", "scale"),
    }
    for i in range(n_layers):
        for name, path in _LAYER.items():
            paths[f"backbone.layers.{i}.{name}"] = (f"block_{i}", *path)
    return paths


def _ours(name, value):
    """Their maps are from columns to rows, and a tap has an axis of its own."""
    if name.endswith("conv1d.weight"):
        return value[:, 0].T
    return value.T if name.endswith("proj.weight") else value


def _theirs(name, value):
    if name.endswith("conv1d.weight"):
        return value.T[:, None]
    return value.T if name.endswith("proj.weight") else value
