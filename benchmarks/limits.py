"""Kernels beside lower bounds of the time of their bytes and operations."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params

from benchmarks import plain
from benchmarks.accelerators import flops_of_product, passes, programs
from benchmarks.matrix import KINDS, chunked, problem, scan_of_matrices
from benchmarks.measurement import Row
from benchmarks.roofline import bandwidth, random_arguments, seconds_of_call
from ssm_jax.kernels import LogDecay, decay_powers, matrix_recurrence
from ssm_jax.recurrences import DLR, GRU
from ssm_jax.recurrences.families.base import Recurrence

MODES = 64
"""Of each channel of DLR."""

HEAD = 64
"""Entries of keys and of values of a head."""

SIDE = 2048
"""Rows of the matrix by which the rate of products is measured."""

_KERNELS, _IN_KERNEL = 100, 8

_FUNCTIONS = frozenset(
    "acos asin atan cbrt cos cosh erf erf_inv exp exp2 expm1 log log1p logistic pow "
    "rsqrt sin sinh sqrt tan tanh".split()
)
"""Primitives that are evaluated by several operations."""

_MOVES = frozenset(
    "broadcast_in_dim concatenate convert_element_type copy copy_p dynamic_slice "
    "dynamic_update_slice gather iota imag pad real reshape rev scatter scatter-add "
    "scatter_add slice squeeze stop_gradient transpose complex conj device_put "
    "optimization_barrier split".split()
)
"""Primitives that compute nothing."""

# Multiplications and additions of an operation on complex numbers.
_COMPLEX = {"mul": 6, "div": 11, "integer_pow": 6}


class Operations(NamedTuple):
    """Numbers of operations.

    Attributes:
      products: Multiplications and additions of products of matrices.
      elementwise: Those of FFTs and of all others, and comparisons.
      functions: Values of functions such as ``exp``.
    """

    products: float = 0
    elementwise: float = 0
    functions: float = 0

    def times(self, n: float) -> "Operations":
        """Returns the operations of ``n`` repetitions."""
        return Operations(*(n * x for x in self))

    def plus(self, other: "Operations") -> "Operations":
        """Returns the operations of both."""
        return Operations(*map(sum, zip(self, other, strict=True)))


class Kernel(NamedTuple):
    """A function to measure.

    Attributes:
      run: Function of the arguments, as ``"auto"`` evaluates it.
      arguments: The arguments.
      plain: Plain forms of it in JAX, whose operations are counted.
      recomputes: Whether the backward pass computes the states again.
    """

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    plain: Sequence[Callable[..., Any]]
    recomputes: bool = True


def limit_rows(
    length: int, *, batch: int = 4, width: int = 512, repeats: int
) -> Iterator[Row]:
    """Times the kernels as ``"auto"`` evaluates them, in float32.

    Args:
      length: Number of steps, a multiple of 64.
      batch: Number of sequences.
      width: Number of states or channels, a multiple of 64.
      repeats: Number of timings of each, of several calls; the median counts.

    Yields:
      A row for each kernel, of the outputs and of these with the gradient. ``mb`` are
      the millions of bytes of the arguments and results and of what the backward pass
      reads, each read or written once; ``products``, ``elementwise`` and ``functions``
      millions of operations of the plain form that takes the shortest time by them.
      ``copy_ms`` and ``compute_ms`` are the times of the bytes and of the operations at
      the rates of this machine, which are measured in the same run: of copying an array
      that is in no cache, of the product of two large matrices, of multiplications and
      additions of numbers in a cache, and of exponentials of them. They are
      ``gb_per_s``, and ``giga_products``, ``giga_elementwise`` and ``giga_functions`` a
      second. ``share`` is the larger of both times over the measured ``ms``, and
      ``bound`` says which one it is.
    """
    n_bytes_per_s, rates = bandwidth(repeats), _rates(repeats)
    for what, kernel in _kernels(length, batch, width).items():
        plain_passes = [
            passes(form, kernel.arguments, recomputes=False) for form in kernel.plain
        ]
        measured = passes(kernel.run, kernel.arguments, recomputes=kernel.recomputes)
        for evaluation, *forms in zip(measured, *plain_passes, strict=True):
            logging.info("%s, %s", what, evaluation.name)
            operations = min(
                (count(form.function, *form.arguments) for form in forms),
                key=partial(_seconds, rates=rates),
            )
            inputs = jax.tree.map(_ones, evaluation.arguments)
            compiled = jax.jit(evaluation.function).lower(*inputs).compile()
            seconds = seconds_of_call(compiled, inputs, repeats)
            copy = evaluation.min_bytes / n_bytes_per_s
            compute = _seconds(operations, rates)
            yield {
                "what": what,
                "pass": evaluation.name,
                "length": length,
                "mb": evaluation.min_bytes / 1e6,
                **{name: n / 1e6 for name, n in operations._asdict().items()},
                "copy_ms": 1e3 * copy,
                "compute_ms": 1e3 * compute,
                "ms": 1e3 * seconds,
                "share": max(copy, compute) / seconds,
                "bound": "bytes" if copy > compute else "operations",
                "gb_per_s": n_bytes_per_s / 1e9,
                **{f"giga_{name}": x / 1e9 for name, x in rates._asdict().items()},
            }


def _ones(leaf):
    """The leaf, or ones in place of a shape, which a cotangent is given by."""
    is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
    return jnp.ones(leaf.shape, leaf.dtype) if is_shape else leaf


def _kernels(length: int, batch: int, width: int) -> dict[str, Kernel]:
    """The kernels by name."""
    kernels = {}
    for what, (run, shapes) in programs(length, rows=batch, width=width).items():
        arguments = random_arguments(what, shapes)
        if what == "selective":
            kernels[what] = Kernel(
                partial(run, "auto"), arguments, [plain.selective_recurrence]
            )
            continue
        kernels[f"linear, {what}"] = Kernel(
            partial(run, "auto"), arguments, [_states], recomputes=False
        )
    for kind in KINDS:
        arrays, _ = problem(kind, length, batch, width // HEAD, HEAD)
        forms = scan_of_matrices, partial(chunked, size=HEAD)
        kernels[f"matrices, {kind}"] = Kernel(_matrix, tuple(arrays.values()), forms)
    x = jax.random.normal(jax.random.key(0), (batch, length, width))
    recurrences: dict[str, tuple[Recurrence, Callable[..., Any]]] = {
        f"DLR, {MODES} modes": (DLR(d_state=MODES), plain.dlr),
        "GRU": (GRU(d_state=width), plain.gru),
    }
    for what, (recurrence, form) in recurrences.items():
        arguments = recurrence.init(jax.random.key(1), width), x
        kernels[what] = Kernel(partial(_outputs, recurrence), arguments, [form])
    return kernels


def _states(a, b):
    """``h' = a h + b`` step by step; a decay that all steps share is not repeated."""
    if not isinstance(a, LogDecay):
        return plain.scan(a, b)
    decay = decay_powers(a, jnp.asarray(1))

    def step(h, x):
        h = decay * h + x
        return h, h

    steps = jnp.moveaxis(b, 1, 0)
    return jnp.moveaxis(jax.lax.scan(step, jnp.zeros_like(b[:, 0]), steps)[1], 0, 1)


