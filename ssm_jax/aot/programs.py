"""The programs of a run, compiled for devices that need not be there."""

import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from ssm_jax.aot.abstract import AbstractRun
from ssm_jax.aot.collectives import Traffic, traffic
from ssm_jax.evaluation.generate import decode_step
from ssm_jax.kernels import compiling_for
from ssm_jax.models.decoding import can_decode
from ssm_jax.sharding.parameters import box_shards, shard_specs
from ssm_jax.training.measure import carried_in_evaluation
from ssm_jax.training.parallel import PARAMETER_AXIS
from ssm_jax.training.step import gather_outside_blocks

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# The TPU compiler says `Used 20.0G of 15.75G hbm`, or `the total memory required for
# HLO temporaries (353.67G) exceeds available HBM (15.75G)`.
_MEMORY_IN_ERROR = re.compile(r"(?:Used |required for [^(]*\()([\d.]+)([KMGT]?)\b")

# The TPU compiler then neither searches for the fastest tiles of matrix products, which
# takes most of its time, nor places intermediate values in on-chip memory.
_QUICK_OPTIONS = {"exec_time_optimization_effort": -1.0}


@dataclass(frozen=True, kw_only=True)
class Program:
    """What the compiler tells of a program; bytes are those of one device.

    Attributes:
      name: ``"train"``, ``"evaluate"`` or ``"decode"``.
      seconds: Time of tracing, lowering and compiling.
      cpu_seconds: CPU time of all threads and child processes meanwhile, which hardly
        depends on what else the machine does.
      memory_bytes: Memory that the program takes: arguments, results that do not take
        the place of arguments, intermediate values and code.
      argument_bytes: Bytes of the arguments.
      output_bytes: Bytes of the results.
      alias_bytes: Bytes of results that take the place of arguments.
      temp_bytes: Bytes of intermediate values.
      code_bytes: Bytes of the program itself, where the compiler tells.
      flops: Floating-point operations of one device, in which the body of a loop counts
        once. None where the compiler does not tell.
      traffic: Collectives and loops. None if it was not compiled.
      out_of_memory: Message of a compiler that refuses a program which does not fit
        into the memory; ``memory_bytes`` is then what it names, 0 if nothing, and the
        other sizes are 0. None if it was compiled, also where it does not fit.
    """

    name: str
    seconds: float
    cpu_seconds: float
    memory_bytes: int
    argument_bytes: int = 0
    output_bytes: int = 0
    alias_bytes: int = 0
    temp_bytes: int = 0
    code_bytes: int = 0
    flops: float | None = None
    traffic: Traffic | None = None
    out_of_memory: str | None = None

    def fits(self, memory_bytes: int) -> bool:
        """Whether it fits into the memory of a device."""
        return self.out_of_memory is None and self.memory_bytes <= memory_bytes

    def record(self) -> dict[str, Any]:
        """Returns the fields as JSON holds them."""
        return asdict(self)


def compile_programs(
    described: AbstractRun, platform: str, *, quick: bool = False
) -> Iterator[Program]:
    """Compiles the steps of a run, one after the other.

    The training step donates its state, as in a run; ``method="auto"`` chooses the
    methods of the platform.

    Args:
      described: The run.
      platform: ``"cuda"`` or ``"tpu"``.
      quick: As in `compile_program`.

    Yields:
      The training step, the evaluation step and, of a language model whose layers carry
      states, the decoding step of one token, in which each device decodes a row.
    """
    compiled = partial(compile_program, platform=platform, quick=quick)
    yield compiled("train", *train_program(described))
    yield compiled("evaluate", *evaluation_program(described))
    decode = decode_program(described)
    if decode is not None:
        yield compiled("decode", *decode)


def train_program(described: AbstractRun) -> tuple[Any, tuple]:
    """Returns the jitted training step and its arguments."""
    step = described.parallel.train_step(described.run)
    return jax.jit(step, donate_argnums=0), (described.state, described.batch)


