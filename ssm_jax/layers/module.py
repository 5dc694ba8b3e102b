"""What all layers and models have in common: their fields are checked."""

from flax import linen as nn

from ssm_jax.fields import check_fields


class Module(nn.Module):
    """A Flax module whose fields are of their annotated types.

    Integers are sizes, from 1 on.

    Raises:
      ValueError: A field is not what its annotation says, or out of its range.
    """

    def __post_init__(self) -> None:
        """Checks the fields."""
        check_fields(self, minimum=1)
        super().__post_init__()
