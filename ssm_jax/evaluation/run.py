"""Evaluation of a run from its work dir: metrics, arrays for figures, length curves."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import optax
from absl import logging

from ssm_jax.evaluation.baseline import trivial_baseline
from ssm_jax.evaluation.forecast import (
    errors_by_series,
    forecast_errors,
    forecast_panels,
    forecast_task,
    forecasts,
    interval_widths,
    panels_to_arrays,
)
from ssm_jax.evaluation.inspect import inspect
from ssm_jax.evaluation.length_extension import (
    LossAtLength,
    Order,
    WindowState,
    check_lengths,
    classify_extension,
    loss_interval,
    losses_by_length,
    merged_documents,
    spread_spans,
)
from ssm_jax.evaluation.lengths import accuracy_by_length
from ssm_jax.evaluation.memory import effective_remembrance, state_sizes
from ssm_jax.evaluation.predict import Data, is_path, task_on
from ssm_jax.evaluation.predictions import predictions
from ssm_jax.evaluation.restore import Restored, restore
from ssm_jax.files import write_arrays, write_text
from ssm_jax.tasks.base import Split
from ssm_jax.tasks.series.windows import SeriesTask
from ssm_jax.tasks.text.folder import TextFolder
from ssm_jax.training.hosts import check_one_process
from ssm_jax.training.measure import carried_in_evaluation, evaluate, finite_or_none
from ssm_jax.training.parallel import DataParallel, local_mesh
from ssm_jax.training.state import RunSpec
from ssm_jax.training.stopping import last_step
from ssm_jax.training.workdir import WorkDir
from ssm_jax.training.writers import show_time

LENGTHS_FILE = "length_extension.jsonl"
ACCURACY_FILE = "accuracy_by_length.jsonl"
MEMORY_FILE = "memory.json"
FORECAST_FILE = "forecast.npz"

# Windows of the maximum length that are evaluated by default, each of another document
# if there are as many.
_WINDOWS = 8

# From zero states the loss does not depend on the order of the windows. With states
# carried over in the order of the text it does not depend on their length.
CARRIED_STATES: tuple[WindowState, Order] = ("carry", "text")
EVALUATIONS: tuple[tuple[WindowState, Order], ...] = (
    ("zero", "text"),
    CARRIED_STATES,
    ("carry", "shuffled"),
)


def evaluate_run(
    workdir: str | os.PathLike[str],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "test",
    data: Data | None = None,
    data_dir: str | None = None,
    packages: Collection[str] = (),
    allow_changed_data: bool = False,
    mesh: str | None = None,
    predictions_file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Evaluates the model of a run on a split.

    The whole split is evaluated; ``evaluation_batches`` of the training configuration
    applies to endless splits only. Metrics are written to ``evaluation.json`` in the
    work dir, and arrays for figures to ``inspection.npz``. If the work dir is
    read-only, a warning is logged, and they are returned alone. Metrics on the data of
    another ``data_dir``, which are no result of the run, are written to
    ``evaluation-NAME.json`` with the name of that directory, and no arrays are.

    Args:
      workdir: Work dir of the run.
      which: The checkpoint; see `restore`.
      split: The split.
      data: Data with targets that are new to the run, all of whose windows or examples
        are evaluated by the statistics of the training; see
        `ssm_jax.evaluation.predict`. The metrics are written to
        ``evaluation-NAME.json``, with the name of the file or folder, if it is one, and
        there is no ``baseline``, which is of the train split. None means those of the
        run.
      data_dir: Data directory of the task, if it has moved since the run.
      packages: Packages whose classes the run may name; see `restore`.
      allow_changed_data: Whether the data may be others than those of the training;
        see `restore`.
      mesh: How all local devices share the model; see `restore`. None: each of them
        has the whole model, or one alone if they do not divide the batch.
      predictions_file: The ``.npz`` file to write the predictions of every example to;
        see `predictions`. None means none.

    Returns:
      The metrics, None for those that are not defined (see `finite_or_none`), with
      ``step`` and ``split``; ``logged_step``, the last step that the run had logged;
      ``baseline``, the result of `trivial_baseline` on the same
      batches; for text ``corpus``, the result of `corpus`; for a forecast ``forecast``,
      that of `forecast_errors`, and of several series ``mae_by_series``, that of
      `errors_by_series`; and ``changed_data``, True if the data are others than
      those of the training.

    Raises:
      FileNotFoundError: The work dir holds no run, or the data are missing.
      CheckpointError: The checkpoint does not exist or is corrupt.
      ValueError: ``which`` is not valid, predictions of the train split are asked for,
        the data changed, or there are several processes.
      FloatingPointError: Predictions are NaN; the error names the metrics and the
        number of targets.
    """
    work, logged, restored = _open_run(
        workdir,
        which,
        data_dir=data_dir,
        packages=packages,
        # The splits of the training are not read.
        allow_changed_data=allow_changed_data or data is not None,
        mesh=mesh,
    )
    other = _other_data(restored, data_dir)
    if data is not None:
        restored = dataclasses.replace(restored, task=task_on(restored, data))
        # Absolute, as "." has no name.
        path = Path(data).expanduser() if is_path(data) else Path("data")
        other = f"-{_file_name(Path(os.path.abspath(path)).stem)}"
    training, task = restored.training, restored.task
    writable = work.may_write()
    endless = task.n_examples(split) is None
    limit = training.evaluation_batches if endless else None
    # All local devices if they divide the batch evenly, otherwise one.
    n = jax.local_device_count()
    devices = jax.local_devices()[: n if training.batch_size % n == 0 else 1]
    parallel = DataParallel(training.parallel, devices)
    if mesh is not None:
        parallel = local_mesh(mesh)
        parallel.check(training.batch_size)
    if predictions_file is not None:
        arrays = predictions(restored, split, parallel=parallel, limit=limit)
        write_arrays(Path(predictions_file), arrays)
    variables = dict(restored.variables)
    params = variables.pop("params")
    # Evaluation has no optimizer.
    run = RunSpec(restored.model, task.spec, transform=optax.identity(), summary=())
    with show_time(f"evaluating the {split} split"):
        measured = evaluate(
            parallel.evaluation_step(run),
            parallel,
            task,
            params,
            variables,
            split=split,
            batch_size=training.batch_size,
            limit=limit,
            seed=training.seed,
            carry=carried_in_evaluation(restored.model, training),
        )
    baseline = None
    if data is None:
        baseline = trivial_baseline(
            task,
            split,
            batch_size=training.batch_size,
            limit=limit,
            seed=training.seed,
        )
    result = {"split": split, "step": restored.step, "logged_step": logged}
    result |= {**finite_or_none(measured, split), "baseline": baseline}
    if restored.changed_data or data is not None:
        result["changed_data"] = True
    if isinstance(task, TextFolder):
        result["corpus"] = corpus(task, split)
    panels = None
    if isinstance(task, SeriesTask) and task.classes is None:
        arrays = forecasts(restored, split)
        known = data is not None or restored.widths is not None
        widths = restored.widths if known else calibrate(workdir, restored)
        result["forecast"] = forecast_errors(arrays, widths)
        if task.group is not None:
            result["mae_by_series"] = errors_by_series(task, split, arrays)
        panels = panels_to_arrays(forecast_panels(task, split, arrays, widths))
    if writable:
        with _log_if_not_written(work, result):
            if panels is not None and not other:
                write_arrays(work.path / FORECAST_FILE, panels)
            # First, so that an error of what is drawn loses no metric.
            work.write(f"evaluation{other}.json", result)
            if not other:
                inspect(restored, work.path / "inspection.npz", split)
    return result


