"""The experiments on labelled sequences: an npz, a table of steps, or a folder."""

from typing import Any, get_args

import numpy as np

from ssm_jax.cli.templates import folders, writing
from ssm_jax.tasks import ArrayTask, LongTable, Split, user_files
from ssm_jax.tasks.arrays import long_table
from ssm_jax.tasks.series import columns

TEMPLATE = (
    '''"""Prediction of the targets of sequences, written by `ssm-jax new`.

    ssm-jax train --config=FILE --workdir=RUN
    ssm-jax evaluate --workdir=RUN
    ssm-jax report --workdirs=RUN

FILE is this one, and RUN the directory of the run.
"""

from ml_collections import ConfigDict

from ssm_jax.config import spec
from ssm_jax.layers import ChannelMixing, RecurrentLayer
from ssm_jax.models import Block, {head}, SequenceModel, {encoder}
from ssm_jax.recurrences import S5
from ssm_jax.tasks import {task}
from ssm_jax.training import Optimizer, TrainConfig

# Found in the data; the docstring of {task} explains each field.
{constants}
BATCH = {batch}
STEPS = 500


def get_config():
    """Returns the config of the experiment."""
    task = spec(
        {task},
{where}{fields}    )
    layer = spec(
        RecurrentLayer,
        recurrence=spec(S5, d_state=64),
        mixing=spec(ChannelMixing, kind="glu", dropout=0.1),
    )
    model = spec(
        SequenceModel,
        encoder=spec({encoder}, d_model=64{vocabulary}),
        block=spec(Block, layer=layer, prenorm=True),
        n_layers=2,
        head=spec({head}, d_output={d_output}),
    )
    training = spec(
        TrainConfig, steps=STEPS, batch_size=BATCH, evaluate_every=max(1, STEPS // 4)
    )
'''
    + writing.END
)

_MIN_EXAMPLES = 20
_MAX_BATCH, _MAX_STEPS_OF_BATCH = 64, 2**14
_MAX_TOKEN = 1000  # Integers from 0 up to here are tokens, others numbers.
_MAX_CLASSES = 1000
_IMBALANCED = 3  # The largest class over the smallest.
_LABELS = "biuU"  # Kinds of dtypes of labels.


def classify(data: str, output: str, **options: str | None) -> writing.Written:
    """Writes an experiment that predicts the label of each sequence.

    Args:
      data: An npz as `ssm_jax.tasks.ArrayTask` reads it, a CSV or parquet with a row
        for each step, or a folder of recordings or images with one subfolder per class.
      output: The experiment to write, ``NAME.py``.
      **options: ``example`` and ``target``, columns of the table.

    Returns:
      What was found: lengths, features, classes and their numbers of examples.

    Raises:
      FileNotFoundError: There is no such file or folder.
      ValueError: ``output`` exists or cannot be written, or the data have no labels,
        too few examples, or are not as the task reads them.
    """
    return _write(data, output, "classify", **options)


def regress(data: str, output: str, **options: str | None) -> writing.Written:
    """Writes an experiment that predicts numbers of each sequence.

    Args:
      data: A file as for `classify`, with numbers in place of labels.
      output: As for `classify`.
      **options: As for `classify`.

    Returns:
      What was found: lengths and features.

    Raises:
      FileNotFoundError: As for `classify`.
      ValueError: As for `classify`.
    """
    return _write(data, output, "regress", **options)


