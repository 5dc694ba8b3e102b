"""Tasks: where sequences and their targets come from, as numpy arrays.

Data sets are opened where they are first read; importing this package loads none.
"""

from ssm_jax.tasks.base import Batch, Split, Task, TaskSpec, n_batches
from ssm_jax.tasks.digits import Digits
from ssm_jax.tasks.synthetic.cumsum import CumSum
from ssm_jax.tasks.synthetic.listops import ListOps
from ssm_jax.tasks.synthetic.mixture import Mixture
from ssm_jax.tasks.synthetic.shift import Shift
from ssm_jax.tasks.text import TextFolder
from ssm_jax.tasks.tfds.glue import Glue
from ssm_jax.tasks.tfds.images import PixelCifar10, PixelMnist
from ssm_jax.tasks.tfds.imdb import ImdbBytes, ImdbWords
from ssm_jax.tasks.tfds.pathfinder import Pathfinder
from ssm_jax.tasks.tfds.retrieval import Retrieval

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
