"""Export of a trained model as StableHLO, which runs with JAX and flatbuffers alone.

The programs and the parameters are separate files, so that both programs share one copy
of the parameters and XLA does not compile them as constants::

    forward.stablehlo  (params, inputs, mask) -> predictions; of irregular steps
                       (params, inputs, mask, dt) -> predictions
    step.stablehlo     (params, tokens, state) -> (logits, state), of language models
    params.npz         the parameters and other variables, by path
    state.npz          the state before the first token, of one row, by path
    export.json        what a caller must know: sizes, preprocessing, dates

The arguments are ``params``, a dict of the arrays of its file; ``inputs``, ``(b, l)``
int32 or ``(b, l, f)`` float32; ``mask``, ``(b, l)``, true at valid steps; ``tokens``,
``(b,)`` int32; ``dt``, ``(b, l)`` float32, the time since the step before in units of
the usual one, 1 at the first step; and ``state``, a dict of arrays ``(b, ...)``. Pairs
of sequences have an axis of size 2 before the length. JAX loads a model, with the
package ``flatbuffers``, which JAX does not install; ssm_jax need not be installed::

    import json, jax, numpy as np

    with open("export.json") as file:
        about = json.load(file)
    params = dict(np.load("params.npz"))
    with open("forward.stablehlo", "rb") as file:
        forward = jax.export.deserialize(bytearray(file.read()))
    # A program cannot raise an error of a value: a token out of range gives NaN.
    assert 0 <= inputs.min() and inputs.max() < about["vocabulary"]
    predictions = forward.call(params, inputs, mask)

``export.json`` has the fields

- ``length``: ``l``, or null if the program takes any length; then recurrences are
  evaluated step by step, the only method that does not depend on the length.
  ``length_reason`` says why a length is fixed;
- ``inputs``, ``"token"`` or ``"vector"``, with ``vocabulary``, the number of tokens, or
  ``d_input``, the number of features; ``targets``, ``d_output`` and ``l_output``, as in
  `TaskSpec`;
- ``irregular``: true if the forward pass takes ``dt``; not there otherwise;
- ``preprocessing``: how the task makes inputs, null if it does not say so. Of bytes,
  the token of a byte is the byte plus ``offset``, 1, and token 0 separates documents
  and pads; of words, their list, by token; of subwords, the content of a `tokenizers`
  file; of a series, the mean and the standard
  deviation of each column in the train split, which inputs are normalised and forecasts
  are scaled back with, and of irregular rows the usual step;
- ``jax``, the version that exported, ``platforms``, ``exported``, the date, and
  ``loads_until``: JAX loads an export with all versions released within six months
  after the one that made it; with that one itself, always.

Load exports of those only whom you trust: they are programs.

A step decodes, from the same state for all rows::

    state = {k: np.stack([v] * len(tokens)) for k, v in np.load("state.npz").items()}
    logits, state = step.call(params, tokens, state)
"""

import datetime
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.core import meta
from jax import export

from ssm_jax.fields import PositiveInt, check_value
from ssm_jax.kernels.platforms import on_each_platform
from ssm_jax.models.decoding import can_decode
from ssm_jax.tasks.base import TaskSpec
from ssm_jax.training.checkpointing.leaves import named_leaves
from ssm_jax.types import PyTree

PLATFORMS = ("cpu", "cuda", "tpu")
"""The platforms that are exported for by default."""

_KNOWN_PLATFORMS = (*PLATFORMS, "rocm")

# When versions of JAX were released: it loads what it exported six months ago, counted
# from the version and not from the day of the export.
_RELEASES = {
    (0, 10, 2): datetime.date(2026, 6, 17),
    (0, 11, 0): datetime.date(2026, 7, 16),
    (0, 11, 1): datetime.date(2026, 8, 17),
    (0, 12, 0): datetime.date(2026, 10, 19),
}


