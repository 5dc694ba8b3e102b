"""A description of the text that a language model is evaluated on."""

import hashlib
from pathlib import Path
from typing import Any

from ssm_jax.tasks.base import Split
from ssm_jax.tasks.text.folder import TextFolder


def corpus(task: TextFolder, split: Split) -> dict[str, Any]:
    """Describes a split of a text, for the records of an evaluation.

    Args:
      task: The task that reads the text.
      split: The split.

    Returns:
      A dict with ``task``, the name of the class; ``folder``, the name of the data
      folder without its path; ``split``; ``tokenizer``; ``tokens``, the number of
      tokens; ``documents``, the number of files; and ``sha256``, the first 16
      hexadecimal digits of the SHA-256 hash of the tokens.
    """
    text = task.text(split)
    return {
        "task": type(task).__name__,
        # Without the path, which differs between machines.
        "folder": Path(task.data_dir or "").expanduser().resolve().name,
        "split": split,
        "tokenizer": Path(task.tokenizer).name,
        "tokens": len(text),
        "documents": len(task.documents(split)) - 1,
        # Of the tokens, so that it covers the files and the tokenizer.
        "sha256": hashlib.sha256(text.data).hexdigest()[:16],
    }
