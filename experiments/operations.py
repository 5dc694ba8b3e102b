"""Counts the operations of training at the published settings, for hours on a GPU.

    python -m experiments.operations

The training step of each cell of the papers' tables is traced, as for a GPU, and its
floating-point operations are counted: products of matrices, FFTs, and one for each
element of every other result that is computed. The iterations of loops are counted too,
since each takes some time, however small its arrays. The counts are written to
``experiments/benchmarks/operations.json``, which the overviews of the pages read; cells
that it has are not traced again, unless with ``--again``.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags, logging
from jax.extend.core import Jaxpr
from jax.interpreters.partial_eval import dce_jaxpr

from experiments.overview import OPERATIONS
from experiments.papers import PAPERS
from experiments.records import config_named
from ssm_jax import aot
from ssm_jax.aot.programs import train_program
from ssm_jax.cli import app
from ssm_jax.kernels import compiling_for
from ssm_jax.training.environment import environment

MOVES = frozenset(
    (
        "broadcast_in_dim", "concatenate", "convert_element_type", "copy",
        "dynamic_slice", "dynamic_update_slice", "gather", "iota", "pad", "reshape",
        "rev", "select_n", "slice", "split", "squeeze", "transpose",
    )
)  # fmt: skip
"""Primitives that move values, which do not count."""


class Cost(NamedTuple):
    """The cost of a program.

    Attributes:
      operations: Floating-point operations.
      iterations: Iterations of loops that follow one another.
    """

    operations: float = 0.0
    iterations: float = 0.0

    def times(self, n: int) -> "Cost":
        """The cost of a loop of ``n`` iterations, of which this is one."""
        return Cost(n * self.operations, n * max(self.iterations, 1.0))


def cost(jaxpr: Jaxpr) -> Cost:
    """Counts the operations of a program.

    The body of a loop counts as often as it runs; where the number of iterations
    depends on data, once. Of several branches the longest counts.

    Args:
      jaxpr: The program.

    Example:
      >>> program = jax.make_jaxpr(lambda x: x @ x + x)(np.ones((10, 10), np.float32))
      >>> cost(program.jaxpr)
      Cost(operations=2100.0, iterations=0.0)
    """
    return _sum(map(_of_equation, jaxpr.eqns))


def traced(name: str) -> dict[str, Any]:
    """Returns the operations of a training step and the number of steps.

    Args:
      name: The experiment and its variant.
    """
    config = config_named(name)
    described = aot.abstract_run(config, jax.devices()[:1])
    step, arguments = train_program(described)
    with compiling_for("cuda"):
        program = step.trace(*arguments).jaxpr.jaxpr
    # States that no loss depends on are not computed.
    used, _ = dce_jaxpr(program, [True] * len(program.outvars))
    return {**cost(used)._asdict(), "steps": config.training.steps}


def recorded() -> Mapping[str, Mapping[str, Any]]:
    """Returns the committed counts, by experiment."""
    found = json.loads(OPERATIONS.read_text()) if OPERATIONS.exists() else {}
    return found.get("rows", {})


def all_cells() -> list[str]:
    """Returns all experiments at published settings."""
    tables = [table for paper in PAPERS.values() for table in paper.tables]
    return [*dict.fromkeys(cell for table in tables for cell in table.cells)]


def _of_equation(equation) -> Cost:
    """The cost of an equation."""
    name, params = equation.primitive.name, equation.params
    inside = [cost(each) for each in _bodies(params.values())]
    if name == "scan":
        return _sum(inside).times(params["length"])
    if name == "cond":
        return max(inside)
    return _sum(inside) if inside else Cost(_operations(name, params, equation))


def _operations(name, params, equation) -> float:
    """The operations of an equation without a program in it."""
    if name in MOVES:
        return 0.0
    out = sum(_size(each) for each in equation.outvars)
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        inner = math.prod(shape[axis] for axis in contracted)
        is_complex = np.issubdtype(equation.outvars[0].aval.dtype, np.complexfloating)
        return (8.0 if is_complex else 2.0) * inner * out
    if name == "fft":
        length = math.prod(params["fft_lengths"])
        elements = max(_size(equation.invars[0]), out)
        return 5.0 * elements * math.log2(max(length, 2))
    return float(out)


def _sum(costs: Iterable[Cost]) -> Cost:
    """The cost of programs one after the other."""
    operations, iterations = zip(Cost(), *costs, strict=True)
    return Cost(sum(operations), sum(iterations))


def _bodies(values: Iterable[Any]):
    """The programs among the parameters of an equation."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _bodies(value)
        elif hasattr(value, "eqns"):
            yield value
        elif hasattr(value, "jaxpr"):
            yield value.jaxpr


def _size(variable):
    return math.prod(getattr(variable.aval, "shape", ()))


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_bool("again", False, "Trace cells that have a record again.")


def main(argv):
    """Traces the cells that have no record; writes after each."""
    del argv
    # Before the first write, after which the working tree is not that of the commit.
    measured = environment()
    rows = {} if flags.FLAGS.again else {**recorded()}
    cells = all_cells()
    for name in cells:
        if name not in rows:
            rows[name] = traced(name)
            logging.info("%s: %.3g operations", name, rows[name]["operations"])
            ordered = {cell: rows[cell] for cell in cells if cell in rows}
            text = json.dumps(measured | {"rows": ordered}, indent=1)
            OPERATIONS.write_text(text + "\n")


if __name__ == "__main__":
    app.run(main, define_flags)