def export_model(
    model: nn.Module,
    variables: PyTree,
    spec: TaskSpec,
    output: str | os.PathLike[str],
    *,
    length: int | None = None,
    platforms: Sequence[str] = PLATFORMS,
    preprocessing: dict[str, Any] | None = None,
) -> list[Path]:
    """Exports a model to files.

    `ssm_jax.interop.stablehlo` says what they hold and how to load them.

    Requires the package ``flatbuffers`` (extra ``[interop]``), as does loading.

    Args:
      model: The model.
      variables: Its parameters and other variables.
      spec: The `TaskSpec` of the task that the model was trained on.
      output: Directory for the files; it is created, and files in it are replaced.
      length: Number of steps of a sequence. None means any; see `exported_programs`.
      platforms: The platforms to export for; see `exported_programs`.
      preprocessing: How the task makes inputs, for ``export.json``; a `TextFolder` and
        a `SeriesTask` have a method of this name that returns it.

    Returns:
      The files written. ``step.stablehlo`` and ``state.npz`` are written for language
      models whose layers carry states.

    Raises:
      ValueError: ``flatbuffers`` is not installed, a variable is of a dtype that numpy
        files do not have, such as bfloat16, or as `exported_programs`.
    """
    # Checked first: JAX would raise it after minutes of tracing.
    if importlib.util.find_spec("flatbuffers") is None:
        raise ValueError(
            "`flatbuffers` must be installed to export, got no such package; "
            "`pip install flatbuffers`."
        )
    variables = meta.unbox(variables)
    arrays = {"params.npz": _arrays(variables)}
    programs, length, reason = _programs(model, variables, spec, length, platforms)
    if "step" in programs:
        arrays["state.npz"] = _arrays(_row(model.initial_state((1,))))
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    files = []
    for name, exported in programs.items():
        files.append(output / f"{name}.stablehlo")
        files[-1].write_bytes(exported.serialize())
    for name, values in arrays.items():
        files.append(output / name)
        np.savez(files[-1], allow_pickle=False, **values)
    about = {
        "length": length,
        "length_reason": reason,
        "inputs": spec.inputs,
        "vocabulary" if spec.inputs == "token" else "d_input": spec.d_input,
        "targets": spec.targets,
        "d_output": spec.d_output,
        "l_output": spec.l_output,
        **({"irregular": True} if spec.irregular else {}),
        "preprocessing": preprocessing,
        "jax": jax.__version__,
        "platforms": [*platforms],
        "exported": datetime.date.today().isoformat(),
        "loads_until": last_safe_date(jax.__version__).isoformat(),
    }
    files.append(output / "export.json")
    files[-1].write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return files


def last_safe_date(version: str) -> datetime.date:
    """Returns until when released versions of JAX load an export of this one.

    Args:
      version: The version of JAX that exports. One whose release is not known counts as
        the last known one before it, whose date is earlier.

    Example:
      >>> last_safe_date("0.11.1").isoformat()
      '2027-02-17'
    """
    numbers = tuple(int(word) for word in version.split(".")[:3] if word.isdecimal())
    known = [number for number in _RELEASES if number <= numbers]
    released = _RELEASES[max(known, default=min(_RELEASES))]
    year, month = divmod(released.month + 5, 12)
    # The first days of all months exist, and the last of some do not.
    day = min(released.day, 28)
    return datetime.date(released.year + year, month + 1, day)


def exported_programs(
    model: nn.Module,
    variables: PyTree,
    spec: TaskSpec,
    *,
    length: int | None = None,
    platforms: Sequence[str] = PLATFORMS,
) -> dict[str, export.Exported]:
    """Exports the forward pass of a model and, of a language model, the decoding step.

    The batch size is symbolic: the programs take any number of rows, each of which is
    evaluated as a batch of its own. So is the length, where all operations of the model
    are the same at every length; recurrences are then evaluated sequentially. Where a
    model allows no symbolic length, as softmax attention, positional embeddings and S4
    do not, and with a ``length``, it is fixed: shorter sequences are padded and masked,
    and for each platform the programs have the methods that ``method="auto"`` chooses
    on it for this length, which may take less time. Tokens that are not in the
    vocabulary give NaN: check them before a call.

    Args:
      model: The model.
      variables: Its parameters and other variables; only shapes and dtypes are used.
      spec: The `TaskSpec` of the task that the model was trained on.
      length: Number of steps of a sequence. None means any, or that of the task if the
        model allows no symbolic length.
      platforms: Some of ``"cpu"``, ``"cuda"``, ``"rocm"`` and ``"tpu"``; this machine
        needs none of them.

    Returns:
      ``"forward"``, and ``"step"`` for language models whose layers carry states.

    Raises:
      ValueError: A platform is unknown, or ``length`` is not positive.

    Example::

      programs = exported_programs(model, variables, Digits().spec)
      params = named_leaves(variables)
      predictions = programs["forward"].call(params, x, np.ones(x.shape[:2], bool))
    """
    return _programs(model, variables, spec, length, platforms)[0]


