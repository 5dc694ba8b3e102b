"""Export of a trained model as StableHLO, which runs with JAX alone.

The programs and the parameters are separate files, so that both programs share one copy
of the parameters and XLA does not compile them as constants::

    forward.stablehlo  (params, inputs, mask) -> predictions
    step.stablehlo     (params, tokens, state) -> (logits, state), of language models
    params.npz         the parameters and other variables, by path
    state.npz          the state before the first token, of one row, by path

The arguments are ``params``, a dict of the arrays of its file; ``inputs``, ``(b, l)``
int32 or ``(b, l, f)`` float32; ``mask``, ``(b, l)``, true at valid steps; ``tokens``,
``(b,)`` int32; and ``state``, a dict of arrays ``(b, ...)``. Pairs of sequences have
an axis of size 2 before the length. JAX loads a model; ssm_jax need not be installed::

    import jax, numpy as np

    params = dict(np.load("params.npz"))
    with open("forward.stablehlo", "rb") as file:
        forward = jax.export.deserialize(bytearray(file.read()))
    predictions = forward.call(params, inputs, mask)

Load exports of those only whom you trust: they are programs.

A step decodes, from the same state for all rows::

    state = {k: np.stack([v] * len(tokens)) for k, v in np.load("state.npz").items()}
    logits, state = step.call(params, tokens, state)
"""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.core import meta
from jax import export

from ssm_jax.fields import PositiveInt, check_value
from ssm_jax.kernels.platforms import on_each_platform
from ssm_jax.models.decoding import decodes
from ssm_jax.tasks.base import TaskSpec
from ssm_jax.training.checkpointing.leaves import named_leaves
from ssm_jax.types import PyTree

PLATFORMS = ("cpu", "cuda", "tpu")
"""The platforms that are exported for by default."""

_KNOWN = (*PLATFORMS, "rocm")


def export_model(
    model: nn.Module,
    variables: PyTree,
    spec: TaskSpec,
    output: str | os.PathLike[str],
    *,
    length: int | None = None,
    platforms: Sequence[str] = PLATFORMS,
) -> list[Path]:
    """Exports a model to files.

    `ssm_jax.interop.stablehlo` says what they hold and how to load them.

    Requires the package ``flatbuffers`` (extra ``[interop]``), as does loading.

    Args:
      model: The model.
      variables: Its parameters and other variables.
      spec: The `TaskSpec` of the task that the model was trained on.
      output: Directory for the files; it is created, and files in it are replaced.
      length: Number of steps of a sequence. None means that of the task.
      platforms: The platforms to export for; see `exported_programs`.

    Returns:
      The files written. ``step.stablehlo`` and ``state.npz`` are written for language
      models whose layers carry states.

    Raises:
      ValueError: ``flatbuffers`` is not installed, a variable is of a dtype that numpy
        files do not have, such as bfloat16, or as `exported_programs`.

    Note:
      JAX loads what it exported for at least six months, on the platforms that it was
      exported for.
    """
    # Checked first: JAX would raise it after minutes of tracing.
    if importlib.util.find_spec("flatbuffers") is None:
        raise ValueError(
            "`flatbuffers` must be installed to export, got no such package; "
            "`pip install flatbuffers`."
        )
    variables = meta.unbox(variables)
    arrays = {"params.npz": _arrays(variables)}
    programs = exported_programs(
        model, variables, spec, length=length, platforms=platforms
    )
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
    return files


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
    evaluated as a batch of its own. The length is fixed, because methods are chosen and
    blocks are formed by the length; shorter sequences are padded and masked. For each
    platform the programs have the methods that ``method="auto"`` chooses on it.

    Args:
      model: The model.
      variables: Its parameters and other variables; only shapes and dtypes are used.
      spec: The `TaskSpec` of the task that the model was trained on.
      length: Number of steps of a sequence. None means that of the task.
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
    length = spec.length if length is None else length
    check_value("length", length, PositiveInt)
    unknown = sorted(set(platforms) - set(_KNOWN))
    if unknown or not platforms:
        raise ValueError(
            f"`platforms` must be some of {', '.join(_KNOWN)}, got "
            f"{', '.join(unknown) or 'none'}; a GPU is cuda or rocm."
        )
    variables = meta.unbox(variables)
    (b,) = export.symbolic_shape("b")

    def exported(function, *args):
        function = jax.jit(on_each_platform(function, platforms))
        return export.export(function, platforms=platforms)(
            _shapes(named_leaves(variables)), *args
        )

    def forward(params, inputs, mask):
        params = _from_named(params, variables)

        def of_row(inputs, mask):
            return model.apply(params, inputs[None], mask=mask[None])[0][0]

        # The choice of methods needs the shape of a row, which is known.
        return jax.vmap(of_row)(inputs, mask)

    steps = (b, 2, length) if spec.pair else (b, length)
    inputs = jax.ShapeDtypeStruct(steps, jnp.int32)
    if spec.inputs == "vector":
        inputs = jax.ShapeDtypeStruct((*steps, spec.d_input), jnp.float32)
    mask = jax.ShapeDtypeStruct(steps, jnp.bool_)
    programs = {"forward": exported(forward, inputs, mask)}
    if not spec.language or not decodes(model):
        return programs
    state = model.initial_state((1,))

    def step(params, tokens, state_of_rows):
        params = _from_named(params, variables)

        def of_row(token, named):
            before = jax.tree.map(lambda v: v[None], _from_named(named, state))
            logits, after = model.apply(params, token[None, None], before)
            return logits[0, 0], named_leaves(_row(after))

        return jax.vmap(of_row)(tokens, state_of_rows)

    programs["step"] = exported(
        step,
        jax.ShapeDtypeStruct((b,), jnp.int32),
        _shapes(named_leaves(_row(state)), b),
    )
    return programs


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
