"""Conversion of models from and to the format of Hugging Face.

Requires the package ``safetensors`` (extra ``[interop]``) and no other framework.
"""

import contextlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import traverse_util
from flax.core import meta

from ssm_jax.fields import check_value
from ssm_jax.models.encoders import TokenEncoder
from ssm_jax.models.pretrained_formats import FORMATS, READOUT, SHARED, TABLE, Format
from ssm_jax.models.stack import SequenceModel
from ssm_jax.types import PyTree

CONFIG = "config.json"
WEIGHTS = "model.safetensors"

_FLOATS = ("F64", "F32", "F16", "BF16")


def is_hugging_face(folder: str | os.PathLike[str]) -> bool:
    """Whether a directory has the config of a model of Hugging Face, not of a run."""
    try:
        config = json.loads((Path(folder) / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and "model_type" in config


def load_pretrained(
    folder: str | os.PathLike[str],
) -> tuple[SequenceModel, dict[str, Any]]:
    """Loads a language model saved by ``transformers``.

    These are ``MambaForCausalLM``, ``Mamba2ForCausalLM``, ``FalconMambaForCausalLM``
    and ``RecurrentGemmaForCausalLM``, by the ``model_type`` of the config.

    Args:
      folder: Directory with ``config.json`` and the weights in one or several
        ``.safetensors`` files.

    Returns:
      ``(model, variables)``: the model, which predicts the next token at each step, and
      its parameters as float32 numpy arrays. Its ``head`` is None if the table of the
      tokens is also the readout.

    Raises:
      FileNotFoundError: A file does not exist.
      ImportError: The package ``safetensors`` is not installed.
      ValueError: The config is damaged, lacks a field or describes another model, or
        the weights are damaged, do not fit it, are in two files, or are no finite
        floating-point numbers in float32.

    Example:
      >>> import tempfile
      >>> from ssm_jax.layers import Mamba2
      >>> from ssm_jax.models import Block
      >>> from ssm_jax.recurrences import SSD
      >>> layer = Mamba2(SSD(d_head=4, d_state=3))
      >>> model = SequenceModel(
      ...     encoder=TokenEncoder(d_model=8, vocabulary=11, std=0.02),
      ...     block=Block(layer, norm="rms", prenorm=True),
      ...     n_layers=1,
      ...     head=None,
      ... )
      >>> tokens = np.arange(6)[None]
      >>> variables = meta.unbox(jax.jit(model.init)(jax.random.key(0), tokens))
      >>> folder = tempfile.mkdtemp()
      >>> save_pretrained(model, variables, folder)
      >>> loaded, weights = load_pretrained(folder)
      >>> loaded == model, weights["params"]["encoder"]["table"]["embedding"].shape
      (True, (11, 8))

    References:
      Gu and Dao, `Mamba: Linear-Time Sequence Modeling with Selective State Spaces
      <https://arxiv.org/abs/2312.00752>`_, 2023; Dao and Gu, `Transformers are SSMs
      <https://arxiv.org/abs/2405.21060>`_, 2024; Zuo and others, `Falcon Mamba
      <https://arxiv.org/abs/2410.05355>`_, 2024; Botev, De, Smith and others,
      `RecurrentGemma <https://arxiv.org/abs/2404.07839>`_, 2024
    """
    return _load(folder, FORMATS)


def save_pretrained(
    model: SequenceModel, variables: PyTree, folder: str | os.PathLike[str]
) -> None:
    """Saves a language model in the format of ``transformers``.

    Args:
      model: A model as `load_pretrained` returns it.
      variables: Its parameters.
      folder: Directory to write ``config.json`` and ``model.safetensors`` to; created
        if missing.

    Raises:
      ImportError: The package ``safetensors`` is not installed.
      ValueError: No format can represent the model.
    """
    _save(model, variables, folder, FORMATS)


def load_mamba(
    folder: str | os.PathLike[str],
) -> tuple[SequenceModel, dict[str, Any]]:
    """Loads a model of ``MambaForCausalLM``, as `load_pretrained` does, and no other.

    Args:
      folder: As for `load_pretrained`.

    Returns:
      ``(model, variables)``, as `load_pretrained` does.

    Raises:
      FileNotFoundError: As for `load_pretrained`.
      ImportError: As for `load_pretrained`.
      ValueError: As for `load_pretrained`.
    """
    return _load(folder, ["mamba"])


def save_mamba(
    model: SequenceModel, variables: PyTree, folder: str | os.PathLike[str]
) -> None:
    """Saves a model of blocks of `Mamba`, as `save_pretrained` does, and no other.

    Args:
      model: As for `save_pretrained`.
      variables: Its parameters.
      folder: As for `save_pretrained`.

    Raises:
      ImportError: As for `save_pretrained`.
      ValueError: As for `save_pretrained`.
    """
    _save(model, variables, folder, ["mamba"])


def _load(folder, model_types: Collection[str]):
    folder, package = Path(folder), _package()
    config = _read_config(folder / CONFIG, model_types)
    format_ = FORMATS[config["model_type"]]
    try:
        model = format_.build(config)
    except ValueError as error:
        raise _bad_config(folder / CONFIG, format_, error) from error
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
        return model, {"params": _params(model, format_, opened, folder)}


def _save(model, variables, folder, model_types: Collection[str]):
    package, config = _package(), _config(model, model_types)
    format_ = FORMATS[config["model_type"]]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    params = traverse_util.flatten_dict(variables["params"], sep="/")
    arrays = {}
    for name, weight in format_.weights(model).items():
        array = np.asarray(params[weight.path])
        if weight.columns is not None:
            array = array[..., weight.columns]
        # safetensors writes the buffer of an array and ignores its strides.
        arrays[name] = np.ascontiguousarray(weight.layout.save(array))
    # `transformers` refuses files whose metadata do not name the framework.
    package.numpy.save_file(arrays, folder / WEIGHTS, metadata={"format": "pt"})
    # Infinity is no JSON, but published configs have it, and all versions read it.
    infinite = {
        name: [float("inf") if item is None else item for item in value]
        for name, value in config.items()
        if isinstance(value, tuple)
    }
    (folder / CONFIG).write_text(json.dumps(config | infinite, indent=2) + "\n")


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


def _read_config(path: Path, model_types: Collection[str]) -> dict[str, Any]:
    """Reads a Hugging Face config and checks the fields that are read of it."""
    try:
        config = json.loads(
            path.read_bytes(), parse_constant=_constant, object_hook=_constant_of
        )
    except (ValueError, RecursionError) as error:
        raise _bad_config(path, None, " ".join(str(error).split())) from error
    if not isinstance(config, dict):
        raise _bad_config(path, None, f"a {type(config).__name__}")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in model_types:
        raise ValueError(
            f"`folder` must hold a model with model_type in {', '.join(model_types)}, "
            f"got model_type = {model_type!r:.80} in {path}; other models have other "
            "layers."
        )
    format_ = FORMATS[model_type]
    for name, required in format_.fixed.items():
        if (value := config.get(name, required)) != required:
            raise ValueError(
                f"`folder` must hold a {format_.architecture} with {name} = "
                f"{required!r}, got {name} = {value!r:.80} in {path}; no other value "
                "is implemented."
            )
    checked: dict[str, Any] = {"model_type": model_type}
    for name, annotation in (SHARED | format_.fields).items():
        if name not in config and name not in format_.defaults:
            raise _bad_config(path, format_, f"no {name}")
        value = config.get(name, format_.defaults.get(name))
        # JSON has no tuples.
        checked[name] = tuple(value) if isinstance(value, list) else value
        try:
            check_value(name, checked[name], annotation)
        except ValueError as error:
            raise _bad_config(path, format_, f"{name} = {value!r:.80}") from error
    return checked


def _constant(word):
    """Reads an infinite bound as None, no bound; other words are no numbers."""
    return None if word == "Infinity" else word


def _constant_of(values):
    # The form of constants since version 5 of `transformers`.
    return _constant(values["__float__"]) if [*values] == ["__float__"] else values


def _bad_config(path, format_: Format | None, got):
    words = "a model" if format_ is None else f"a {format_.architecture}"
    names = [] if format_ is None else [*SHARED, *format_.fields]
    fields = f" with the fields {', '.join(names)}" if names else ", an object"
    return ValueError(
        f"`folder` must hold the config of {words}{fields}, got {got} in {path}; "
        "`save_pretrained` writes it."
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


def _params(model, format_, weights, folder):
    """The parameters of a model from the files that have them, by name."""
    expected = format_.weights(model)
    # A copy of the embedding table, which is also the readout.
    tied = {READOUT} & weights.keys() - expected.keys()
    if weights.keys() - tied != expected.keys():
        different = sorted((weights.keys() - tied) ^ expected.keys())
        raise ValueError(
            f"`folder` must hold the weights of {model.n_layers} layers of "
            f"{format_.architecture}, got missing or unexpected weights "
            f"{different[:3]} in {folder}."
        )
    shapes: Any = traverse_util.flatten_dict(_template(model), sep="/")
    table = expected[format_.embedding]
    params: dict[str, np.ndarray] = {}
    for name in (*expected, *tied):
        weight = expected.get(name, table)
        value = _read(name, weight, shapes[weight.path].shape, weights[name], folder)
        if name in tied:
            if not np.array_equal(value, params[TABLE]):
                raise ValueError(
                    f"`folder` must hold {name} equal to {format_.embedding}, because "
                    f"its config says tie_word_embeddings, got another in {folder}; a "
                    "model has one table for both then."
                )
        elif weight.columns is None:
            params[weight.path] = value
        else:
            whole = np.empty(shapes[weight.path].shape, np.float32)
            params.setdefault(weight.path, whole)[..., weight.columns] = value
    return traverse_util.unflatten_dict(params, sep="/")


def _read(name, weight, shape, file, folder):
    """A parameter, or the columns of it that a weight has, in float32."""
    if weight.columns is not None:
        shape = (*shape[:-1], len(weight.columns))
    # Its header first, so that what does not fit is not read.
    expected = weight.layout.save(np.broadcast_to(0, shape)).shape
    header = file.get_slice(name)
    dtype, file_shape = header.get_dtype(), tuple(header.get_shape())
    if file_shape != expected or dtype not in _FLOATS:
        raise ValueError(
            f"`folder` must hold {expected} for {name}, as its config says, of "
            f"{', '.join(_FLOATS)}, got {file_shape} of {dtype} in {folder}."
        )
    # Published weights may be in bfloat16 or float16; parameters are float32.
    with np.errstate(over="ignore"):
        value = weight.layout.load(file.get_tensor(name).astype(np.float32))
    if not np.isfinite(value).all():
        raise ValueError(
            f"`folder` must hold weights that are finite in float32, got "
            f"{value[~np.isfinite(value)][0]} in {name} of {folder}; copy it again."
        )
    return value


def _config(model, model_types):
    """The Hugging Face config of a model."""
    encoder = model.encoder
    for model_type in model_types:
        format_ = FORMATS[model_type]
        fields = format_.describe(model) if isinstance(encoder, TokenEncoder) else None
        if fields is None or not _fit(fields, format_.fields):
            continue
        shared = {
            "vocab_size": encoder.vocabulary,
            "hidden_size": encoder.d_model,
            "num_hidden_layers": model.n_layers,
            "tie_word_embeddings": model.head is None,
        }
        # Converting back detects every field that the format cannot represent.
        if _are_equal(model, format_.build(format_.defaults | shared | fields)):
            names = {"model_type": model_type, "architectures": [format_.architecture]}
            return names | shared | format_.fixed | fields
    # Linen shows a model on many lines.
    shown = " ".join(str(model).split())
    raise ValueError(
        "`model` must be a `SequenceModel` of prenorm RMS blocks, as in "
        f"{', '.join(FORMATS[name].architecture for name in model_types)}, and a "
        "`TokenEncoder`, without a head or with a `StepHead` without a bias, got "
        f"{shown}; the formats represent no other model."
    )


def _fit(fields, annotations):
    """Whether values are those that are read of a config."""
    try:
        for name in fields.keys() & annotations.keys():
            check_value(name, fields[name], annotations[name])
    except ValueError:
        return False
    return True


def _are_equal(model, other):
    # Of several different blocks, only the order in which they are applied matters.
    same = model.clone(block=other.block, pattern=other.pattern)
    return model.blocks == other.blocks and same == other


def _template(model):
    """Nested dicts of the shapes of the parameters, to be filled with arrays."""
    # `eval_shape` allocates no array.
    tokens = np.zeros((1, 1), np.int32)
    return meta.unbox(jax.eval_shape(model.init, jax.random.key(0), tokens))["params"]