def _programs(model, variables, spec, length, platforms):
    """Programs, their length, None if they take any, and why one is fixed."""
    if length is not None:
        check_value("length", length, PositiveInt)
    unknown = sorted(set(platforms) - set(_KNOWN_PLATFORMS))
    if unknown or not platforms:
        raise ValueError(
            f"`platforms` must be some of {', '.join(_KNOWN_PLATFORMS)}, got "
            f"{', '.join(unknown) or 'none'}; a GPU is cuda or rocm."
        )
    variables = meta.unbox(variables)
    b, any_length = export.symbolic_shape("b, l")

    def exported(function, *args):
        function = jax.jit(on_each_platform(function, platforms))
        return export.export(function, platforms=platforms)(
            _shapes(named_leaves(variables)), *args
        )

    def forward(params, inputs, mask, *sizes):
        params = _from_named(params, variables)

        def apply_row(inputs, *flags):
            # Of steps of equal sizes, `dt` is not there.
            flags = dict(zip(("mask", "dt"), (v[None] for v in flags), strict=False))
            return model.apply(params, inputs[None], **flags)[0][0]

        # The choice of methods needs the shape of a row, which is known.
        return jax.vmap(apply_row)(inputs, mask, *sizes)

    def export_forward(length):
        steps = (b, 2, length) if spec.pair else (b, length)
        inputs = jax.ShapeDtypeStruct(steps, jnp.int32)
        if spec.inputs == "vector":
            inputs = jax.ShapeDtypeStruct((*steps, spec.d_input), jnp.float32)
        flags = [jax.ShapeDtypeStruct(steps, jnp.bool_)]
        if spec.irregular:
            flags.append(jax.ShapeDtypeStruct(steps, jnp.float32))
        return exported(forward, inputs, *flags)

    reason = None if length is None else "the length was given"
    programs = {}
    if length is None:
        # What a model does with a length is not known, so that errors may be of any
        # type; one that is not of the length is raised again by the fixed length.
        try:
            programs = {"forward": export_forward(any_length)}
        except Exception as error:
            length, (cause, *_) = spec.length, str(error).splitlines() or [""]
            reason = f"the model allows no symbolic length: {type(error).__name__}"
            reason += f", {cause}" if cause else ""
    if length is not None:
        programs = {"forward": export_forward(length)}
    if not spec.language or not can_decode(model):
        return programs, length, reason
    state = model.initial_state((1,))

    def step(params, tokens, state_of_rows):
        params = _from_named(params, variables)

        def apply_row(token, named):
            before = jax.tree.map(lambda v: v[None], _from_named(named, state))
            logits, after = model.apply(params, token[None, None], before)
            return logits[0, 0], named_leaves(_row(after))

        return jax.vmap(apply_row)(tokens, state_of_rows)

    programs["step"] = exported(
        step,
        jax.ShapeDtypeStruct((b,), jnp.int32),
        _shapes(named_leaves(_row(state)), b),
    )
    return programs, length, reason


def _row(tree):
    """The only row of a batch."""
    return jax.tree.map(lambda v: v[0], tree)


def _shapes(named, *batch):
    return {
        name: jax.ShapeDtypeStruct((*batch, *leaf.shape), leaf.dtype)
        for name, leaf in named.items()
    }


def _from_named(named, tree):
    """The inverse of `named_leaves`, for the structure of a tree."""
    # By name: `jax.jit` sorts the keys of a dict.
    leaves = [named[name] for name in named_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _arrays(tree):
    """The leaves by path, as arrays that an npz file can hold."""
    arrays = {name: np.asarray(leaf) for name, leaf in named_leaves(tree).items()}
    for name, array in arrays.items():
        # numpy would write the bytes of bfloat16 without its name.
        if array.dtype.kind not in "biufc":
            raise ValueError(
                f"`{name}` must be of a dtype of numpy, got {array.dtype}; "
                "`.astype(np.float32)` makes one."
            )
    return arrays