def _outputs(recurrence, params, x):
    return recurrence.apply(params, x)[0]


def _matrix(*arrays):
    return matrix_recurrence(*arrays)[0]


def count(function: Callable[..., Any], *arguments: Any) -> Operations:
    """Counts the operations of a function, all repetitions of its loops included.

    An FFT of ``n`` numbers has ``5 n log2 n``, a real one half of them.

    Args:
      function: Function of arrays.
      arguments: The arguments, or their shapes and dtypes.

    Example:
      >>> x = jnp.ones((4, 4))
      >>> count(lambda x: jnp.exp(x @ x + 1), x)
      Operations(products=128, elementwise=16, functions=16)
    """
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count(jaxpr) -> Operations:
    total = Operations()
    for equation in jaxpr.eqns:
        inner = list(jaxprs_in_params(equation.params))
        name = equation.primitive.name
        if not inner:
            total = total.plus(_count_primitive(name, equation))
        elif name == "scan":
            total = total.plus(_count(inner[0]).times(equation.params["length"]))
        elif name == "while":
            raise ValueError("`function` must have no loop of unknown length, got one.")
        elif name == "cond":
            total = total.plus(max(map(_count, inner), key=sum))
        else:
            for other in inner:
                total = total.plus(_count(other))
    return total


def _count_primitive(name, equation) -> Operations:
    result, operands = equation.outvars[0].aval, equation.invars
    is_complex = jnp.issubdtype(result.dtype, jnp.complexfloating)
    if name == "dot_general":
        return Operations(
            products=(4 if is_complex else 1) * flops_of_product(equation)
        )
    if name == "fft":
        lengths = equation.params["fft_lengths"]
        real = equation.params["fft_type"] not in (
            jax.lax.FftType.FFT,
            jax.lax.FftType.IFFT,
        )
        n = math.prod(lengths)
        # The larger side of a real transform has all numbers, the other half of them.
        transforms = max(result.size, operands[0].aval.size) // n
        per_transform = (2.5 if real else 5) * n * math.log2(max(n, 2))
        return Operations(elementwise=transforms * per_transform)
    if name in _MOVES:
        return Operations()
    if name in _FUNCTIONS:
        return Operations(functions=(2 if is_complex else 1) * result.size)
    of_array = name.startswith("reduce") or name.startswith("cum")
    size = operands[0].aval.size if of_array else result.size
    return Operations(elementwise=size * (_COMPLEX.get(name, 2) if is_complex else 1))


@cache
def _rates(repeats: int) -> Operations:
    """Operations a second of each kind that this machine reaches."""
    small, matrix = jnp.linspace(0.5, 1, 2**16), jnp.ones((SIDE, SIDE))

    def repeat(step):
        # Several in one kernel, and the kernel often, so that reading is not measured.
        def kernel(_, x):
            for _ in range(_IN_KERNEL):
                x = step(x)
            return x

        return lambda x: jax.lax.fori_loop(0, _KERNELS, kernel, x)

    def rate(function, x, n):
        compiled = jax.jit(function).lower(x).compile()
        return n / seconds_of_call(compiled, (x,), repeats)

    n = _KERNELS * _IN_KERNEL * small.size
    return Operations(
        rate(lambda x: x @ x, matrix, 2 * len(matrix) ** 3),
        rate(repeat(lambda x: 0.5 * x + 0.25), small, 2 * n),
        rate(repeat(lambda x: jnp.exp(-x)), small, n),
    )


def _seconds(operations: Operations, rates: Operations) -> float:
    return sum(n / rate for n, rate in zip(operations, rates, strict=True))