def _write(data, output, kind, *, example=None, target=None):
    writing.check_output(output)
    kinds = "an npz, CSV or parquet file, or a folder with one subfolder per class"
    path = writing.path_of(data, kinds, folder=None)
    where = {"data_dir": str(path.parent), "file": path.name}
    is_table = path.is_file() and path.suffix.lower() != ".npz"
    if not is_table and (example or target):
        raise ValueError(
            f"`--{'example' if example else 'target'}` must be left out for an npz or "
            f"a folder, got {example or target} for {path}; it is a column of a table."
        )
    if path.is_dir():
        if kind == "regress":
            raise ValueError(
                f"`--data` must be a file for regress, got the folder {path}, whose "
                "subfolders name classes, not numbers; `np.savez(FILE, inputs=..., "
                "targets=...)` writes numbers beside sequences."
            )
        where = {"data_dir": str(path)}
        make, fields, found, counts = folders.read(path)
    elif is_table:
        make = LongTable
        fields, found, counts = _of_table(path, kind, example, target)
    else:
        make = ArrayTask
        fields, found, counts = _of_arrays(path, kind)
    if counts is not None:
        fields = _with_classes(fields, counts)
    task = make(**where, **fields)
    # Counted here, so that a file that cannot be trained on is refused before.
    sizes = {split: task.n_examples(split) for split in get_args(Split)}
    if sum(sizes.values()) < _MIN_EXAMPLES:
        raise ValueError(
            f"`--data` must have at least {_MIN_EXAMPLES} examples, got "
            f"{sum(sizes.values())} in {path}; a tenth of them is for validation."
        )
    task_spec, is_token = task.spec, task.spec.inputs == "token"
    longest = _MAX_STEPS_OF_BATCH / task_spec.length
    # Held-out splits may be smaller: their batches are padded.
    batch = min(_MAX_BATCH, sizes["train"] // 2, max(8, longest))
    is_per_step = task_spec.l_output is not None
    values = {
        "task": make.__name__,
        "head": "StepHead" if is_per_step else "PooledHead",
        "encoder": "TokenEncoder" if is_token else "VectorEncoder",
        "vocabulary": ", vocabulary=D_INPUT" if is_token else "",
        "batch": writing.power_of_2(batch),
        "where": "".join(f"        {name}={v!r},\n" for name, v in where.items()),
        "fields": "".join(f"        {name}={name.upper()},\n" for name in fields),
        "d_output": "len(CLASSES)" if counts else str(task_spec.d_output),
    }
    writing.write(output, TEMPLATE, values, **fields)
    n = ", ".join(f"{n:,} {split}" for split, n in sizes.items())
    found = [("examples", f"{sum(sizes.values()):,}: {n}"), *found]
    few = writing.few_examples(sizes, "examples")
    return writing.Written([*found, *_classes(counts, fields), *few])


def _of_arrays(path, kind):
    """Fields of an `ArrayTask`, what was found, and the sizes of classes or None."""
    file = user_files.npz(str(path))
    for name in ("inputs", "targets"):
        if name not in file:
            raise ValueError(
                f"`--data` must have the arrays inputs and targets, got "
                f"{', '.join(file) or 'none'} in {path}; `np.savez(FILE, inputs=..., "
                "targets=...)` writes them."
            )
    inputs, targets = file.layout("inputs"), file.layout("targets")
    if len(inputs.shape) not in (2, 3) or inputs.dtype.kind not in "biuf":
        raise ValueError(
            "`--data` must have inputs that are numbers (n, length) or (n, length, "
            f"features), got {inputs.dtype} {inputs.shape} in {path}; pairs of "
            "sequences need `spec(ArrayTask, pair=True, ...)` in a config."
        )
    n, length = inputs.shape[:2]
    labelled = targets.dtype.kind in _LABELS
    per_step = kind == "classify" and targets.shape == (n, length)
    if kind == "classify" and not (labelled and (per_step or targets.shape == (n,))):
        raise ValueError(
            f"`--data` must have labels as targets, words or integers ({n},) or "
            f"({n}, {length}), got {targets.dtype} {targets.shape} in {path}; "
            "`ssm-jax new regress` predicts numbers, and `targets.astype(int)` makes "
            "integers."
        )
    if kind == "regress" and (
        targets.dtype.kind not in "biuf" or len(targets.shape) not in (1, 2, 3)
    ):
        raise ValueError(
            f"`--data` must have numbers as targets, ({n},) or ({n}, d), got "
            f"{targets.dtype} {targets.shape} in {path}; `ssm-jax new classify` "
            "predicts labels."
        )
    is_token, d_input = False, inputs.shape[2] if len(inputs.shape) == 3 else 1
    if len(inputs.shape) == 2 and inputs.dtype.kind in "iu":
        tokens = file["inputs"]
        is_token = tokens.size > 0 and tokens.min() >= 0 and tokens.max() <= _MAX_TOKEN
        d_input = int(tokens.max()) + 1 if is_token else 1
    fields: dict[str, Any] = {
        "length": length,
        "inputs": "token" if is_token else "vector",
        "d_input": d_input,
        "targets": "classification" if kind == "classify" else "regression",
    }
    if kind == "regress":
        per_step = len(targets.shape) == 3
        fields["d_output"] = targets.shape[-1] if len(targets.shape) > 1 else 1
    fields |= {"per_step": per_step, "standardize": not is_token or kind == "regress"}
    what = f"tokens 0 to {d_input - 1}" if is_token else f"{d_input} numbers a step"
    lengths = ", of lengths" if "lengths" in file else ""
    found = [("inputs", f"{length:,} steps{lengths}, {what}")]
    if kind == "regress":
        return fields, found, None
    return fields, found, _count_labels(file["targets"], path)


def _of_table(path, kind, example, target):
    """Fields of a `LongTable`, what was found, and the sizes of classes or None."""
    table = columns.read(str(path))
    for flag, name in (("example", example), ("target", target)):
        if name not in table:
            what = "the sequence of each step" if flag == "example" else "its target"
            raise ValueError(
                f"`--{flag}` must be the column of {what}, one of {', '.join(table)} "
                f"of {path}, got {name!r}; --{flag}=COLUMN names it."
            )
    numeric, gaps, unread = [], False, dict(table.others)
    for name in table:
        if name in (example, target):
            continue
        numbers, misfit, _ = table.numbers(name)
        if misfit is not None:
            value = str(table[name][misfit.row])[: columns.SHOWN]
            unread[name] = f"{value!r} in {table.place(misfit.row)} {misfit.reason}"
        if numbers is None or np.isnan(numbers).all():
            unread.setdefault(name, "has no value")
            continue
        numeric.append(name)
        gaps = gaps or bool(np.isnan(numbers).any())
    if not numeric:
        raise ValueError(
            "`--data` must have a column of numbers beside those of the sequence and "
            f"the target, got none of {', '.join(table)} in {path}; the features of a "
            "step are such columns."
        )
    of_row, lengths = long_table.group(table, example)
    fields: dict[str, Any] = {
        "example": example,
        "target": target,
        "features": tuple(numeric),
        "length": int(lengths.max()),
        "missing": "mean" if gaps else "error",
    }
    steps = f"{lengths.min():,} to {lengths.max():,} steps"
    found = [("inputs", steps), ("features", writing.shortened(numeric))]
    if gaps:
        found.append(("missing", "values are replaced by the mean of their column"))
    found += [("unread", f"{name}: {reason}") for name, reason in unread.items()]
    _check_target(table, target, kind, len(lengths))
    if kind == "regress":
        return fields, found, None
    # The label of an example is that of its first row; the task compares the others.
    _, first = np.unique(of_row, return_index=True)
    return fields, found, _count_labels(table[target][first], path)


def _check_target(table, name, kind, n_examples):
    """Refuses numbers as labels, and labels as numbers."""
    numbers, misfit, _ = table.numbers(name)
    if kind == "regress" and numbers is None:
        raise ValueError(
            f"`--target` must be a column of numbers, got "
            f"{table.shown(name, misfit.row)}, which {misfit.reason}; `ssm-jax new "
            "classify` predicts labels."
        )
    if kind == "regress" or numbers is None:
        return
    # Numbers with a fraction, or of which almost every example has another.
    different = np.unique(numbers[~np.isnan(numbers)])
    if (different % 1 != 0).any() or len(different) > max(2, n_examples // 2):
        raise ValueError(
            f"`--target` must be a column of labels, got {name!r} with "
            f"{len(different):,} different numbers in {table.path}; `ssm-jax new "
            "regress` predicts numbers."
        )


def _count_labels(labels, path):
    """The number of examples of each class, by its name."""
    values, counts = np.unique(labels, return_counts=True)
    names = [str(value).strip() for value in values.tolist()]
    if not 2 <= len(names) <= min(_MAX_CLASSES, max(2, labels.size // 2)):
        raise ValueError(
            f"`--data` must have from 2 to {_MAX_CLASSES} labels, each of several "
            f"examples, got {len(names)} in {labels.size} of {path}; `ssm-jax new "
            "regress` predicts numbers."
        )
    by_name: dict[str, int] = {}
    for name, count in zip(names, counts.tolist(), strict=True):
        by_name[name] = by_name.get(name, 0) + count
    return by_name


def _with_classes(fields, counts):
    """The fields with the classes, of known numbers of examples."""
    imbalanced = max(counts.values()) > _IMBALANCED * min(counts.values())
    fields = fields | {
        "classes": tuple(counts),
        "class_weight": "balanced" if imbalanced else None,
    }
    if "targets" in fields:
        fields["d_output"] = len(counts)
    return fields


def _classes(counts, fields):
    """What is printed of classes."""
    if counts is None:
        return
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown = writing.shortened(f"{name} ({n:,})" for name, n in ordered)
    yield "classes", f"{len(counts)}: {shown}"
    if fields["class_weight"]:
        name, n = ordered[0]
        share = n / sum(counts.values())
        yield (
            "imbalance",
            f"{name} is {share:.0%} of all: each class counts equally in the loss, and "
            "macro-F1 is reported",
        )
