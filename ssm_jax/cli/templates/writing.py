"""What the experiments that are written share: the checks of names, and the end.

What depends on the user's files is in literals alone: names of files and words in them
may be any text, which would be code elsewhere, even in a docstring.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ssm_jax.cli.run_flags import check_writable
from ssm_jax.files import write_text

END = """    optimizer = spec(
        Optimizer,
        learning_rate=3e-3,
        schedule="cosine",
        warmup_steps=training.get_ref("steps") // 10,
        schedule_steps=training.get_ref("steps"),
        weight_decay=0.05,
        clip_norm=1.0,
    )
    return ConfigDict(
        {{
            "experiment": {experiment!r},
            "variant": "",
            "paper": None,
            "task": task,
            "model": model,
            "optimizer": optimizer,
            "training": training,
        }}
    )
"""
"""The end of the templates of texts and labelled sequences."""

_SHOWN = 5  # Names in a list.
# The mean of 30 independent errors has a standard error of 18 % of their deviation.
_FEW = 30


class Written(NamedTuple):
    """What was found in the data, as names and values to print, and what follows.

    Attributes:
      found: Names and values.
      programs: The programs that follow the training, with flags beside ``--workdir``.
    """

    found: Sequence[tuple[str, Any]]
    programs: Sequence[str] = ("evaluate", "report")


def check_output(output: str) -> None:
    """Checks that an experiment can be written to a file.

    Raises:
      ValueError: ``output`` exists, cannot be written, or is no name of an experiment.
    """
    check_writable("output", output, ("py",))
    # In --config=FILE:VARIANT the first colon ends the name.
    if ":" in output or not output.isprintable():
        raise ValueError(
            "`--output` must be a name of printable characters without a colon, got "
            f"{output!r}; give another name."
        )
    if Path(output).exists():
        raise ValueError(
            f"`--output` must be a new file, got {output}, which exists; remove it or "
            "give another name."
        )


def path_of(data: str, kinds: str, *, folder: bool | None = False) -> Path:
    """Returns the absolute path of the data.

    Args:
      data: The file or folder.
      kinds: What it must be, for the error.
      folder: Whether it is a folder. None means that it may be one, or a file.

    Raises:
      FileNotFoundError: There is none.
    """
    path = Path(data).expanduser().resolve()
    fits = path.exists() if folder is None else path.is_dir() is folder
    if fits and path.exists():
        return path
    raise FileNotFoundError(
        f"`--data` must be {kinds}, got {data}, which "
        f"{'is none' if path.exists() else 'does not exist'}; give its path."
    )


def write(output: str, template: str, values: Mapping[str, Any], **constants: Any):
    """Writes an experiment.

    Args:
      output: The file.
      template: Its text, with ``{constants}``, ``{experiment!r}``, and the names of
        ``values``.
      values: What is written in place of the names.
      **constants: Constants at the top of the file.
    """
    lines = (f"{name.upper()} = {value!r}\n" for name, value in constants.items())
    names = {"constants": "".join(lines), "experiment": experiment_name(output)}
    write_text(Path(output), template.format(**names, **values))


def experiment_name(output: str) -> str:
    """Returns the name of the experiment in a file.

    Example:
      >>> experiment_name("runs/my-text.py")
      'my_text'
    """
    return re.sub(r"\W+", "_", Path(output).stem)


def power_of_2(number: float) -> int:
    """Returns the largest power of 2 up to a number, at least 1.

    Example:
      >>> power_of_2(100), power_of_2(0.5)
      (64, 1)
    """
    return 2 ** max(0, int(number).bit_length() - 1)


def few_examples(sizes: Mapping[str, int], what: str) -> list[tuple[str, str]]:
    """Returns what is printed if a held-out split has fewer than 30 examples.

    Args:
      sizes: Numbers of independent examples by split; that of ``"train"`` is not read.
      what: What these are, in the plural.

    Example:
      >>> few_examples({"train": 80, "validation": 10, "test": 30}, "files")
      [('check', 'validation has only 10 files, fewer than 30: its errors are rough')]
    """
    few = {s: n for s, n in sizes.items() if s != "train" and n < _FEW}
    if not few:
        return []
    have = [f"{split} has only {n:,}" for split, n in few.items()]
    its = "their" if len(few) > 1 else "its"
    about = f"{' and '.join(have)} {what}, fewer than {_FEW}: {its} errors are rough"
    return [("check", about)]


def shortened(words: Iterable[Any]) -> str:
    """Returns a list of words, of which only the first are shown.

    Example:
      >>> shortened("abcdefg")
      'a, b, c, d, e and 2 more'
    """
    words = [*map(str, words)]
    further = len(words) - _SHOWN
    end = f" and {further} more" if further > 0 else ""
    return ", ".join(words[:_SHOWN]) + end