def calibrate(
    workdir: str | os.PathLike[str], restored: Restored
) -> Mapping[str, np.ndarray] | None:
    """Measures how wide the intervals around the forecasts of a run are.

    They are kept in the work dir, if it is not read-only, for predictions on data
    without the validation split of the training.

    Args:
      workdir: Work dir of the run.
      restored: Its model.

    Returns:
      The result of `interval_widths` on the validation split; None if the data changed
      before it was measured, so that there is no such split.

    Raises:
      ValueError: The model is of another task than a forecast.
    """
    if restored.widths is not None:
        return restored.widths
    forecast_task(restored)
    if restored.changed_data:
        logging.warning("no intervals: the data are not those of the training")
        return None
    with show_time("measuring the intervals on the validation split"):
        widths = interval_widths(forecasts(restored, "validation"))
    work = WorkDir(workdir)
    if work.may_write():
        work.write_widths(restored.step, widths)
    return widths


def evaluate_lengths(
    workdir: str | os.PathLike[str],
    lengths: Sequence[int],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "validation",
    max_tokens: int | None = None,
    data_dir: str | None = None,
    packages: Collection[str] = (),
    allow_changed_data: bool = False,
    mesh: str | None = None,
) -> list[dict[str, Any]]:
    """Measures the loss of a language model by window length; see `losses_by_length`.

    Three evaluations are made: windows from zero states; states carried over in the
    order of the text, measured at the maximum length only, because the loss is the same
    at every length; and states carried over between shuffled windows. Windows are
    distributed evenly over the documents of the split; states are carried within a span
    (`Spans`). The rows are written to ``length_extension.jsonl`` in the work dir, if it
    is not read-only; on the text of another ``data_dir`` to
    ``length_extension-NAME.jsonl``, with the name of that directory.

    Args:
      workdir: Work dir of the run.
      lengths: Window lengths in tokens, increasing; each must divide the maximum.
      which: The checkpoint; see `restore`.
      split: Split of the text.
      max_tokens: Maximum number of tokens evaluated at each length; at least one window
        of the maximum length is evaluated. None means 2**19, and at least 8 windows of
        the maximum length, so that a standard error has several documents.
      data_dir: Data directory of the text, if it has moved since the run.
      packages: Packages whose classes the run may name; see `restore`.
      allow_changed_data: Whether the data may have changed; see `restore`.
      mesh: How all local devices share the model; see `restore`.

    Returns:
      One row per evaluation and length, a dict with

      - ``split``, ``window_state``, ``order`` and ``length``;
      - ``loss`` in nats per token, its standard ``error`` over documents, its 95 %
        ``interval`` (see `loss_interval`), ``loss_by_document`` and ``perplexity``;
      - ``trained``, the training length, and ``extends``, the result of
        `classify_extension` for windows from zero states, None for the others;
      - ``corpus``, the result of `corpus`, with ``tokens_read`` and
        ``documents_read``; short documents are merged as in `spread_spans`;
      - ``documents_merged``, whether short documents were merged, so that one of
        ``documents_read`` is several files;
      - ``missing``, a list of sentences: which fields are None, why, and which argument
        gives them a value; each is logged as a warning too;
      - ``logged_step``, the last step that the run had logged.

      For a single document ``error``, ``interval`` and ``extends`` are None.

    Raises:
      ValueError: The run is not of a language model, a length does not fit, the data
        changed, or there are several processes.
      FloatingPointError: The loss of a window is NaN.
    """
    work, logged, restored = _open_run(
        workdir,
        which,
        data_dir=data_dir,
        packages=packages,
        allow_changed_data=allow_changed_data,
        mesh=mesh,
    )
    writable = work.may_write()
    rows = measure_lengths(
        restored,
        lengths,
        split=split,
        max_tokens=max_tokens,
        trained=restored.text.length,
    )
    rows = [row | {"logged_step": logged} for row in rows]
    if writable:
        _write_rows(work, LENGTHS_FILE, _other_data(restored, data_dir), rows)
    return rows


