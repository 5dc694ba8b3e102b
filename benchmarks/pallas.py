r"""Compiles the kernels in Pallas for a GPU or a TPU and counts the bytes they move.

    python -m benchmarks.pallas --target=tpu:v5e:1x1
    python -m benchmarks.pallas --target=gpu:h100:1

The extra ``[compile]`` must be installed, for GPUs with JAX 0.11; nothing is run. Each
row is a program: ``linear_recurrence`` or the selective recurrence, the evaluation or
the evaluation with its gradient. ``ratio`` is the bytes that its kernels read and write
over those of its arguments and results, each read or written once; the method that
``"auto"`` chooses is beside it. Registers and spilled bytes of GPUs, VMEM and
instructions of TPUs are those of the largest kernel. Rows of other targets and methods
in ``--output`` are kept; for a TPU ``--methods=auto`` alone is compiled far faster.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
from absl import flags

from benchmarks.__main__ import table
from benchmarks.compiled import of_call, placed, record
from benchmarks.measurement import Row
from benchmarks.programs import LENGTH, passes, programs
from ssm_jax import aot
from ssm_jax.cli import app
from ssm_jax.kernels import compiling_for
from ssm_jax.training import environment
from ssm_jax.types import Method

RECORDS = Path(__file__).parents[1] / "experiments" / "benchmarks" / "pallas.json"


def define_flags() -> None:
    """Defines the flags of this program."""
    flags.DEFINE_string("target", None, "As `compile` takes it.", required=True)
    flags.DEFINE_list("methods", ["pallas", "auto"], "Methods to compile.")
    flags.DEFINE_string("output", str(RECORDS), "JSON file of the rows.")


def main(argv):
    """Compiles for ``--target``; prints the rows and writes them to ``--output``."""
    del argv
    values = flags.FLAGS
    target, file = aot.parse_target(values.target), Path(values.output)
    with tempfile.TemporaryDirectory() as folder:
        if "pallas" in values.methods:
            _ask_compilers(folder)
        aot.prepare(target)
        measured = environment()  # A commit may follow while programs are compiled.
        common = of_call(target, measured)
        device = aot.topology_devices(target)[0]
        rows = []
        platform = target.device.platform
        for row in kernel_rows(device, platform, values.methods, Path(folder)):
            rows.append(common | row)
            print(f"{row['what']}, {row['pass']}, {row['method']}", file=sys.stderr)
    print(table(rows))
    record(file, "pallas", measured, rows, lambda row: (row["target"], row["method"]))


def kernel_rows(
    device: Any, platform: str, methods: Sequence[Method], folder: Path
) -> Iterator[Row]:
    """Yields a row for each program and method.

    Args:
      device: A device that programs can be compiled for.
      platform: ``"cuda"`` or ``"tpu"``.
      methods: Methods of `linear_recurrence`.
      folder: Where the TPU compiler writes its programs.
    """
    for what, (run, arguments) in programs(LENGTH).items():
        arguments = jax.tree.map(lambda leaf: placed(leaf, device), arguments)
        for method in methods:
            for each in passes(what, partial(run, method), arguments):
                given = jax.tree.map(lambda leaf: placed(leaf, device), each.arguments)
                row = _compiled(each.function, given, each.min_bytes, platform, folder)
                yield {"what": what, "pass": each.name, "method": method} | row


def _compiled(function, arguments, min_bytes, platform, folder) -> Row:
    """Compiles a program and reads what its compiler tells."""
    began = sum(os.times()[:4])
    with _printed() as printed, compiling_for(platform):
        compiled: Any = jax.jit(function).lower(*arguments).compile()
    seconds = sum(os.times()[:4]) - began
    moved = aot.bytes_moved(compiled.as_text())
    return {
        "moved_MiB": moved / 2**20,
        "ratio": moved / min_bytes,
        "temp_MiB": compiled.memory_analysis().temp_size_in_bytes / 2**20,
        "compile_cpu_s": seconds,
        **_of_gpu("".join(printed)),
        **_of_tpu(folder),
    }


def _ask_compilers(folder: str) -> None:
    """Makes the compilers tell about their programs; they read this when loaded."""
    os.environ["MOSAIC_GPU_DUMP_PTXAS"] = "1"
    options = f"--xla_jf_dump_to={folder}", "--xla_jf_dump_llo_text=true"
    before = os.environ.get("LIBTPU_INIT_ARGS", "")
    os.environ["LIBTPU_INIT_ARGS"] = " ".join([before, *options]).strip()


@contextmanager
def _printed():
    """Gives what libraries print meanwhile, as a list of one text."""
    found, kept = [], os.dup(1)
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        os.dup2(file.fileno(), 1)
        try:
            yield found
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        found.append(file.read())


def _of_gpu(text: str) -> Row:
    """What the assembler tells of the largest kernel."""
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", text)]
    spilled = [int(n) for n in re.findall(r"(\d+) bytes spill stores", text)]
    return {
        "registers": max(registers, default=None),
        "spilled_bytes": max(spilled, default=None),
    }


def _of_tpu(folder: Path) -> Row:
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


if __name__ == "__main__":
    app.run(main, define_flags)
