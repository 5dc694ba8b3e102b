"""The software and hardware that a measurement was made with."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from ssm_jax import __version__

_PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "tensorflow-datasets")


def environment() -> dict[str, Any]:
    """What a measurement was made on and with: device, versions, commit."""
    device = jax.devices()[0]
    return {
        "commit": _commit(),
        "device": device.device_kind,
        "n_devices": jax.device_count(),
        "processes": jax.process_count(),
        "platform": device.platform,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "versions": {"ssm_jax": __version__}
        | {package: version(package) for package in _PACKAGES},
    }


def _commit():
    """The commit of the code, with a plus sign if files differ; None outside git."""
    command = ["git", "describe", "--always", "--abbrev=10", "--dirty=+"]
    here = Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.strip() or None