def evaluate_accuracy(
    workdir: str | os.PathLike[str],
    lengths: Sequence[int],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "test",
    n_rows: int = 64,
    data_dir: str | None = None,
    packages: Collection[str] = (),
    allow_changed_data: bool = False,
    mesh: str | None = None,
) -> list[dict[str, Any]]:
    """Measures the accuracy of a run by the length of rows; see `accuracy_by_length`.

    The rows are written to ``accuracy_by_length.jsonl`` in the work dir, if it is not
    read-only; on the data of another ``data_dir`` to ``accuracy_by_length-NAME.jsonl``,
    with the name of that directory.

    Args:
      workdir: Work dir of the run.
      lengths: Lengths of rows, as the ``length`` of its task.
      which: The checkpoint; see `restore`.
      split: The split.
      n_rows: Number of rows of each length, at least.
      data_dir: Data directory of the task, if it has moved since the run.
      packages: Packages whose classes the run may name; see `restore`.
      allow_changed_data: Whether the data may have changed; see `restore`.
      mesh: How all local devices share the model; see `restore`.

    Returns:
      The rows of `accuracy_by_length`, each with ``step`` and ``logged_step``, the last
      step that the run had logged.

    Raises:
      ValueError: The task of the run has no rows of other lengths, a length does not
        fit, the data changed, or there are several processes.
      FloatingPointError: Predictions are NaN.
    """
    work, logged, restored = _open_run(
        workdir,
        which,
        data_dir=data_dir,
        packages=packages,
        allow_changed_data=allow_changed_data,
        mesh=mesh,
    )
    writable = work.may_write()
    seed = restored.training.seed
    rows = accuracy_by_length(restored, lengths, split=split, n_rows=n_rows, seed=seed)
    rows = [row | {"step": restored.step, "logged_step": logged} for row in rows]
    if writable:
        _write_rows(work, ACCURACY_FILE, _other_data(restored, data_dir), rows)
    return rows


