"""Tasks: where sequences and their targets come from, as numpy arrays.

Data sets are opened where they are first read; importing this package loads none.
"""

from ssm_jax.tasks.base import Batch as Batch
from ssm_jax.tasks.base import Split as Split
from ssm_jax.tasks.base import Task as Task
from ssm_jax.tasks.base import TaskSpec as TaskSpec
from ssm_jax.tasks.base import n_batches as n_batches
from ssm_jax.tasks.images.digits import Digits as Digits
from ssm_jax.tasks.images.pixels import PixelCifar10 as PixelCifar10
from ssm_jax.tasks.images.pixels import PixelMnist as PixelMnist
from ssm_jax.tasks.listops.listops import ListOps as ListOps
from ssm_jax.tasks.pathfinder.pathfinder import Pathfinder as Pathfinder
from ssm_jax.tasks.synthetic.cumsum import CumSum as CumSum
from ssm_jax.tasks.synthetic.mixture import Mixture as Mixture
from ssm_jax.tasks.synthetic.shift import Shift as Shift
from ssm_jax.tasks.text.folder import TextFolder as TextFolder
from ssm_jax.tasks.text.glue import Glue as Glue
from ssm_jax.tasks.text.imdb import ImdbBytes as ImdbBytes
from ssm_jax.tasks.text.imdb import ImdbWords as ImdbWords
from ssm_jax.tasks.text.retrieval import Retrieval as Retrieval