def evaluation_program(described: AbstractRun) -> tuple[Any, tuple]:
    """Returns the jitted evaluation step and its arguments."""
    state, model = described.state, described.run.model
    carry = jax.eval_shape(partial(carried_in_evaluation, model, described.training))
    arguments = (
        state.evaluated_params,
        state.model_state,
        described.batch,
        described.sharded(carry),
    )
    return jax.jit(described.parallel.evaluation_step(described.run)), arguments


def decode_program(described: AbstractRun) -> tuple[Any, tuple] | None:
    """Returns the jitted decoding step and its arguments, or None if there is none."""
    run, mesh, state = described.run, described.mesh, described.state
    if not run.spec.language or not can_decode(run.model):
        return None
    before = jax.eval_shape(lambda: run.model.initial_state((mesh.size,)))
    tokens = jax.ShapeDtypeStruct((mesh.size,), jnp.int32)
    rows = P(mesh.axis_names)
    variables = {"params": state.evaluated_params, **state.model_state}
    specs = shard_specs(variables, PARAMETER_AXIS, mesh.shape.get(PARAMETER_AXIS, 1))

    def step(variables, tokens, before):
        variables = box_shards(variables, specs)
        params = gather_outside_blocks(run.model, variables.pop("params"))
        return decode_step(run.model, {"params": params, **variables}, tokens, before)

    step = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(specs, rows, rows),
        out_specs=(rows, rows),
        check_vma=False,
    )
    arguments = variables, described.sharded(tokens), described.sharded(before)
    return jax.jit(step), arguments


def compile_program(
    name: str, jitted: Any, arguments: tuple, platform: str, *, quick: bool = False
) -> Program:
    """Compiles a program for the devices that its arguments are sharded over.

    Args:
      name: Name of the program.
      jitted: A function from `jax.jit`.
      arguments: Its arguments, `jax.ShapeDtypeStruct` with shardings.
      platform: ``"cuda"`` or ``"tpu"``, for which ``method="auto"`` chooses.
      quick: Whether the compiler makes no effort for a fast program. For TPUs this
        takes a fraction of the time; intermediate values that a run keeps in on-chip
        memory (at most 128 MiB) count as memory of the device.

    Returns:
      What the compiler tells.

    Raises:
      JaxRuntimeError: An error of the compiler other than too little memory.
    """
    began, cpu_began = time.perf_counter(), _cpu_seconds()
    try:
        with compiling_for(platform):
            compiled = jitted.lower(*arguments).compile(
                _QUICK_OPTIONS if quick else None
            )
    except jax.errors.JaxRuntimeError as error:
        if not str(error).startswith("RESOURCE_EXHAUSTED"):
            raise
        used = _MEMORY_IN_ERROR.search(str(error))
        n_bytes = float(used.group(1)) * _UNITS[used.group(2)] if used else 0
        return Program(
            name=name,
            seconds=time.perf_counter() - began,
            cpu_seconds=_cpu_seconds() - cpu_began,
            memory_bytes=int(n_bytes),
            out_of_memory=str(error).splitlines()[0],
        )
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds() - cpu_began
    memory = compiled.memory_analysis()
    argument_bytes, output_bytes = (
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes,
    )
    alias_bytes, temp_bytes = memory.alias_size_in_bytes, memory.temp_size_in_bytes
    code_bytes = memory.generated_code_size_in_bytes
    return Program(
        name=name,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        memory_bytes=argument_bytes
        + output_bytes
        - alias_bytes
        + temp_bytes
        + code_bytes,
        argument_bytes=argument_bytes,
        output_bytes=output_bytes,
        alias_bytes=alias_bytes,
        temp_bytes=temp_bytes,
        code_bytes=code_bytes,
        # None for GPUs.
        flops=(compiled.cost_analysis() or {}).get("flops"),
        traffic=traffic(compiled.as_text()),
    )


def _cpu_seconds():
    # The assembler of GPUs is a process of its own.
    return sum(os.times()[:4])
