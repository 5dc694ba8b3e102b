"""Targets of ahead-of-time compilation: a kind of device, and how many of them."""

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_KINDS = {"cuda": "gpu", "tpu": "tpu"}
_EXAMPLES = "tpu:v5e:2x4, gpu:h100:8 or, of two hosts, gpu:h100:2x8"


@dataclass(frozen=True)
class Device:
    """A kind of device, with its published figures.

    Attributes:
      key: Its name in targets, and that of its file in ``devices``.
      name: The name that its maker gives it.
      platform: ``"cuda"`` or ``"tpu"``, as `ssm_jax.kernels.compiling_for` takes it.
      memory_bytes: Memory of one device.
      details: What its compiler needs to know: the fields of XLA's
        ``GpuTargetConfigProto``, or the shape of TPU topologies.
    """

    key: str
    name: str
    platform: str
    memory_bytes: int
    details: Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """Devices of one kind that programs are compiled for.

    Attributes:
      text: The target as it was given, such as ``"gpu:h100:2x8"``.
      device: The kind of device.
      shape: For TPUs the chips along each axis of the topology, for GPUs
        ``(hosts, devices per host)``.
    """

    text: str
    device: Device
    shape: tuple[int, ...]

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return math.prod(self.shape)

    @property
    def topology_name(self) -> str:
        """The topology as its compiler names it."""
        shape = "x".join(map(str, self.shape))
        if self.device.platform == "tpu":
            return f"{self.device.key}:{shape}"
        # All hosts are in one network.
        return f"1x{shape}"


@functools.cache
def known_devices() -> Mapping[str, Device]:
    """Returns the devices by their names in targets."""
    devices = {}
    for file in sorted(files("ssm_jax.aot").joinpath("devices").iterdir(), key=str):
        if file.name.endswith(".toml"):
            fields = tomllib.loads(file.read_text(encoding="utf-8"))
            key = file.name.removesuffix(".toml")
            details = fields.pop("target_config", None) or fields.pop("topology")
            devices[key] = Device(key=key, details=details, **fields)
    return devices


def parse_target(text: str) -> Target:
    """Returns a target from its name.

    Args:
      text: ``tpu:DEVICE:AxB`` (``AxBxC`` for v4 and v5p) with the chips along each axis
        of the topology, ``gpu:DEVICE:N`` with the devices of one host, or
        ``gpu:DEVICE:HxN`` with ``H`` hosts of ``N`` devices.

    Returns:
      The target; no compiler is looked for.

    Raises:
      ValueError: It is not of this form, or the device is not known.

    Example:
      >>> target = parse_target("gpu:h100:2x8")
      >>> target.device.name, target.n_devices
      ('NVIDIA H100 80GB HBM3', 16)
    """
    kind, _, rest = text.partition(":")
    key, _, numbers = rest.partition(":")
    if kind not in _KINDS.values():
        raise ValueError(
            f"`target` must be KIND:DEVICE:SHAPE with the kind gpu or tpu, got "
            f"{text!r}; {_EXAMPLES} are examples."
        )
    devices = {
        key: device
        for key, device in known_devices().items()
        if _KINDS[device.platform] == kind
    }
    if key not in devices:
        raise ValueError(
            f"`target` must name one of the {kind} devices {', '.join(devices)}, got "
            f"{text!r}; a file in ssm_jax/aot/devices describes each."
        )
    device, sizes = devices[key], numbers.split("x")
    axes = device.details.get("axes", 0)
    positive = all(size.isdecimal() and int(size) > 0 for size in sizes)
    if not positive or len(sizes) not in ((axes,) if axes else (1, 2)):
        rule = f"have {axes} sizes" if axes else "have N devices or H hosts x N devices"
        example = "x".join("2" * axes) if axes else "8"
        raise ValueError(
            f"`target` of {kind}:{key} must {rule}, got {text!r}; "
            f"{kind}:{key}:{example} is an example."
        )
    shape = tuple(map(int, sizes))
    return Target(text, device, shape if axes or len(shape) == 2 else (1, *shape))
