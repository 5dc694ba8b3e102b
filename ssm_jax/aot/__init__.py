"""Ahead-of-time compilation for GPUs and TPUs on a machine that has neither.

The steps of a run are compiled by the compilers that a machine with such devices uses
(extra ``[compile]``), which tell the memory that a step takes, and from whose programs
the traffic between devices is read::

    from ssm_jax import aot

    target = aot.parse_target("gpu:h100:8")
    aot.prepare(target)  # before JAX is used
    described = aot.abstract_run(config, aot.topology_devices(target))
    for program in aot.compile_programs(described, target.device.platform):
        print(program.name, program.fits(target.device.memory_bytes))

`ssm_jax.cli.compile` is the program on the command line.
"""

from ssm_jax.aot.abstract import AbstractRun, abstract_run
from ssm_jax.aot.collectives import Collective, Traffic, traffic
from ssm_jax.aot.compilers import missing_packages, prepare, topology_devices
from ssm_jax.aot.largest import largest_batch
from ssm_jax.aot.memory_traffic import bytes_moved, kernels_run
from ssm_jax.aot.programs import (
    Program,
    compile_program,
    compile_programs,
    decode_program,
    evaluation_program,
    train_program,
)
from ssm_jax.aot.targets import Device, Target, known_devices, parse_target

__all__ = [
    "AbstractRun",
    "Collective",
    "Device",
    "Program",
    "Target",
    "Traffic",
    "abstract_run",
    "bytes_moved",
    "compile_program",
    "compile_programs",
    "decode_program",
    "evaluation_program",
    "kernels_run",
    "known_devices",
    "largest_batch",
    "missing_packages",
    "parse_target",
    "prepare",
    "topology_devices",
    "traffic",
    "train_program",
]
