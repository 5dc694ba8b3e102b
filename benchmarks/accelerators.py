"""Recurrences compiled for a GPU or a TPU that need not be there: what they move.

The extra ``[compile]`` must be installed, for the kernels of GPUs in Pallas with JAX
0.11; nothing is run.
"""

import math
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params
from jax.sharding import SingleDeviceSharding

from benchmarks.matrix import KINDS
from benchmarks.measurement import Row
from ssm_jax import aot
from ssm_jax.kernels import (
    LogDecay,
    compiling_for,
    linear_recurrence,
    matrix_recurrence,
    parts,
    plan,
)
from ssm_jax.kernels.input_dependent import evaluate_chunks
from ssm_jax.kernels.matrix import MatrixMethod
from ssm_jax.kernels.selective import selective_form
from ssm_jax.recurrences import DLR, GRU
from ssm_jax.types import Method, PyTree

ROWS, WIDTH, STATES = 8, 1024, 16
"""Sequences, states of `linear_recurrence` or channels, states per channel."""

SIZES = 64, 128
HEADS = 16
"""Heads of `matrix_recurrence`."""

_OF_LAYER = ", of a layer"
"""Of kinds whose arguments are ``(b, l, h k)``."""

CHANNELS, MODES = 128, (1, 2, 4, 64)
"""Width of DLR, whose convolutions have as many kernels, and modes of each."""

AT_MOST = {"value": 1.1, "value and gradient": 1.2}
"""Bytes of `linear_recurrence` in Pallas over those of arguments and results."""

CONVOLUTION_METHODS: tuple[Method, ...] = "fft", "chunked", "associative"


class Pass(NamedTuple):
    """A program to compile.

    Attributes:
      name: ``"value"`` or ``"value and gradient"``.
      function: Its function.
      arguments: Shapes and dtypes of its arguments.
      min_bytes: Bytes of its arguments and results, each read or written once.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    min_bytes: int


def programs(
    length: int, *, rows: int = ROWS, width: int = WIDTH
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Returns the programs by name.

    Args:
      length: Number of steps.
      rows: Number of sequences.
      width: Number of states, or of channels.

    Returns:
      Functions of a method and of arguments, and the shapes and dtypes of these.
    """
    n: Any = jax.ShapeDtypeStruct((width,), jnp.float32)
    real = jax.ShapeDtypeStruct((rows, length, width), jnp.float32)
    complex_ = jax.ShapeDtypeStruct(real.shape, jnp.complex64)
    shared = jax.ShapeDtypeStruct((rows, length, STATES), jnp.float32)
    rates = jax.ShapeDtypeStruct((width, STATES), jnp.float32)
    state = jax.ShapeDtypeStruct((rows, width, STATES), jnp.float32)
    return {
        "input-dependent, real": (states, (real, real)),
        "time-invariant, real": (states, (LogDecay(n), real)),
        "input-dependent, complex": (states, (complex_, complex_)),
        "time-invariant, complex": (states, (LogDecay(n, n), complex_)),
        "selective": (_selective, (real, real, shared, shared, rates, n, state)),
    }


def passes(
    forward: Callable[..., Any], arguments: tuple[Any, ...], *, recomputes: bool
) -> Iterator[Pass]:
    """Yields the evaluation of a program, and the evaluation with its gradient.

    Args:
      forward: Function of the arguments.
      arguments: Shapes and dtypes of the arguments.
      recomputes: Whether the backward pass computes the states again.
    """
    results = jax.eval_shape(forward, *arguments)
    n_bytes = _n_bytes((arguments, results))
    yield Pass("value", forward, arguments, n_bytes)
    # The backward pass reads the decays, the states and what is given, or all arguments
    # to compute the states again.
    operands = arguments if recomputes else (arguments[0], results)
    n_bytes += _n_bytes((operands, results, arguments))
    value_and_gradient = partial(with_gradient, forward)
    yield Pass("value and gradient", value_and_gradient, (arguments, results), n_bytes)


