"""Models that are given by ``--workdir``: those of runs, and those of Hugging Face.

A folder of Hugging Face has ``config.json``, the weights of a model that
`ssm_jax.interop.load_pretrained` reads in ``.safetensors`` files, and
``tokenizer.json``, as ``save_pretrained`` of model and tokenizer write them. Nothing is
written to it.
"""

import json
from pathlib import Path
from typing import Any

from ssm_jax.cli.run_flags import run_options
from ssm_jax.evaluation import Restored, restore
from ssm_jax.interop import load_pretrained
from ssm_jax.models.pretrained import CONFIG, is_hugging_face
from ssm_jax.tasks import TextFolder
from ssm_jax.tasks.text import subwords
from ssm_jax.tasks.text.tokens import N_BYTES
from ssm_jax.training import TrainConfig

TOKENIZER = "tokenizer.json"
_SEPARATOR = "<|endoftext|>"


def restore_any(workdir: str) -> Restored:
    """Returns the model of a run, with the flags of `run_options`, or of Hugging Face.

    Args:
      workdir: Work dir of the run, or the folder of the model.

    Raises:
      FileNotFoundError: The directory holds neither.
      ImportError: A package that reads the model is not installed.
      ValueError: As for `ssm_jax.evaluation.restore` and
        `ssm_jax.interop.load_pretrained`.
    """
    options = run_options()
    if not is_hugging_face(workdir):
        return restore(workdir, **options)
    return restore_pretrained(workdir, data_dir=options["data_dir"])


def restore_pretrained(folder: str, *, data_dir: str | None = None) -> Restored:
    """Loads a model of Hugging Face, with a task that encodes texts for it.

    Args:
      folder: The folder. One without ``tokenizer.json`` is of a model of bytes, if its
        vocabulary is that of `TextFolder`.
      data_dir: Directory of texts to evaluate it on.

    Raises:
      FileNotFoundError: A file does not exist.
      ImportError: The package safetensors is not installed.
      ValueError: As for `ssm_jax.interop.load_pretrained`, or the tokenizer is not one.
    """
    model, variables = load_pretrained(folder)
    vocabulary = model.encoder.vocabulary
    path = Path(folder, TOKENIZER).absolute()
    options: dict[str, Any] = {}
    if path.is_file() or vocabulary != N_BYTES:
        options = {"tokenizer": str(path), "separator": _separator(path)}
    task = TextFolder(data_dir=data_dir, vocabulary=vocabulary, **options)
    # Nothing trains: steps and batches are those of no run.
    return Restored(model, variables, task, TrainConfig(steps=1, batch_size=1), step=0)


def _separator(path):
    """The token that begins a text, or ends it, by the config beside a tokenizer."""
    reader = subwords.load(path)
    config = json.loads((path.parent / CONFIG).read_bytes())
    numbers = (config.get(name) for name in ("bos_token_id", "eos_token_id"))
    tokens = (reader.token(n) for n in numbers if isinstance(n, int) and n >= 0)
    return next(filter(None, tokens), _SEPARATOR)
