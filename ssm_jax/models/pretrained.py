"""Conversion of Mamba models from and to the format of Hugging Face.

Requires the package ``safetensors`` (extra ``[interop]``) and no other framework.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from flax import traverse_util
from flax.core import meta

from ssm_jax.fields import Depth, PositiveInt, check_value
from ssm_jax.layers import Mamba
from ssm_jax.models.block import Block
from ssm_jax.models.encoders import TokenEncoder
from ssm_jax.models.stack import SequenceModel
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

# Fields that are read; the last has a default.
_CONFIG_TYPES = {
    "vocab_size": PositiveInt,
    "hidden_size": PositiveInt,
    "state_size": PositiveInt,
    "num_hidden_layers": Depth,
    "expand": PositiveInt,
    "conv_kernel": PositiveInt,
    "time_step_rank": PositiveInt | Literal["auto"],
}

_FLOATS = ("F64", "F32", "F16", "BF16")
_EMBEDDING, _TABLE = "backbone.embeddings.weight", ("encoder", "table", "embedding")
_TIED = "lm_head.weight"

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


def is_hugging_face(folder: str | os.PathLike[str]) -> bool:
    """Whether a directory has the config of a model of Hugging Face, not of a run."""
    try:
        config = json.loads((Path(folder) / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and "model_type" in config


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
      ImportError: The package ``safetensors`` is not installed.
      ValueError: The config is damaged, lacks a field or describes another model, or
        the weights are damaged, do not fit it, are in two files, or are no finite
        floating-point numbers in float32.

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023
    """
    folder = Path(folder)
    package, model = _package(), _model(_read_config(folder / CONFIG), folder)
    # Large models are published in several files.
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(
            f"`folder` must hold .safetensors files, got none in {folder}; older "
            "checkpoints are pickles, which `transformers` can convert."
        )
    with contextlib.ExitStack() as stack:
        opened: dict[str, Any] = {}
        for file in files:
            weights = stack.enter_context(_open_safetensors(package, file))
            for name in weights.keys():
                if name in opened:
                    raise ValueError(
                        f"`folder` must hold each weight once, got {name} in {file} "
                        f"and in another file of {folder}; remove one of them."
                    )
                opened[name] = weights
        return model, {"params": _params(model, opened, folder)}


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
      ImportError: The package ``safetensors`` is not installed.
      ValueError: The format cannot represent the model.
    """
    package, config = _package(), _config(model)
    # Converting back detects every field that the format cannot represent.
    if _model(config, Path(folder)) != model:
        raise ValueError(
            "`model` must be a `SequenceModel` of prenorm RMS blocks of `Mamba` and a "
            f"`TokenEncoder`, without a head, got {model}; the format represents no "
            "other model."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # safetensors writes the buffer of an array and ignores its strides.
    params = traverse_util.flatten_dict(variables["params"])
    arrays = {
        name: np.ascontiguousarray(_to_hf(name, np.asarray(params[path])))
        for name, path in _paths(model.n_layers).items()
    }
    # `transformers` refuses files whose metadata do not name the framework.
    package.numpy.save_file(arrays, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def _package() -> Any:
    # Imported here, because the package is optional.
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "`safetensors` must be installed for weights of Hugging Face, got none; "
            "`pip install ssm_jax[interop]` installs it."
        ) from error
    return safetensors


def _read_config(path: Path) -> dict[str, Any]:
    """Reads a Hugging Face config and checks the fields that are read of it."""
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _bad_config(path, " ".join(str(error).split())) from error
    if not isinstance(config, dict):
        raise _bad_config(path, f"a {type(config).__name__}")
    config = {"time_step_rank": "auto"} | config
    for name, annotation in _CONFIG_TYPES.items():
        if name not in config:
            raise _bad_config(path, f"no {name}")
        try:
            check_value(name, config[name], annotation)
        except ValueError as error:
            raise _bad_config(path, f"{name} = {config[name]!r:.80}") from error
    return config


def _bad_config(path, got):
    return ValueError(
        "`folder` must hold the config of a Mamba, an object of the positive integers "
        f"{', '.join(_CONFIG_TYPES)}, got {got} in {path}; `save_pretrained` writes it."
    )


@contextlib.contextmanager
def _open_safetensors(package, file):
    """Opens a file of weights, of which the header alone is read."""
    try:
        with package.safe_open(file, framework="numpy") as weights:
            yield weights
    except package.SafetensorError as error:
        raise ValueError(
            f"`folder` must hold whole .safetensors files, got {file}: {error}; copy "
            "it again."
        ) from error


def _params(model, weights, folder):
    """The parameters of a model from the files that have them, by name."""
    # A copy of the embedding table, which is also the readout.
    tied = {_TIED} & weights.keys()
    paths = _paths(model.n_layers)
    if weights.keys() - tied != paths.keys():
        different = sorted((weights.keys() - tied) ^ paths.keys())
        raise ValueError(
            f"`folder` must hold the weights of {model.n_layers} layers of Mamba, got "
            f"missing or unexpected weights {different[:3]} in {folder}."
        )
    shapes: Any = traverse_util.flatten_dict(_template(model))
    params = {}
    for name in (*paths, *tied):
        path = paths.get(name, _TABLE)
        # Its header first, so that what does not fit is not read.
        shape = _to_hf(name, np.broadcast_to(0, shapes[path].shape)).shape
        weight = weights[name].get_slice(name)
        dtype, file_shape = weight.get_dtype(), tuple(weight.get_shape())
        if file_shape != shape or dtype not in _FLOATS:
            raise ValueError(
                f"`folder` must hold {shape} for {name}, as its config says, of "
                f"{', '.join(_FLOATS)}, got {file_shape} of {dtype} in {folder}."
            )
        # Published weights may be in bfloat16 or float16; parameters are float32.
        with np.errstate(over="ignore"):
            value = _from_hf(name, weights[name].get_tensor(name).astype(np.float32))
        if not np.isfinite(value).all():
            raise ValueError(
                f"`folder` must hold weights that are finite in float32, got "
                f"{value[~np.isfinite(value)][0]} in {name} of {folder}; copy it again."
            )
        if name in tied and not np.array_equal(value, params[_TABLE]):
            raise ValueError(
                f"`folder` must hold {name} equal to {_EMBEDDING}, got another in "
                f"{folder}; the format has one table for both."
            )
        params[path] = value
    return traverse_util.unflatten_dict(params)


def _model(config: Mapping[str, Any], folder: Path) -> SequenceModel:
    """The model that a Hugging Face config describes."""
    for name, required in _FIXED.items():
        if (value := config.get(name, required)) != required:
            raise ValueError(
                f"`folder` must hold a Mamba with {name} = {required!r}, got {value!r} "
                f"in {folder / CONFIG}."
            )
    d, n_layers = config["hidden_size"], config["num_hidden_layers"]
    rank = config["time_step_rank"]
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
    # The first, of several different ones: the model is compared with its config.
    layer, encoder = model.blocks[0].layer, model.encoder
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
        _EMBEDDING: _TABLE,
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
