"""What text a language model is measured on."""

import hashlib
from pathlib import Path
from typing import Any

from ssm_jax.tasks.base import Split
from ssm_jax.tasks.text.folder import TextFolder


def corpus(task: TextFolder, split: Split) -> dict[str, Any]:
    """What text a language model is measured on, for the record.

    Args:
      task: The text.
      split: Which part of it.

    Returns:
      ``task``, its class; ``folder``, the name of its folder alone; ``split``;
      ``tokenizer``; ``tokens`` of the split; ``documents``, files of it; ``sha256``,
      the first 16 digits of that of its tokens.
    """
    text = task.text(split)
    return {
        "task": type(task).__name__,
        "folder": Path(task.data_dir or "").expanduser().resolve().name,
        "split": split,
        "tokenizer": Path(task.tokenizer).name,
        "tokens": len(text),
        "documents": len(task.documents(split)) - 1,
        "sha256": hashlib.sha256(text.data).hexdigest()[:16],
    }
