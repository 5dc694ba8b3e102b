"""The recurrences of a model, with their parameters."""

from flax import linen as nn

from ssm_jax.layers.recurrent import recurrences_of
from ssm_jax.recurrences.families.base import Recurrence
from ssm_jax.types import PyTree


def layer_recurrences(
    model: nn.Module, params: PyTree
) -> list[tuple[Recurrence, PyTree]]:
    """Returns each recurrence of a model and its parameters, in the order of layers.

    Args:
      model: A `SequenceModel`, or a model whose field ``recurrence`` is that of all its
        layers, or None.
      params: Its parameters.

    Returns:
      Pairs of a recurrence and its parameters. Layers without one, such as attention,
      are left out.

    Example:
      >>> import jax
      >>> from ssm_jax.models import LastHead, RecurrentNetwork
      >>> from ssm_jax.recurrences import GRU
      >>> model = RecurrentNetwork(GRU(d_state=8), LastHead(d_output=3))
      >>> x = jax.numpy.ones((2, 32, 1))
      >>> params = jax.eval_shape(model.init, jax.random.key(0), x)["params"]
      >>> [recurrence.d_state for recurrence, _ in layer_recurrences(model, params)]
      [8]
    """
    layers = [(getattr(model, "recurrence", None), params)]
    if (blocks := getattr(model, "blocks", None)) is not None:
        layers = [
            (getattr(block.layer, "recurrence", None), params[f"block_{index}"])
            for index, block in enumerate(blocks)
        ]
    return [
        (recurrence, own)
        for recurrence, of_layer in layers
        if recurrence is not None
        for own in recurrences_of(of_layer)
    ]
