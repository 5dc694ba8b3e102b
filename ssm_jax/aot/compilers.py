"""The compilers of GPUs and TPUs on a machine that has neither.

Both come from packages of the extra ``[compile]``: libtpu has the TPU compiler, JAX's
CUDA plugin that of GPUs, for which nvcc's package has the assembler. Their executables
cannot be run here.
"""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from ssm_jax.aot.targets import Target

_PACKAGES = {
    "tpu": {"libtpu": "libtpu"},
    "cuda": {
        "jax_plugins.xla_cuda12": "jax-cuda12-plugin",
        "nvidia.cuda_nvcc": "nvidia-cuda-nvcc-cu12",
    },
}
"""The packages of each compiler: modules and the names they are installed by."""

_INSTALL = "pip install 'ssm_jax[compile]'"


def missing_packages(platform: str) -> list[str]:
    """Returns the packages of a compiler that are not installed.

    Args:
      platform: ``"cuda"`` or ``"tpu"``.
    """
    packages = _PACKAGES[platform].items()
    return [package for module, package in packages if _directory(module) is None]


def prepare(target: Target) -> None:
    """Sets up the compiler of a target, before JAX is used.

    Sets environment variables of this process, which the compilers read when they are
    loaded, and lets JAX compute on the CPU alone. To be called before the first array
    is made.

    Args:
      target: The target.

    Raises:
      ValueError: The compiler is not installed, or JAX uses another device already.
    """
    platform = target.device.platform
    if missing := missing_packages(platform):
        raise ValueError(
            f"`target` must be one whose compiler is installed, got {target.text} "
            f"without {' and '.join(missing)}; `{_INSTALL}`."
        )
    if platform == "tpu":
        # Otherwise libtpu asks the metadata server of Google Cloud, for minutes.
        os.environ["TPU_SKIP_MDS_QUERY"] = "1"
        os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"
        os.environ["TPU_ACCELERATOR_TYPE"] = target.device.details["accelerator_type"]
    else:
        nvcc = _directory("nvidia.cuda_nvcc")
        os.environ["PATH"] = f"{nvcc}/bin{os.pathsep}{os.environ.get('PATH', '')}"
        flags = (
            f"--xla_gpu_cuda_data_dir={nvcc}",
            # Its tiles are chosen by timing them on a device.
            "--xla_gpu_enable_triton_gemm=false",
        )
        before = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = " ".join([before, *flags]).strip()
    # The compilers log that there is no device.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        jax.config.update("jax_platforms", "cpu")
    except RuntimeError as error:
        raise ValueError(
            "`prepare` must be called before JAX is used, got a process that uses "
            f"{jax.default_backend()}; call it first, or set JAX_PLATFORMS=cpu."
        ) from error


def topology_devices(target: Target) -> Sequence[Any]:
    """Returns the devices of a target, which programs can be compiled for.

    Args:
      target: A target that `prepare` was called with.

    Returns:
      `jax.Device` objects in the order of the hosts; arrays cannot be placed on them.

    Raises:
      ValueError: The compiler does not know the topology, or is in use.
    """
    name, device = target.topology_name, target.device
    try:
        if device.platform == "tpu":
            options: dict[str, Any] = {
                "chip_config_name": device.details["chip_config_name"]
            }
            if list(target.shape) in device.details.get("one_host", []):
                options["chips_per_host_bounds"] = (*target.shape, 1)
            topology = topologies.get_topology_desc(name, platform="tpu", **options)
        else:
            config = {
                **device.details,
                "platform_name": "CUDA",
                "device_description_str": device.name,
            }
            topology = topologies.get_topology_desc(
                device.key,
                platform="cuda",
                topology=name,
                target_config=_text_proto(config),
            )
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(
            f"`target` must be a topology that its compiler has, got {target.text}: "
            f"{str(error).splitlines()[0]}; use another size, and one process of a TPU "
            "compiler at a time."
        ) from error
    return topology.devices


def _directory(module: str) -> Path | None:
    """The directory of a module, which is not imported; None if not installed."""
    try:
        module_spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # of a parent
        return None
    if module_spec is None:
        return None
    if module_spec.submodule_search_locations:
        return Path(next(iter(module_spec.submodule_search_locations)))
    return Path(str(module_spec.origin)).parent


def _text_proto(fields: Mapping[str, Any]) -> str:
    """The text form of a protocol buffer."""
    words = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            words.append(f"{name} {{ {_text_proto(value)} }}")
        elif isinstance(value, str):
            words.append(f'{name}: "{value}"')
        else:
            words.append(f"{name}: {value}")
    return " ".join(words)
