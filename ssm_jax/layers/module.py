"""Base class of all layers and models, which validates their fields."""

from flax import linen as nn

from ssm_jax.fields import check_fields


class Module(nn.Module):
    """A Flax module that checks its fields against their annotations.

    Every integer field is a size and must be at least 1.

    Raises:
      ValueError: A field has the wrong type or is out of range.
    """

    def __post_init__(self) -> None:
        # First, because Linen registers the module with its parent in `__post_init__`.
        check_fields(self, minimum=1)
        super().__post_init__()
