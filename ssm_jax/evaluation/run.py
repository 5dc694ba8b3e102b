"""Evaluation of a run: metrics on a split, and a look at what was learned."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import optax
from absl import logging

from ssm_jax.evaluation.baseline import trivial_baseline
from ssm_jax.evaluation.corpus import corpus
from ssm_jax.evaluation.inspect import inspect
from ssm_jax.evaluation.length_extension import (
    LossAtLength,
    Order,
    classify_extension,
    loss_interval,
    losses_by_length,
)
from ssm_jax.evaluation.length_extension import WindowState as LengthStart
from ssm_jax.evaluation.restore import restore
from ssm_jax.tasks.base import Split
from ssm_jax.tasks.text.folder import TextFolder
from ssm_jax.training.evaluate import evaluate
from ssm_jax.training.folder import RunFolder
from ssm_jax.training.lock import check_one_process
from ssm_jax.training.loop import carried_in_evaluation
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import RunSpec

LENGTHS_FILE = "length_extension.jsonl"

# From fresh states it is all the same how windows follow each other. Where states go on
# in the order of the text it is all the same how long they are.
CARRIED: tuple[LengthStart, Order] = ("previous", "text")
WAYS: tuple[tuple[LengthStart, Order], ...] = (
    ("zero", "text"),
    CARRIED,
    ("previous", "shuffled"),
)


def evaluate_run(
    workdir: str | os.PathLike[str],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "test",
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Measures the model of a run on a split and looks into it.

    The whole split is measured: ``evaluation_batches`` bounds an evaluation within
    training, and here that of a split without end alone. Writes the metrics to
    ``evaluation.json`` in the work folder, and what pictures are drawn from to
    ``inspection.npz``; changes nothing else.

    Args:
      workdir: The folder of the run.
      which: The checkpoint, as `restore` takes it.
      split: Which part of the data.
      data_dir: Where the task's data are, if no longer where the run found them.

    Returns:
      What was measured, with ``step`` and ``split``; as ``baseline`` what
      `trivial_baseline` gives on the same batches; and of text `corpus`.

    Raises:
      FileNotFoundError: There is no run in the folder, or no data.
      CheckpointError: It has no such checkpoint, or one that is not what was saved.
      ValueError: ``which`` is something else, or there are several processes.
    """
    check_one_process()
    restored = restore(workdir, which, data_dir=data_dir)
    training, task = restored.training, restored.task
    endless = task.n_examples(split) is None
    limit = training.evaluation_batches if endless else None
    n = jax.local_device_count()
    devices = jax.local_devices()[: n if training.batch_size % n == 0 else 1]
    parallel = DataParallel(training.parallel, devices)
    variables = dict(restored.variables)
    params = variables.pop("params")
    run = RunSpec(restored.model, task.spec, transform=optax.identity(), summary=())
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
    baseline = trivial_baseline(
        task,
        split,
        batch_size=training.batch_size,
        limit=limit,
        seed=training.seed,
    )
    result = {"split": split, "step": restored.step, **measured, "baseline": baseline}
    if isinstance(task, TextFolder):
        result["corpus"] = corpus(task, split)
    folder = RunFolder(workdir)
    inspect(restored, folder.path / "inspection.npz")
    folder.write("evaluation.json", result)
    return result


def evaluate_lengths(
    workdir: str | os.PathLike[str],
    lengths: Sequence[int],
    *,
    which: Literal["best", "latest"] | int = "best",
    split: Split = "validation",
    max_tokens: int = 2**19,
    data_dir: str | None = None,
) -> list[dict[str, Any]]:
    """Measures a language model at many lengths; see `losses_by_length`.

    From fresh states; from those of the window before, which is the same at every
    length and measured at the greatest; and so with the windows mixed. Windows are
    spread over all documents of the split, an equal share of each; states go on within
    a span of theirs (`Spans`). Writes a line for each to ``length_extension.jsonl`` in
    the work folder.

    Args:
      workdir: The folder of the run.
      lengths: Tokens of a window, rising; each must divide the greatest.
      which: The checkpoint, as `restore` takes it.
      split: Which part of the text.
      max_tokens: Tokens that are read at each length, if not the greatest length takes
        more.
      data_dir: Where the text is, if no longer where the run found it.

    Returns:
      A row for each: ``split``, ``start``, ``order``, ``length``; ``loss`` (nats a
      token), ``error`` (its standard error over documents), ``interval`` (its
      `loss_interval` of 95 %), ``loss_by_document`` and ``perplexity``; ``trained``,
      the length it was trained at; ``extends``, the `classify_extension` on all lengths from that
      one on, of fresh states alone; and ``corpus``: `corpus`, with ``tokens_read`` and
      ``documents_read``, where those shorter than the greatest length count together
      (`scatter_back` says how). Of a single document ``error``, ``interval`` and ``extends``
      are None.

    Raises:
      ValueError: The run is not of a language model, a length does not fit, or there
        are several processes.
    """
    check_one_process()
    restored = restore(workdir, which, data_dir=data_dir)
    task, trained = restored.text, restored.text.length
    text, known = task.text(split), corpus(task, split)
    rows = []
    for start, order in WAYS:
        found = []
        for each in losses_by_length(
            restored.model,
            restored.variables,
            text,
            lengths[-1:] if (start, order) == CARRIED else lengths,
            edges=task.documents(split),
            max_tokens=max_tokens,
            window_state=start,
            order=order,
        ):
            found.append(each)
            logging.info("%s, %s, %d: %.4f", start, order, each.length, each.loss)
        way = {"split": split, "start": start, "order": order}
        of_all = {
            "trained": trained,
            "extends": _extends(found, trained) if start == "zero" else None,
        }
        rows += [way | _row(each, known) | of_all for each in found]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (RunFolder(workdir).path / LENGTHS_FILE).write_text(lines)
    return rows


def _extends(found: Sequence[LossAtLength], trained: int) -> str | None:
    """The verdict from the trained length on; None where nothing can be said."""
    beyond = [each for each in found if each.length >= trained]
    if len(beyond) < 2 or beyond[0].n_documents < 2:
        return None
    return classify_extension(beyond, beyond=trained)


def _row(measured: LossAtLength, known: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded of one length."""
    read = {
        "tokens_read": measured.length * len(measured.windows),
        "documents_read": measured.n_documents,
    }
    interval = loss_interval(measured.documents)
    return {
        "length": measured.length,
        "loss": measured.loss,
        "error": measured.error,
        "perplexity": measured.perplexity,
        "interval": None if interval is None else list(interval),
        "loss_by_document": measured.documents.tolist(),
        "corpus": {**known, **read},
    }
