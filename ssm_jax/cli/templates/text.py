"""The experiment on a folder of texts: a small language model.

The window, the batch and the steps are chosen by the size of the text.
"""

import codecs
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from ssm_jax.cli.templates import writing
from ssm_jax.files import write_text
from ssm_jax.tasks import Split, TextFolder
from ssm_jax.tasks.text import documents

TEMPLATE = (
    '''"""Language model of a folder of texts, written by `ssm-jax new text`.

    ssm-jax train --config=FILE --workdir=RUN
    ssm-jax evaluate --workdir=RUN
    ssm-jax evaluate --workdir=RUN --mode=length_extension
    ssm-jax generate --workdir=RUN --prompt=TEXT
    ssm-jax report --workdirs=RUN

FILE is this one, and RUN the directory of the run. The model and the steps are those of
a CPU; with a GPU, a D_MODEL of 512, 6 layers, a BATCH of 64 and more STEPS are better.
"""

from ml_collections import ConfigDict

from ssm_jax.config import spec
from ssm_jax.layers import MLP, ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, SequenceModel, TokenEncoder
from ssm_jax.recurrences import S5
from ssm_jax.tasks import TextFolder
from ssm_jax.training import Optimizer, TrainConfig

# Chosen by the size of the text; the docstring of TextFolder explains the first three.
{constants}D_MODEL = 64  # A multiple of 8.
N_LAYERS = 2


def get_config():
    """Returns the config of the experiment."""
    task = spec(
        TextFolder,
        data_dir={data_dir!r},
        tokenizer=TOKENIZER,
        vocabulary=VOCABULARY,
        length=WINDOW,
    )
    layer = spec(
        RecurrentLayer,
        recurrence=spec(S5, d_state=D_MODEL, blocks=4),
        mixing=spec(ChannelMixing),
    )
    model = spec(
        SequenceModel,
        encoder=spec(
            TokenEncoder, d_model=D_MODEL, vocabulary=VOCABULARY, std=D_MODEL**-0.5
        ),
        block=spec(
            Block,
            layer=layer,
            prenorm=True,
            feedforward=spec(MLP, d_hidden=4 * D_MODEL),
        ),
        n_layers=N_LAYERS,
        head=None,
    )
    # Each row of a batch continues that row of the one before, with its state.
    training = spec(
        TrainConfig,
        steps=STEPS,
        batch_size=BATCH,
        initial_state="carry",
        evaluate_every=max(1, STEPS // 4),
        evaluation_batches=50,
    )
'''
    + writing.END
)

SEPARATOR = "<|endoftext|>"
"""The token between documents of a tokenizer that is trained here."""

_MIN_TOKENS = {"train": 4096, "validation": 64, "test": 64}
_MAX_WINDOW, _MAX_BATCH, _MAX_STEPS = 128, 16, 800
_EPOCHS = 30  # More of a short text do not make the validation better.
_TOKENIZED = 2**28  # Bytes that a tokenizer is trained on; more take memory.
_MEASURED = 2**16  # Tokens of each length in `length_extension`, a minute on a CPU.


