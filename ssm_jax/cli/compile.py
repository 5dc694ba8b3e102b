"""Compiles the steps of an experiment for GPUs or TPUs that need not be there.

    ssm-jax compile --config=FILE[:variant] --target=gpu:h100:8

Targets are ``gpu:DEVICE:N`` with ``a100``, ``h100``, ``h200``, ``b200`` or ``gb200``,
``gpu:DEVICE:HxN`` for ``H`` hosts of ``N`` devices, ``tpu:DEVICE:AxB`` with ``v5e`` or
``v6e``, and ``tpu:DEVICE:AxBxC`` with ``v4`` or ``v5p``, with the chips along each axis
of the topology. This machine needs no
accelerator, but the compilers: ``pip install 'ssm_jax[compile]'``, best in an
environment of its own. Compiling for TPUs takes minutes, with ``--quick`` a fraction of
that: the compiler then makes no effort for a fast program, and intermediate values that
a run keeps in the on-chip memory of a TPU (at most 128 MiB) count as memory of the
device. For GPUs ``--quick`` changes little.

The training step, the evaluation step and, of a language model, the decoding step of
one token are those of a run on these devices, but for ``training.parallel``: they are
mapped by ``jax.shard_map``, since ``jax.pmap`` takes attached devices only. Nothing is
trained. For each step it prints the time to compile, the memory on each device, the
floating-point operations where the compiler tells them (with the body of a loop once),
and the number and the bytes of the collectives in one execution. Data that are not
there are replaced by the shapes of the task.

The memory of a program is compared with that of the device. Of a GPU, JAX allocates
three quarters, unless the environment variable XLA_PYTHON_CLIENT_MEM_FRACTION says
otherwise.

``--max_batch`` finds the largest batch whose training step fits, by compiling it again
and again, to a 64th of its size. It is at most the train split. ``--max_layers`` finds
the most layers of the model likewise, at the batch of the config; the other sizes of
the model stay as they are. ``--json=FILE`` writes all of it as JSON.
"""

import json
from pathlib import Path
from typing import Any

from absl import flags, logging

from ssm_jax.cli.native_log import LIBRARY_LOG, drop_lines

# With a compiler of GPUs and no GPU, JAX logs already as it is imported.
with drop_lines(LIBRARY_LOG):
    import jax

    from ssm_jax import aot
    from ssm_jax.cli.config_file import define_config, set_data_dir
    from ssm_jax.cli.run_flags import check_writable
    from ssm_jax.cli.tables import markdown
    from ssm_jax.config.spec import CLASS
    from ssm_jax.training import environment
    from ssm_jax.training.parallel import LENGTH_AXIS, PARAMETER_AXIS, mesh_shape

NAMES = {
    "train": "training step",
    "evaluate": "evaluation step",
    "decode": "decoding step of one token",
}
_PREALLOCATED = 0.75  # of a GPU
_MOST_LAYERS = 1024


def define_flags() -> None:
    """Defines the flags of this program."""
    # The time to compile is a result.
    flags.FLAGS.set_default("compile_cache", "none")
    define_config()
    flags.DEFINE_string(
        "target", None, "Such as gpu:h100:8 or tpu:v5e:2x4.", required=True
    )
    flags.DEFINE_bool("quick", False, "Compile for TPUs in a fraction of the time.")
    flags.DEFINE_bool("max_batch", False, "Find the largest batch that fits.")
    flags.DEFINE_bool("max_layers", False, "Find the most layers that fit.")
    flags.DEFINE_string("json", None, "JSON file for the results.")
    flags.DEFINE_string("data_dir", None, "Directory of prepared data sets.")


def main(argv):
    """Compiles the steps of the experiment of ``--config`` for ``--target``."""
    del argv
    # The compilers log that there are no devices.
    with drop_lines(LIBRARY_LOG):
        _compile(flags.FLAGS)


