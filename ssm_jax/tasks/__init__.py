"""Tasks: sources of batches of sequences and targets, as numpy arrays.

`base` holds the `Task` protocol, `Batch` and `TaskSpec`; `generated` holds the storage
that all generated finite sets share. Tasks are grouped by subject: `images`, `listops`,
`pathfinder`, `synthetic` and `text`; `tfds` reads and writes prepared data sets. A new
task is a file in the package of its subject, is exported here, and gets a row in
``tests/tasks/test_contract.py``. A module ``prepare_NAME`` next to a task converts the
publisher's files to the prepared set that the task reads.

Data sets are opened at the first batch; importing this package loads none of them.
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
