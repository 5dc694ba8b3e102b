"""Evaluates the model of a run from its work dir.

    ssm-jax evaluate --workdir=runs/digits

    ssm-jax evaluate --workdir=runs/s5 --mode=length_extension

Uses all devices if they divide the batch of the run, and one device otherwise. Prints
a table of the metrics of the whole split, those of the model beside those of each
trivial baseline, or with ``--json`` all that was measured. It writes that to
``evaluation.json`` in the work dir, and arrays for figures to ``inspection.npz``;
`ssm_jax.cli.report` reads both. The
metrics of a read-only work dir are printed alone, with a warning, and those on the data
of another ``--data_dir`` are written to ``evaluation-NAME.json``, with the name of that
directory: they are no result of the run. On an endless task it
evaluates as many batches as validation during training.

``--data=FILE`` evaluates a forecast on all windows of a file of new rows, or a run of
``ssm-jax new classify`` or ``regress`` on an npz or a table on all examples of a file
of the same form, with the statistics of the training, and writes
``evaluation-FILE.json``. ``--data=FOLDER`` evaluates a run on a folder of recordings or
images on another with the same subfolders, each of which is a class.

``--predictions=FILE.npz`` also writes the target and the prediction of every example of
the split; `ssm_jax.evaluation.predictions` describes the arrays.

``--mode=length_extension`` measures a language model at each window length of
``--lengths``, on an equal share of each document of the split. Memory does not grow
with the lengths or the text. A standard error needs two documents as long as the
longest window, and a classification also two lengths from the training length on: the
field ``missing`` says what could not be computed, and which flag helps. The rows are
written to ``length_extension.jsonl``, which `ssm_jax.cli.report` draws and tabulates;
``--json`` prints them, one a line, in place of a table.

``--mode=lengths`` measures the accuracy of a run on a task with rows of any length,
such as those of recall and state tracking, in ``--rows`` rows of each of ``--lengths``,
by length and by position. It writes ``accuracy_by_length.jsonl``.

``--mode=memory`` measures a language model that has read texts of the split: how much
the first ``t`` tokens of a text, four times as long as those of the training, still
change the prediction at its end (`ssm_jax.evaluation.effective_remembrance`), and the
size of the states after each of ``--lengths`` tokens. It writes ``memory.json``.

With ``length_extension``, ``--workdir`` may be the folder of a Mamba of Hugging Face,
see `ssm_jax.cli.pretrained`, with ``--data_dir``: the rows are then printed alone.
"""

import json
from pathlib import Path
from typing import cast

from absl import flags

from ssm_jax.cli import tables
from ssm_jax.cli.errors import errors_of_data
from ssm_jax.cli.pretrained import restore_pretrained
from ssm_jax.cli.run_flags import (
    check_writable,
    checkpoint,
    define_checkpoint,
    define_run,
    run_options,
)
from ssm_jax.evaluation import (
    evaluate_accuracy,
    evaluate_lengths,
    evaluate_memory,
    evaluate_run,
)
from ssm_jax.evaluation.run import measure_lengths
from ssm_jax.models.pretrained import is_hugging_face
from ssm_jax.tasks import Split


def define_flags() -> None:
    """Defines the flags of this program."""
    define_run("Directory of the data sets (default: that of the run).")
    flags.DEFINE_enum(
        "split", "test", ["train", "validation", "test"], "Split to evaluate."
    )
    flags.DEFINE_string("data", None, "File or folder of new data, with targets.")
    define_checkpoint()
    flags.DEFINE_bool("json", False, "Print JSON in place of a table.")
    flags.DEFINE_string("predictions", None, "npz file for the predictions.")
    flags.DEFINE_enum(
        "mode",
        "metrics",
        ["metrics", "length_extension", "lengths", "memory"],
        "What to measure.",
    )
    flags.DEFINE_list(
        "lengths",
        [str(2**k) for k in range(4, 16)],
        "Window lengths in tokens, lengths of rows, or positions in a text.",
    )
    flags.DEFINE_integer("rows", 64, "Rows of each length of --mode=lengths.", 1)
    flags.DEFINE_integer(
        "max_tokens",
        None,
        "Maximum number of tokens evaluated at each length (default: 2**19, and at "
        "least 8 windows of the maximum length).",
        1,
    )


def main(argv):
    """Evaluates the run of ``--workdir``."""
    del argv
    values = flags.FLAGS
    for name in ("predictions", "data"):
        if values[name].value and values.mode != "metrics":
            raise ValueError(
                f"`--{name}` must be left out with --mode={values.mode}, got "
                f"{values[name].value}; it is of --mode=metrics."
            )
    check_writable("predictions", values.predictions, ("npz",))
    split = cast(Split, values.split)
    options = run_options() | {"which": checkpoint(), "split": split}
    pretrained = is_hugging_face(values.workdir)
    if values.mode != "length_extension" and pretrained:
        raise ValueError(
            "`--mode` must be length_extension for a model that is not of a run, got "
            f"{values.mode} for {values.workdir}; add --mode=length_extension."
        )
    if values.mode == "metrics":
        options["predictions_file"] = values.predictions or None
        options["data"] = values.data
        with errors_of_data(values.data):
            result = evaluate_run(values.workdir, **options)
        print(json.dumps(result) if values.json else tables.evaluation(result).strip())
        return
    words = values.lengths
    numbers = [int(word) for word in words if word.isascii() and word.isdecimal()]
    if not words or len(numbers) < len(words) or min(numbers) < 1:
        raise ValueError(
            "`--lengths` must be positive numbers between commas, got "
            f"{','.join(words)!r}; --lengths=16,32,64 is an example."
        )
    lengths = sorted(set(numbers))
    if values.mode == "lengths":
        options["n_rows"] = values.rows
        measured = evaluate_accuracy(values.workdir, lengths, **options)
        if values.json:
            print(*map(json.dumps, measured), sep="\n")
        else:
            print(tables.by_row_length(measured).strip())
        return
    if values.mode == "memory":
        found = evaluate_memory(values.workdir, lengths, **options)
        print(json.dumps(found) if values.json else tables.memory(found).strip())
        return
    limits = {"split": split, "max_tokens": values.max_tokens}
    if pretrained:
        restored = restore_pretrained(values.workdir, data_dir=values.data_dir)
        rows = measure_lengths(restored, lengths, **limits)
    else:
        rows = evaluate_lengths(values.workdir, lengths, **(options | limits))
    if values.json:
        print(*map(json.dumps, rows), sep="\n")
        return
    name = Path(values.workdir).resolve().name
    run = {"experiment": name, "variant": "", "lengths": rows}
    print(tables.by_length([run]).strip())