def text(data: str, output: str, *, vocabulary: int | None = None) -> writing.Written:
    """Writes an experiment that trains a language model on a folder of texts.

    Args:
      data: The folder; see `ssm_jax.tasks.TextFolder`.
      output: The experiment to write, ``NAME.py``.
      vocabulary: Number of tokens of a byte-level BPE tokenizer, which is trained on
        the train split and written to ``NAME.json``. None means that bytes are read.

    Returns:
      The files, their faults, and what was chosen.

    Raises:
      FileNotFoundError: There is no such folder.
      ValueError: ``output`` exists or cannot be written, there is too little text, or
        the package ``tokenizers`` is needed and not installed.
    """
    writing.check_output(output)
    folder = writing.path_of(data, "a folder of .txt files", folder=True)
    if not any(folder.rglob("*.txt")):
        others = writing.shortened(
            ascii(path.name) for path in sorted(folder.iterdir())
        )
        raise ValueError(
            "`--data` must be a folder with files that end in .txt, got "
            f"{others or 'none'} in {folder}; name texts so."
        )
    by_split = documents.files(str(folder))
    task = TextFolder(data_dir=str(folder))
    # A token has one byte or more: what is refused is refused before it is tokenized.
    _check_size(task)
    if vocabulary is not None:
        task = _with_tokenizer(folder, Path(output).with_suffix(".json"), vocabulary)
    sizes = {split: task.n_tokens(split) for split in get_args(Split)}
    held_out = min(sizes["validation"], sizes["test"])
    window = min(_MAX_WINDOW, writing.power_of_2(held_out / 4))
    batch = min(_MAX_BATCH, writing.power_of_2(sizes["train"] / window / 4))
    epochs_steps = _EPOCHS * sizes["train"] // (batch * window)
    steps = min(_MAX_STEPS, max(100, round(epochs_steps, -2)))
    constants = {
        "tokenizer": task.tokenizer,
        "vocabulary": task.vocabulary,
        "window": window,
        "batch": batch,
        "steps": steps,
    }
    writing.write(output, TEMPLATE, {"data_dir": str(folder)}, **constants)
    found = [*_files(folder, by_split), *_tokens(sizes), *constants.items()]
    if vocabulary is not None and task.vocabulary < vocabulary:
        found.append(("short", f"the text has no more than {task.vocabulary} tokens"))
    windows = {split: n // window for split, n in sizes.items()}
    found += writing.few_examples(windows, f"windows of {window} tokens")
    longest = min(16 * window, writing.power_of_2(sizes["test"] / 4))
    lengths = [window // 4]
    while 2 * lengths[-1] <= longest:
        lengths.append(2 * lengths[-1])
    options = f"--lengths={','.join(map(str, lengths))} --max_tokens={_MEASURED}"
    programs = (
        "evaluate",
        f"evaluate --mode=length_extension {options}",
        "generate --n_tokens=300",
        "report",
    )
    return writing.Written(found, programs)


def train_tokenizer(texts: Iterator[str], vocabulary: int) -> Any:
    """Trains a byte-level BPE tokenizer.

    Args:
      texts: The texts.
      vocabulary: Its number of tokens, at least 257: 256 bytes and `SEPARATOR`. A short
        text may give fewer.

    Returns:
      The tokenizer, of the package ``tokenizers``.

    Raises:
      ValueError: That package is not installed.

    References:
      Sennrich, Haddow and Birch, `Neural Machine Translation of Rare Words with Subword
      Units <https://arxiv.org/abs/1508.07909>`_, 2016
    """
    try:
        # Imported here: the package is an optional dependency.
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise ValueError(
            "`--vocabulary` must be left out if the package tokenizers is not "
            f"installed, got {vocabulary}; `pip install tokenizers`, or read bytes."
        ) from None
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[SEPARATOR],
        # Without it, bytes that the text does not have would have no token.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _with_tokenizer(folder, path, vocabulary):
    """The task with a tokenizer, which is trained and written."""
    path = path.resolve()
    if path.exists():
        raise ValueError(
            f"`--output` must leave the name of the tokenizer free, got {path}, which "
            "exists; remove it or give another name."
        )
    texts = documents.texts(str(folder), "train", _TOKENIZED)
    tokenizer = train_tokenizer(texts, vocabulary)
    write_text(path, tokenizer.to_str())
    task = TextFolder(
        data_dir=str(folder),
        tokenizer=str(path),
        vocabulary=tokenizer.get_vocab_size(),
        separator=SEPARATOR,
    )
    try:
        _check_size(task)
    except ValueError:
        path.unlink()
        raise
    return task


def _check_size(task):
    sizes = {split: task.n_tokens(split) for split in get_args(Split)}
    if any(sizes[split] < least for split, least in _MIN_TOKENS.items()):
        least = ", ".join(f"{n:,} of {split}" for split, n in _MIN_TOKENS.items())
        got = ", ".join(f"{n:,} of {split}" for split, n in sizes.items())
        raise ValueError(
            f"`--data` must be texts of at least {least} tokens, got {got} in "
            f"{task.data_dir}; put more text there."
        )


def _tokens(sizes):
    yield "tokens", ", ".join(f"{n:,} {split}" for split, n in sizes.items())


def _files(folder, by_split):
    """What was found in a folder, as names and values."""
    files = sorted({path for paths in by_split.values() for path in paths})
    if by_split["train"] == by_split["test"]:
        yield "files", f"{len(files)}, of which each split reads a part"
    else:
        counts = (f"{len(paths):,} {split}" for split, paths in by_split.items())
        yield "files", f"{len(files):,}: {', '.join(counts)}"
    n_characters, faults = 0, []
    for path in files:
        n, fault = _read(path)
        n_characters += n
        if fault:
            faults.append(f"{_name(folder, path)} ({fault})")
    n_bytes = sum(path.stat().st_size for path in files)
    yield "size", f"{n_bytes:,} bytes, {n_characters:,} characters"
    if faults:
        yield "faulty", f"{writing.shortened(faults)}: `iconv` converts text to UTF-8"
    others = sorted(path for path in folder.rglob("*.txt") if _is_empty(path))
    if others:
        names = writing.shortened(_name(folder, path) for path in others)
        yield "empty", f"{names}, left out"
    others = sorted(path for path in folder.iterdir() if path.is_file())
    others = [path for path in others if path not in files and not _is_empty(path)]
    if others:
        names = writing.shortened(_name(folder, path) for path in others)
        yield "unread", f"{names}: a text ends in .txt, and is in a split"


def _is_empty(path):
    return path.is_file() and path.stat().st_size == 0


def _name(folder, path):
    """The name of a file in the folder, without control characters."""
    name = path.relative_to(folder).as_posix()
    return name if name.isprintable() else ascii(name)


def _read(path: Path) -> tuple[int, str | None]:
    """The characters of a file, and why it is no text in UTF-8, or None."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    n, is_utf8, fault = 0, True, None
    with path.open("rb") as file:
        while piece := file.read(2**20):
            if n == 0 and piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return os.stat(path).st_size // 2, "UTF-16"
            if b"\0" in piece:
                fault = "binary"
            decoded = decoder.decode(piece)
            is_utf8 = is_utf8 and "\N{REPLACEMENT CHARACTER}" not in decoded
            n += len(decoded)
    decoded = decoder.decode(b"", final=True)
    if decoded or not is_utf8:
        fault = fault or "not UTF-8"
    return n + len(decoded), fault
