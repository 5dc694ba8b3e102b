"""Tasks: where sequences and their targets come from, as numpy arrays.

Data sets are opened where they are first read; importing this package loads none.
"""

from ssm_jax.tasks.base import Batch, Split, Task, TaskSpec, n_batches
from ssm_jax.tasks.images.digits import Digits
from ssm_jax.tasks.images.pixels import PixelCifar10, PixelMnist
from ssm_jax.tasks.listops.listops import ListOps
from ssm_jax.tasks.pathfinder.pathfinder import Pathfinder
from ssm_jax.tasks.synthetic.cumsum import CumSum
from ssm_jax.tasks.synthetic.mixture import Mixture
from ssm_jax.tasks.synthetic.shift import Shift
from ssm_jax.tasks.text.folder import TextFolder
from ssm_jax.tasks.text.glue import Glue
from ssm_jax.tasks.text.imdb import ImdbBytes, ImdbWords
from ssm_jax.tasks.text.retrieval import Retrieval

__all__ = [
    "Batch",
    "CumSum",
    "Digits",
    "Glue",
    "ImdbBytes",
    "ImdbWords",
    "ListOps",
    "Mixture",
    "Pathfinder",
    "PixelCifar10",
    "PixelMnist",
    "Retrieval",
    "Shift",
    "Split",
    "Task",
    "TaskSpec",
    "TextFolder",
    "n_batches",
]