def _in_parts(forward, arguments):
    """The same function and arguments, a pair of real arrays for each complex one."""

    def forward_in_parts(*inputs):
        joined = jax.tree.map(lambda _, x: parts.join(x), arguments, inputs)
        return jax.tree.map(parts.split, forward(*joined))

    pairs = jax.tree.map(lambda x: jax.eval_shape(parts.split, x), arguments)
    return forward_in_parts, pairs


def states(method: Method, a: Any, b: Any) -> Any:
    """Returns the states of `linear_recurrence` by a method."""
    return linear_recurrence(a, b, method=method)[0]


def _selective(method: Method, x, dt, B, C, rates, feedthrough, state):
    return evaluate_chunks(
        selective_form(x, dt, B, C, rates, feedthrough),
        state,
        axis=1,
        reset=None,
        lengths=None,
        size=plan.chunk_size(
            x.shape[1], STATES, bytes_per_step=state.dtype.itemsize * state.size
        ),
        method=method,
    )


def with_gradient(
    forward: Callable[..., Any], arguments: tuple[Any, ...], cotangents: PyTree
) -> tuple[Any, tuple[Any, ...]]:
    """Evaluates a function and its gradient.

    Args:
      forward: Function of the arguments.
      arguments: The arguments.
      cotangents: Gradient in the results of the function.

    Returns:
      The results of the function, and the gradients in its arguments.
    """
    values, gradient = jax.vjp(forward, *arguments)
    return values, gradient(cotangents)


def _n_bytes(tree: PyTree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def cost_rows(length: int, *, target: str) -> Iterator[Row]:
    """Counts the costs of methods of a recurrence, of DLR and of a GRU.

    Args:
      length: Number of steps.
      target: Text of a target of `ssm_jax.aot`.

    Yields:
      A row for each method with its gradient, of the states of a recurrence or of the
      outputs of DLR, for the steps of a GRU with their gradient, which also read the
      weights, and for its nonlinear term without. ``passes`` is the number of times
      that its kernels read or write an array of the size of the states; ``kernels`` the
      number of kernels, also for each level of `ssm_jax.kernels.plan.depth`;
      ``predicted_ms`` the time that the model of ``"auto"`` predicts.
    """
    device, platform = _load_compiler(target)
    yield from _recurrences(length, device, platform)
    yield from _convolutions(length, device, platform)
    yield from _nonlinear(length, device, platform)


def _recurrences(length, device, platform) -> Iterator[Row]:
    b, n = _float32(device, ROWS, length, WIDTH), _float32(device, WIDTH)
    for what, a in (("time-invariant", LogDecay(n)), ("input-dependent", b)):
        for method in plan.METHODS:
            value_and_gradient = partial(with_gradient, partial(states, method))
            seconds = plan.seconds(
                method,
                platform,
                time_invariant=a is not b,
                length=length,
                n_bytes=4 * b.size,
            )
            counts = _counts(value_and_gradient, ((a, b), b), platform, method, length)
            yield {"what": what} | counts | {"predicted_ms": 1e3 * seconds}


def _convolutions(length, device, platform) -> Iterator[Row]:
    x = _float32(device, ROWS, length, CHANNELS)
    for n in MODES:
        dlr = DLR(d_state=n)
        params = _params(dlr, CHANNELS, device)
        for method in CONVOLUTION_METHODS:

            def outputs(params, x, dlr=dlr, method: Method = method):
                return dlr.apply(params, x, method=method)[0]

            value_and_gradient = partial(with_gradient, outputs)
            counts = _counts(value_and_gradient, ((params, x), x), platform)
            row = {"what": f"DLR, modes={n}"} | counts | {"method": method}
            yield row | {"kernels_per_level": None, "predicted_ms": None}


def _nonlinear(length, device, platform) -> Iterator[Row]:
    gru, x = GRU(d_state=WIDTH), _float32(device, ROWS, length, WIDTH)
    params = _params(gru, WIDTH, device)

    def steps(params, x):
        def outputs(params, x):
            return gru.apply(params, x, method="sequential")[0]

        y, gradient = jax.vjp(outputs, params, x)
        return y, gradient(y)

    def term(params, x, h):
        u = gru.input_projection(params, x)
        return gru.nonlinear_term(params, h, u), gru.diagonal(params, h, u)

    counts = _counts(steps, (params, x), platform, "sequential", length)
    yield {"what": "GRU"} | counts | {"predicted_ms": None}
    counts = _counts(term, (params, x, x), platform)
    yield {"what": "GRU, nonlinear term"} | counts | {"predicted_ms": None}


def _load_compiler(target) -> tuple[Any, str]:
    """Loads the compiler of a target; returns a device of it, and its platform."""
    aot_target = aot.parse_target(target)
    aot.prepare(aot_target)
    return aot.topology_devices(aot_target)[0], aot_target.device.platform


def _on_device(tree, device) -> Any:
    """Shapes and dtypes of arrays on a device that programs can be compiled for."""
    sharding = SingleDeviceSharding(device)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        tree,
    )


