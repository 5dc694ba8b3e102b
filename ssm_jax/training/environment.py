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
    # A virtual environment may lie in a repository, which does not track this file.
    tracked = _git("ls-files", "--error-unmatch", Path(__file__).name)
    return tracked and _git("describe", "--always", "--abbrev=10", "--dirty=+")


def _git(*arguments: str) -> str | None:
    """What git prints in the directory of this file; None if that is nothing."""
    command = ["git", *arguments]
    here = Path(__file__).parent
    try:
        found = subprocess.run(command, cwd=here, capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.strip() or None
