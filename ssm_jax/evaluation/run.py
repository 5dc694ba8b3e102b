"""Evaluation of a run: metrics on a split, and a look at what was learned."""

import json
import os
from collections.abc import Sequence
from typing import Any, Literal

import jax
import optax
from absl import logging

from ssm_jax.evaluation.baseline import trivial_baseline
from ssm_jax.evaluation.inspect import inspect
from ssm_jax.evaluation.length_extension import Order, losses_by_length, verdict
from ssm_jax.evaluation.length_extension import Start as LengthStart
from ssm_jax.evaluation.restore import restore
from ssm_jax.tasks.base import Split
from ssm_jax.training.evaluate import evaluate
from ssm_jax.training.folder import RunFolder
from ssm_jax.training.lock import check_one_process
from ssm_jax.training.loop import carried_in_evaluation
from ssm_jax.training.parallel import DataParallel
from ssm_jax.training.state import Run

LENGTHS_FILE = "length_extension.jsonl"

# From fresh states it is all the same how windows follow each other.
WAYS: tuple[tuple[LengthStart, Order], ...] = (
    ("zero", "text"),
    ("previous", "text"),
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

    Writes the metrics to ``evaluation.json`` in the work folder, and what pictures are
    drawn from to ``inspection.npz``; changes nothing else.

    Args:
      workdir: The folder of the run.
      which: The checkpoint, as `restore` takes it.
      split: Which part of the data.
      data_dir: Where the task's data are, if no longer where the run found them.

    Returns:
      What was measured, with ``step`` and ``split``, and as ``baseline`` what
      `trivial_baseline` gives on the same batches.

    Raises:
      FileNotFoundError: There is no run in the folder, or no data.
      CheckpointError: It has no such checkpoint, or one that is not what was saved.
      ValueError: ``which`` is something else, or there are several processes.
    """
    check_one_process()
    restored = restore(workdir, which, data_dir=data_dir)
    training = restored.training
    n = jax.local_device_count()
    devices = jax.local_devices()[: n if training.batch_size % n == 0 else 1]
    parallel = DataParallel(training.parallel, devices)
    variables = dict(restored.variables)
    params = variables.pop("params")
    run = Run(
        restored.model, restored.task.spec, transform=optax.identity(), summary=()
    )
    measured = evaluate(
        parallel.evaluation_step(run),
        parallel,
        restored.task,
        params,
        variables,
        split=split,
        batch_size=training.batch_size,
        limit=training.evaluation_batches,
        seed=training.seed,
        carry=carried_in_evaluation(restored.model, training),
    )
    baseline = trivial_baseline(
        restored.task,
        split,
        batch_size=training.batch_size,
        limit=training.evaluation_batches,
        seed=training.seed,
    )
    result = {
        "split": split,
        "step": restored.step,
        **measured,
        "baseline": baseline,
    }
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

    From fresh states, and from those of the window before, then also with the windows
    mixed. Writes a line for each to ``length_extension.jsonl`` in the work folder.

    Args:
      workdir: The folder of the run.
      lengths: Tokens of a window, rising; each must divide the greatest.
      which: The checkpoint, as `restore` takes it.
      split: Which part of the text.
      max_tokens: Tokens from its start on that are read, if not the greatest length
        takes more.
      data_dir: Where the text is, if no longer where the run found it.

    Returns:
      A row for each: ``split``, ``start``, ``order``, ``length``, ``loss`` (nats a
      token), ``error`` (its deviation over windows), ``perplexity``; ``trained``, the
      length it was trained at; and ``extends``, the `verdict` on all lengths from that
      one on.

    Raises:
      ValueError: The run is not of a language model, a length does not fit, or there
        are several processes.
    """
    check_one_process()
    restored = restore(workdir, which, data_dir=data_dir)
    text, trained = restored.text.text(split), restored.text.length
    text = text[: max(max_tokens, *lengths) + 1]
    rows = []
    for start, order in WAYS:
        found = []
        for each in losses_by_length(
            restored.model, restored.variables, text, lengths, start=start, order=order
        ):
            found.append(each)
            logging.info("%s, %s, %d: %.4f", start, order, each.length, each.loss)
        beyond = [each for each in found if each.length >= trained]
        extends = verdict(found, beyond=trained) if len(beyond) > 1 else None
        rows += [
            {
                "split": split,
                "start": start,
                "order": order,
                "length": each.length,
                "loss": each.loss,
                "error": each.error,
                "perplexity": each.perplexity,
                "trained": trained,
                "extends": extends,
            }
            for each in found
        ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (RunFolder(workdir).path / LENGTHS_FILE).write_text(lines)
    return rows