def _float32(device, *shape) -> Any:
    return _on_device(jax.ShapeDtypeStruct(shape, jnp.float32), device)


def _params(recurrence, d_in, device) -> Any:
    init = partial(recurrence.init, d_in=d_in)
    return _on_device(jax.eval_shape(init, jax.random.key(0)), device)


def _counts(function, arguments, platform, method=None, length=1) -> Row:
    with compiling_for(platform):
        lowered = jax.jit(function).lower(*arguments)
    text = str(lowered.compile().as_text())
    array, kernels = arguments[1], aot.kernels_run(text)
    return {
        "method": method,
        "length": array.shape[1],
        "passes": aot.bytes_moved(text) / (4 * array.size),
        "kernels": kernels,
        "kernels_per_level": kernels / (plan.depth(method, length) if method else 1),
    }


def pallas_rows(
    length: int, *, target: str, methods: Sequence[Method] = ("pallas", "auto")
) -> Iterator[Row]:
    """Counts the bytes that the kernels in Pallas move, beside what ``"auto"`` does.

    Args:
      length: Number of steps.
      target: Text of a target of `ssm_jax.aot`.
      methods: Methods of `linear_recurrence`; for a TPU ``"auto"`` alone is compiled
        far faster.

    Yields:
      A row for each method of `programs`, with its gradient and without. ``ratio`` is
      the bytes that its kernels read and write over those of its arguments and results,
      each read or written once; complex ones are pairs of real arrays, as matrices
      before and after a recurrence have them; ``at_most`` is what it should be of
      these, or None. Registers and spilled bytes of GPUs, VMEM and instructions of TPUs
      are those of the largest kernel.
    """
    with tempfile.TemporaryDirectory() as folder:
        if "pallas" in methods:
            _ask_compilers(folder)
        device, platform = _load_compiler(target)
        for what, (run, arguments) in programs(length).items():
            for method in methods:
                forward, pairs = _in_parts(partial(run, method), arguments)
                for evaluation in passes(
                    forward,
                    _on_device(pairs, device),
                    recomputes=what == "selective",
                ):
                    inputs = _on_device(evaluation.arguments, device)
                    row = {
                        "what": what,
                        "pass": evaluation.name,
                        "method": method,
                        "length": length,
                        "at_most": _at_most(what, evaluation.name, method),
                    }
                    yield row | _compile_row(
                        evaluation.function,
                        inputs,
                        evaluation.min_bytes,
                        platform,
                        Path(folder),
                    )


