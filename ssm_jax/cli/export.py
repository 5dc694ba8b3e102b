"""Exports the model of a run as StableHLO, which runs with JAX and flatbuffers alone.

    ssm-jax export --workdir=runs/digits --output=exported

The directory holds the forward pass and, for a language model, the decoding step, both
for any batch size, the parameters, and ``export.json``, which says how inputs are made.
The forward pass takes any length, if the model allows it, or that of ``--length``, for
which it may have faster methods. ``--workdir`` may also be the folder of a Mamba of
Hugging Face; see `ssm_jax.cli.pretrained`. The docstring of `ssm_jax.interop.stablehlo`
shows how to load and call the programs without this package.
"""

import json

from absl import flags

from ssm_jax.cli.pretrained import restore_any
from ssm_jax.cli.run_flags import define_run
from ssm_jax.interop import export_model
from ssm_jax.interop.stablehlo import PLATFORMS


def define_flags() -> None:
    """Defines the flags of this program."""
    define_run("Directory of the data, if it has moved.")
    flags.DEFINE_string("output", None, "Directory for the files.", required=True)
    platforms = ",".join(PLATFORMS)
    flags.DEFINE_list("platforms", platforms, "Some of cpu, cuda, rocm and tpu.")
    flags.DEFINE_integer("length", None, "Steps of a sequence (default: any).")


def main(argv):
    """Exports the model and prints the names and sizes of the files."""
    del argv
    values = flags.FLAGS
    restored = restore_any(values.workdir)
    # A task of the user's own need not have it.
    describe = getattr(restored.task, "preprocessing", None)
    files = export_model(
        restored.model,
        restored.variables,
        restored.task.spec,
        values.output,
        length=values.length,
        platforms=values.platforms,
        preprocessing=None if describe is None else describe(),
    )
    for file in files:
        print(f"{file} ({file.stat().st_size:,} bytes)")
    about = json.loads(files[-1].read_text(encoding="utf-8"))
    if about["length"] is None:
        print("length: any, step by step; --length=N takes N steps, and may be faster")
    else:
        print(f"length: {about['length']}, because {about['length_reason']}")
    print(
        f"loads with versions of JAX until {about['loads_until']} (JAX {about['jax']})"
    )