def measure_lengths(
    restored: Restored,
    lengths: Sequence[int],
    *,
    split: Split = "validation",
    max_tokens: int | None = None,
    trained: int | None = None,
) -> list[dict[str, Any]]:
    """Measures the loss of a language model by window length, and writes nothing.

    Args:
      restored: The model, which need not be that of a run.
      lengths: As for `evaluate_lengths`.
      split: As for `evaluate_lengths`.
      max_tokens: As for `evaluate_lengths`.
      trained: The training length. None means that it is not known.

    Returns:
      The rows of `evaluate_lengths`, without ``logged_step``; ``trained`` and
      ``extends`` are None if the training length is not known.

    Raises:
      ValueError: The model is not of a text, or a length does not fit.
      FloatingPointError: The loss of a window is NaN.
    """
    task = restored.text
    text, known = task.text(split), corpus(task, split)
    edges = task.documents(split)
    check_lengths(lengths)
    n_groups = len(merged_documents(edges, max(lengths))) - 1
    if max_tokens is None:
        max_tokens = max(2**19, _WINDOWS * max(lengths))
    missing = _explain_missing(
        lengths, trained, max_tokens, n_groups=n_groups, n_files=len(edges) - 1
    )
    for sentence in missing:
        logging.warning("%s", sentence)
    rows = []
    for start, order in EVALUATIONS:
        losses = []
        for loss in losses_by_length(
            restored.model,
            restored.variables,
            text,
            lengths[-1:] if (start, order) == CARRIED_STATES else lengths,
            edges=edges,
            max_tokens=max_tokens,
            window_state=start,
            order=order,
        ):
            losses.append(loss)
            logging.info("%s, %s, %d: %.4f", start, order, loss.length, loss.loss)
        evaluation = {"split": split, "window_state": start, "order": order}
        common = {
            "trained": trained,
            "extends": _classify_extension(losses, trained)
            if start == "zero"
            else None,
            "documents_merged": n_groups < len(edges) - 1,
            "missing": missing,
        }
        rows += [evaluation | _row(loss, known) | common for loss in losses]
    return rows


def evaluate_memory(
    workdir: str | os.PathLike[str],
    positions: Sequence[int],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "validation",
    n_rows: int = 16,
    data_dir: str | None = None,
    packages: Collection[str] = (),
    allow_changed_data: bool = False,
    mesh: str | None = None,
) -> dict[str, Any]:
    """Measures what a language model remembers, and the size of its states.

    The results are written to ``memory.json`` in the work dir, if it is not read-only;
    on the text of another ``data_dir`` to ``memory-NAME.json``, with the name of that
    directory.

    Args:
      workdir: Work dir of the run.
      positions: Numbers of tokens after which states are measured, increasing.
      which: The checkpoint; see `restore`.
      split: Split of the text.
      n_rows: Number of texts, of as many documents where there are.
      data_dir: Data directory of the text, if it has moved since the run.
      packages: Packages whose classes the run may name; see `restore`.
      allow_changed_data: Whether the data may have changed; see `restore`.
      mesh: How all local devices share the model; see `restore`.

    Returns:
      A dict, ready for JSON: ``split``, ``trained``, the length of the training, and
      ``n_rows``; ``length``, four times as long, with ``starts`` and
      ``effective_remembrance``, the results of `effective_remembrance` on texts of that
      length; ``positions`` and ``states``, the results of `state_sizes`; and
      ``logged_step``, the last step that the run had logged.

    Raises:
      ValueError: The run is not of a language model with states, a text is too short,
        the data changed, or there are several processes.
    """
    work, logged, restored = _open_run(
        workdir,
        which,
        data_dir=data_dir,
        packages=packages,
        allow_changed_data=allow_changed_data,
        mesh=mesh,
    )
    writable = work.may_write()
    task, model, variables = restored.text, restored.model, restored.variables
    length = 4 * task.length
    longest = max([length, *positions])
    spans = spread_spans(
        task.documents(split), longest, n_rows * longest, n_spans=n_rows
    )
    starts = spans.starts.ravel()[:n_rows, None]
    texts = task.text(split)[starts + np.arange(longest)]
    # Dense at both ends: where a model fails, and where it is still learning the text.
    powers = [2**k for k in range(length.bit_length() - 1)]
    removed = sorted({0, *powers, *(length - n for n in powers)})
    remembered = effective_remembrance(model, variables, texts[:, :length], removed)
    result = {
        "split": split,
        "trained": task.length,
        "n_rows": len(texts),
        "length": length,
        "starts": removed,
        "effective_remembrance": remembered.tolist(),
        "positions": list(positions),
        "states": [
            {"name": name, "norm": norm.tolist(), "deviation": deviation.tolist()}
            for name, norm, deviation in state_sizes(model, variables, texts, positions)
        ],
        "logged_step": logged,
    }
    if writable:
        _write_rows(work, MEMORY_FILE, _other_data(restored, data_dir), [result])
    return result