def matrix_cost_rows(
    length: int, *, target: str, methods: Sequence[MatrixMethod] = ("auto", "pallas")
) -> Iterator[Row]:
    """Counts what `matrix_recurrence` moves and multiplies, compiled for a target.

    Args:
      length: Number of steps.
      target: Text of a target of `ssm_jax.aot`.
      methods: Methods; for a TPU ``"pallas"`` alone is compiled far faster.

    Yields:
      A row for each kind of decay and size of 16 heads in 8 sequences, of the values
      and of the values with their gradients, in float32. For TPUs they are also those
      of the arrays of a layer, whose heads are not an axis of their own. For GPUs
      ``registers`` and ``spilled_bytes`` are those of a thread of the kernel with most
      of them; what is spilled is not counted as moved. ``ratio`` is the bytes that
      kernels read and write over those of the arguments, the results and the states of
      the chunks of ``"auto"``, each read or written once (of the gradients, those of
      the states and of their cotangents). ``flops_ratio`` is the multiplications and
      additions of all products of matrices over those of the products of a chunk:
      queries and keys, scores and values, queries and the state, keys and values; with
      the delta rule keys and keys, keys and the state, and one solution too; three
      times as many with the gradients. ``collectives`` is their number.
    """
    with tempfile.TemporaryDirectory() as folder:
        # Read when the compiler is loaded.
        options = f"--xla_dump_to={folder}", "--xla_dump_hlo_as_text=false"
        _add_options("XLA_FLAGS", *options)
        device, platform = _load_compiler(target)
        on_tpu = platform == "tpu"
        for method in methods:
            for what in [*KINDS, *(kind + _OF_LAYER for kind in KINDS * on_tpu)]:
                for size in SIZES:
                    rows = _matrix_costs(length, what, size, method, device, platform)
                    for row in rows:
                        yield row | ({} if on_tpu else _assembled_row(Path(folder)))