def _compile(values):
    check_writable("json", values.json)
    set_data_dir(values.config, values.data_dir)
    target = aot.parse_target(values.target)
    aot.prepare(target)
    devices = aot.topology_devices(target)
    described = aot.abstract_run(values.config, devices)
    record = _heading(values.config, target, described) | {"quick": values.quick}
    print(heading_text(record), flush=True)
    platform = target.device.platform
    for program in aot.compile_programs(described, platform, quick=values.quick):
        record["programs"].append(program.record())
        print(program_text(program, target), flush=True)
    if values.max_batch:
        record["max_batch"] = _search_batch(
            values.config, target, devices, described.n_train, values.quick
        )
        print(largest_text(record), flush=True)
    if values.max_layers:
        record["max_layers"] = _search_layers(
            values.config, target, devices, values.quick
        )
        print(deepest_text(record), flush=True)
    if values.json:
        Path(values.json).write_text(json.dumps(record, indent=2) + "\n")


def heading_text(record: dict[str, Any]) -> str:
    """Describes the run and the devices of a record in two lines."""
    pieces = record["devices_per_sequence"]
    rows = record["batch_size"] * pieces // record["n_devices"]
    shared = f", each shared by {pieces} devices" if pieces > 1 else ""
    # Records of before have no such field.
    if (shards := record.get("devices_per_parameter", 1)) > 1:
        shared += f"; parameters sharded over {shards}"
    data = "" if record["has_data"] else ", of the shapes of the task: no data here"
    return (
        f"{record['target']}: {record['n_devices']} x {record['device']}, "
        f"{_size(record['device_memory_bytes'])} each\n"
        f"{record['parameters']:,} parameters, a batch of {record['batch_size']:,}, "
        f"{rows:,} on each device{shared}{data}"
    )


def program_text(program: aot.Program, target: aot.Target) -> str:
    """Describes a program and whether it fits.

    Args:
      program: The program.
      target: What it was compiled for.

    Returns:
      Several lines, the first of which is empty.
    """
    device = target.device
    fits = program.fits(device.memory_bytes)
    lines = [
        "",
        f"{NAMES[program.name]}, compiled in {program.seconds:.1f} s "
        f"({program.cpu_seconds:.1f} s of CPU time):",
        f"{'fits' if fits else 'does not fit'}: {_size(program.memory_bytes)} of "
        f"{_size(device.memory_bytes)} on each device",
    ]
    if program.traffic is None:
        return "\n".join([*lines, f"  {program.out_of_memory}"])
    usual = _PREALLOCATED * device.memory_bytes
    if fits and device.platform == "cuda" and program.memory_bytes > usual:
        lines.append("  with XLA_PYTHON_CLIENT_MEM_FRACTION=0.95")
    lines += [
        f"  {_size(program.argument_bytes)} of arguments",
        f"  {_size(program.output_bytes)} of results, {_size(program.alias_bytes)} of "
        "them in the place of arguments",
        f"  {_size(program.temp_bytes)} of intermediate values",
    ]
    if program.code_bytes:
        lines.append(f"  {_size(program.code_bytes)} of code")
    lines.append(
        "floating-point operations: not told by the compiler"
        if program.flops is None
        else f"{program.flops:.3g} floating-point operations on each device"
    )
    if loops := program.traffic.loops:
        numbers = (f"{n:,}" if n else "an unknown number of" for n in loops)
        lines.append(f"loops of {', '.join(dict.fromkeys(numbers))} iterations")
    if not program.traffic.collectives:
        return "\n".join([*lines, "collectives: none"])
    if not program.traffic.exact:
        lines.append("collectives: at least, for the iterations of a loop are unknown")
    rows = [
        (collective.kind, f"{collective.count:,}", _size(collective.bytes))
        for collective in program.traffic.collectives
    ]
    return "\n".join([*lines, markdown([("collective", "count", "bytes"), *rows])])


def largest_text(record: dict[str, Any]) -> str:
    """Describes the result of ``--max_batch``."""
    result = record["max_batch"]
    largest = result["batch_size"]
    n_train, unit = result["n_train"], result["unit"]
    split = "" if n_train is None else f"the {n_train:,} examples of the train split"
    if n_train is not None and n_train < unit:
        return f"\nno batch: {split} are fewer than one of {unit:,}"
    if largest is None:
        return f"\nno batch fits, not even one of {unit:,}"
    ended = n_train is not None and largest + unit > n_train
    return (
        f"\nlargest batch that fits: {largest:,}, "
        f"{largest * record['devices_per_sequence'] // record['n_devices']:,} "
        f"on each device{f', as many as {split} allow' if ended else ''}; "
        f"{len(result['tried'])} were compiled"
    )