def _other_data(restored: Restored, data_dir: str | None) -> str:
    """What files are named by that are of other data than those of the run.

    Returns:
      ``-NAME`` for a directory that was asked for and has other data, or nothing.
    """
    if data_dir is None or not restored.changed_data:
        return ""
    return f"-{_file_name(Path(data_dir).expanduser().resolve().name)}"


def _file_name(name: str) -> str:
    """A name as part of the name of a file."""
    # File systems take names of at most 255 bytes.
    return re.sub(r"[^\w.-]+", "_", name, flags=re.ASCII)[:100]


def _open_run(workdir, which, **options):
    """The work dir of a run, the last step that it had logged, and its model."""
    check_one_process()
    work = WorkDir(workdir)
    # Before the checkpoint: a run that takes steps meanwhile is to be evaluated again.
    logged = last_step(work.metrics())
    return work, logged, restore(workdir, which, **options)


def _write_rows(
    work: WorkDir, file: str, other: str, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Writes rows, one a line, with ``other`` behind the stem of the file."""
    # Written at the end, so that an interrupted evaluation keeps the previous file.
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    stem, suffix = file.split(".")
    with _log_if_not_written(work, rows):
        write_text(work.path / f"{stem}{other}.{suffix}", lines)


@contextlib.contextmanager
def _log_if_not_written(work: WorkDir, result: object) -> Iterator[None]:
    """Logs a result that a full disk, or the like, keeps from being written."""
    try:
        yield
    except OSError:
        logging.error("not written to %s: %s", work.path, json.dumps(result))
        raise


def _explain_missing(
    lengths: Sequence[int],
    trained: int | None,
    max_tokens: int,
    *,
    n_groups: int,
    n_files: int,
) -> list[str]:
    """What rows of an evaluation by length do not have, why, and the way out."""
    longest, sentences = max(lengths), []
    if n_groups < 2:
        files = "one document" if n_files == 1 else f"{n_files} documents together"
        sentences.append(
            f"error, interval and extends are null: the split has {files} for windows "
            f"of {longest:,} tokens, and a standard error is taken over two or more; "
            "use shorter --lengths, or a --split of more text."
        )
    elif max_tokens < 2 * longest:
        sentences.append(
            "error, interval and extends are null: --max_tokens allows one document at "
            f"{longest:,} tokens, and a standard error is taken over two or more; use "
            f"--max_tokens={2 * longest} or more."
        )
    if trained is None:
        sentences.append(
            "extends is null: it compares lengths from the training length on, which "
            "is not known of a model that is not of a run."
        )
    elif sum(length >= trained for length in lengths) < 2:
        sentences.append(
            "extends is null: it compares two lengths or more from the training length "
            f"on; add to --lengths such as {trained} and {2 * trained}."
        )
    return sentences


def _classify_extension(
    losses: Sequence[LossAtLength], trained: int | None
) -> str | None:
    """`classify_extension`, or None if there are too few lengths or documents."""
    if trained is None:
        return None
    beyond = [loss for loss in losses if loss.length >= trained]
    if len(beyond) < 2 or beyond[0].n_documents < 2:
        return None
    return classify_extension(beyond, beyond=trained)


def _row(measured: LossAtLength, known: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a row that belongs to one length."""
    counts = {
        "tokens_read": measured.length * len(measured.windows),
        "documents_read": measured.n_documents,
    }
    interval = loss_interval(measured.documents)
    return {
        "length": measured.length,
        "loss": measured.loss,
        "error": measured.error,
        # JSON has no infinities.
        **finite_or_none(
            {"perplexity": measured.perplexity}, f"length {measured.length}"
        ),
        "interval": None if interval is None else list(interval),
        "loss_by_document": measured.documents.tolist(),
        "corpus": {**known, **counts},
    }


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