def _matrix_costs(length, what, size, method, device, platform) -> Iterator[Row]:
    weights = _float32(device, ROWS, length, HEADS)
    shape, kind = (ROWS, length, HEADS, size), what.removesuffix(_OF_LAYER)

    def run(q, k, v, log_decay, *others):
        if kind == "entry":
            log_decay = log_decay.reshape(shape)
        arrays = *(x.reshape(shape) for x in (q, k, v)), log_decay, *others
        o, last = matrix_recurrence(*arrays, method=method)
        return o.reshape(v.shape), last

    of_layer = ROWS, length, HEADS * size
    keys = _float32(device, *(shape if what == kind else of_layer))
    arguments = [keys, keys, keys, keys if kind == "entry" else weights]
    if kind == "delta":
        arguments.append(weights)
    chunk = plan.matrix_chunk(length, size**2)
    states = 4 * -(-length // chunk) * ROWS * HEADS * size**2
    products = (4 * chunk + 4 * size) * size
    if kind == "delta":
        products += (4 * chunk + 2 * size) * size
    flops = ROWS * HEADS * length * products
    for times, evaluation in zip(
        (1, 3), passes(run, tuple(arguments), recomputes=True), strict=True
    ):
        inputs = _on_device(evaluation.arguments, device)
        # The states of the chunks, and with the gradient their cotangents.
        n_bytes = evaluation.min_bytes + min(times, 2) * states
        with compiling_for(platform):
            traced = jax.jit(evaluation.function).trace(*inputs)
        compiled: Any = traced.lower().compile()
        text = compiled.as_text()
        moved = aot.bytes_moved(text)
        yield {
            "what": what,
            "pass": evaluation.name,
            "method": method,
            "length": length,
            "size": size,
            "moved_MiB": moved / 2**20,
            "ratio": moved / n_bytes,
            "flops_ratio": _product_flops(traced.jaxpr.jaxpr) / flops / times,
            "temp_MiB": compiled.memory_analysis().temp_size_in_bytes / 2**20,
            "collectives": sum(kind.count for kind in aot.traffic(text).collectives),
        }


def flops_of_product(equation: Any) -> int:
    """Returns the multiplications and additions of a product of real matrices."""
    (contracted, _), _ = equation.params["dimension_numbers"]
    shape = equation.invars[0].aval.shape
    depth = math.prod(shape[axis] for axis in contracted)
    return 2 * depth * equation.outvars[0].aval.size


def _product_flops(jaxpr) -> int:
    """Multiplications and additions of the products of matrices of a program."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += flops_of_product(equation)
        inner = sum(map(_product_flops, jaxprs_in_params(equation.params)))
        times = equation.params.get("length", 1)
        if "grid_mapping" in equation.params:
            times = math.prod(equation.params["grid_mapping"].grid)
        total += times * inner
    return total


def _at_most(what, pass_name, method):
    is_linear = what != "selective" and method == "pallas"
    return AT_MOST[pass_name] if is_linear else None


def _compile_row(function, arguments, min_bytes, platform, folder) -> Row:
    """Compiles a program and reads what its compiler tells."""
    start = sum(os.times()[:4])
    with _capture_output() as output, compiling_for(platform):
        compiled: Any = jax.jit(function).lower(*arguments).compile()
    seconds = sum(os.times()[:4]) - start
    n_bytes = aot.bytes_moved(compiled.as_text())
    return {
        "moved_MiB": n_bytes / 2**20,
        "ratio": n_bytes / min_bytes,
        "temp_MiB": compiled.memory_analysis().temp_size_in_bytes / 2**20,
        "compile_cpu_s": seconds,
        **_gpu_row("".join(output)),
        **_tpu_row(folder),
    }


def _ask_compilers(folder: str) -> None:
    """Makes the compilers tell about their programs; they read this when loaded."""
    os.environ["MOSAIC_GPU_DUMP_PTXAS"] = "1"
    options = f"--xla_jf_dump_to={folder}", "--xla_jf_dump_llo_text=true"
    _add_options("LIBTPU_INIT_ARGS", *options)


def _add_options(variable: str, *options: str) -> None:
    """Adds options to those of an environment variable."""
    set_options = os.environ.get(variable, "")
    os.environ[variable] = " ".join([set_options, *options]).strip()


@contextmanager
def _capture_output():
    """Gives what libraries print meanwhile, as a list of one text."""
    output, stdout = [], os.dup(1)
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        os.dup2(file.fileno(), 1)
        try:
            yield output
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
        file.seek(0)
        output.append(file.read())


def _gpu_row(text: str) -> Row:
    """What the assembler tells of the largest kernel."""
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", text)]
    spill_bytes = [int(n) for n in re.findall(r"(\d+) bytes spill stores", text)]
    return {
        "registers": max(registers, default=None),
        "spilled_bytes": max(spill_bytes, default=None),
    }


def _assembled_row(folder: Path) -> Row:
    """Assembles the kernels of a program, which XLA has written to a folder."""
    output = []
    for file in folder.iterdir():
        target = re.search(r"^\.target (\w+)", file.read_text(errors="replace"), re.M)
        if file.suffix == ".ptx" and target:
            command = "ptxas", "--verbose", f"--gpu-name={target[1]}", str(file)
            run = subprocess.run(
                [*command, "--output-file", os.devnull], capture_output=True, text=True
            )
            output.append(run.stderr)
        file.unlink()
    return _gpu_row("".join(output))


def _tpu_row(folder: Path) -> Row:
    """What the TPU compiler tells of the largest kernel in Pallas, if there is one."""
    vmem, bundles = [], []
    for file in folder.glob("*-02-original.txt"):
        text = file.read_text(errors="replace")
        # A kernel of XLA has no windows of operands.
        if "input window allocation" in text:
            sizes = re.findall(r"space=vmem, size = (0x[0-9a-f]+)", text)
            vmem.append(sum(int(size, 16) for size in sizes))
            name = file.name.removesuffix("-02-original.txt")
            for final in folder.glob(f"{name}-*-final_bundles.txt"):
                if "schedule-analysis" not in final.name:
                    lines = final.read_text(errors="replace").splitlines()
                    bundles.append(sum("{" in line for line in lines))
    for file in folder.iterdir():
        file.unlink()
    return {
        "vmem_MiB": max(vmem) / 2**20 if vmem else None,
        "bundles": max(bundles, default=None),
    }