def _heading(config, target, described) -> dict[str, Any]:
    leaves = jax.tree.leaves(described.state.params)
    return {
        "experiment": config.get("experiment"),
        "variant": config.get("variant"),
        "target": target.text,
        "device": target.device.name,
        "n_devices": target.n_devices,
        "devices_per_sequence": described.mesh.shape.get(LENGTH_AXIS, 1),
        "devices_per_parameter": described.mesh.shape.get(PARAMETER_AXIS, 1),
        "device_memory_bytes": target.device.memory_bytes,
        "parameters": sum(leaf.size for leaf in leaves),
        "batch_size": described.training.batch_size,
        "has_data": described.has_data,
        "programs": [],
        "host": environment(),
    }


def deepest_text(record: dict[str, Any]) -> str:
    """Describes the result of ``--max_layers``."""
    result = record["max_layers"]
    tried = result["tried"]
    if (n := result["n_layers"]) is None:
        return "\nno model fits, not even one of 1 layer"
    parameters, memory = (tried[n][name] for name in ("parameters", "memory_bytes"))
    return (
        f"\nmost layers that fit: {n:,}, {parameters:,} parameters, with "
        f"{memory / parameters:.2f} bytes per parameter on each device; {len(tried)} "
        "were compiled"
    )


def _search_batch(config, target, devices, n_train, quick) -> dict[str, Any]:
    """The result of ``--max_batch``, with the memory of each batch that was tried."""
    pieces = mesh_shape(config.training.get("mesh"), target.n_devices).pieces
    unit = target.n_devices // pieces * config.training.get("accumulate", 1)
    tried = {}

    def fits(batch_size):
        described = aot.abstract_run(config, devices, batch_size)
        program = _training_step(described, target, quick, f"a batch of {batch_size}")
        tried[batch_size] = program.memory_bytes
        return program.fits(target.device.memory_bytes)

    largest = aot.largest_batch(fits, unit, config.training.batch_size, n_train)
    found = {"batch_size": largest, "unit": unit, "n_train": n_train}
    return found | {"tried": tried}


def _search_layers(config, target, devices, quick) -> dict[str, Any]:
    """The result of ``--max_layers``, with each number of layers that was tried."""
    config = config.copy_and_resolve_references()
    if "n_layers" not in config.model:
        raise ValueError(
            f"`--max_layers` must be left out for {config.model[CLASS]}, which has no "
            "`n_layers`; a SequenceModel has."
        )
    tried = {}

    def fits(n_layers):
        config.model.n_layers = n_layers
        described = aot.abstract_run(config, devices)
        program = _training_step(described, target, quick, f"{n_layers} layers")
        leaves = jax.tree.leaves(described.state.params)
        tried[n_layers] = {
            "memory_bytes": program.memory_bytes,
            "parameters": sum(leaf.size for leaf in leaves),
        }
        return program.fits(target.device.memory_bytes)

    n_layers = aot.largest_batch(fits, 1, config.model.n_layers, _MOST_LAYERS)
    return {"n_layers": n_layers, "tried": tried}


def _training_step(described, target, quick, name) -> aot.Program:
    """Compiles the training step of one of the runs that a search tries."""
    step = aot.train_program(described)
    program = aot.compile_program("train", *step, target.device.platform, quick=quick)
    logging.info(
        "%s %s: %s, %.1f s",
        name,
        "fits" if program.fits(target.device.memory_bytes) else "does not fit",
        _size(program.memory_bytes),
        program.seconds,
    )
    # Each size is a program of its own.
    jax.clear_caches()
    return program


def _size(n: int) -> str:
    """Bytes in GiB, MiB, KiB or bytes, rounded."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n >= scale:
            return f"{n / scale:.{0 if n >= 100 * scale else 1}f} {unit}"
    return f"{n} bytes"
