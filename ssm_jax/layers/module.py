"""Base class of all layers and models, and the modules of Flax that they contain."""

from typing import Any, TypeVar

from flax import linen as nn

from ssm_jax.fields import check_fields
from ssm_jax.kernels.sharding import gather_explicit

M = TypeVar("M", bound=nn.Module)


class _GathersParams(nn.Module):
    """A Flax module that gathers parameters which explicit axes of a mesh shard."""

    def param(self, *args: Any, **options: Any) -> Any:
        """As `flax.linen.Module.param`, whose arguments it takes."""
        return gather_explicit(super().param(*args, **options))


class Module(_GathersParams):
    """A Flax module that checks its fields against their annotations.

    Every integer field is a size and must be at least 1. Parameters that are sharded
    over explicit axes of a mesh are gathered where `param` returns them.

    Raises:
      ValueError: A field has the wrong type or is out of range.
    """

    def __post_init__(self) -> None:
        # First, because Linen registers the module with its parent in `__post_init__`.
        check_fields(self, minimum=1)
        super().__post_init__()


def _gathers(module: type[M]) -> type[M]:
    # No class statement: tests would check annotations of Flax that are not checkable.
    made: Any = type(
        module.__name__, (_GathersParams, module), {"__module__": __name__}
    )
    return made


Dense = _gathers(nn.Dense)
Embed = _gathers(nn.Embed)
FlaxRMSNorm = _gathers(nn.RMSNorm)
